// The search and the refresh of a SumTree, whole batches level by level, over the primitives that a
// processor does in its own way:
//
//     struct Primitives {
//       // Finds the one of a node's 16 children whose share contains the mass: the last whose
//       // running sum is at most *mass. Takes that sum from *mass. Returns the child's place in
//       // the node, in bytes.
//       static std::size_t step(const double* node, double* mass);
//       // The same over the sums of the children, from which it makes the running sums itself.
//       static std::size_t scan_step(const double* sums, double* mass);
//       // And over 16 weights; returns the child's number.
//       static std::size_t last_step(const float* weights, double mass);
//       // Writes the exclusive running sums of 16 numbers; returns their sum.
//       static double fold(const double* sums, double* below);
//       static double add_up(const float* weights);  // what fold would return for them
//       static double add_up(const double* sums);
//       // RandomLanes::fill; `out` begins a cache line.
//       static void fill(RandomLanes& random, double scale, double* out, std::size_t count);
//     };
//
// Each level is one loop over a block of the batch. The rounds of a loop do not depend on each
// other, so a processor runs some ten at a time, and each asks for the cache lines that the next
// level will read. Loops pass on byte offsets rather than indices of nodes: with an address one
// addition away, a round of a loop is 20 instructions instead of 26.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "reverie/base/check.h"
#include "reverie/sum_tree/sum_tree_nodes.h"

namespace reverie::sum_tree {

// Searches of one block: their state and the lines in flight fit in the first-level cache.
inline constexpr std::size_t kBlock = 64;

// The element `bytes` bytes after the start of an array.
template <typename T>
[[gnu::always_inline]] inline const T* at(const T* begin, std::size_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(begin) + bytes);
}

// Keeps a compiler from fusing two loops: fused, fewer searches fit in the processor's window.
[[gnu::always_inline]] inline void fence_loops() {
  asm volatile("" ::: "memory");
}

// Requires count <= kBlock, and the masses, which it overwrites, in an array of that size.
template <typename Primitives>
[[gnu::always_inline]] inline void find_block(const Tree& tree, double* mass, std::size_t count,
                                              Slot* slots, float* weights) {
  constexpr std::size_t kNumber = sizeof(double);
  // The offset of what was found last, within the `below` of its level.
  std::uint32_t place[kBlock];
  if (tree.levels.empty()) {
    for (std::size_t i = 0; i < count; ++i) place[i] = 0;
  } else {
    const double* const root = tree.levels.back().below[0].values;
    for (std::size_t i = 0; i < count; ++i) {
      place[i] = static_cast<std::uint32_t>(Primitives::step(root, &mass[i]));
    }
  }
  for (std::size_t level = tree.levels.size(); level-- > 1;) {
    fence_loops();
    const double* const below = tree.levels[level - 1].below[0].values;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t node = place[i] * kFanout;
      place[i] = static_cast<std::uint32_t>(node + Primitives::step(at(below, node), &mass[i]));
    }
  }
  fence_loops();
  static_assert(sizeof(tree.segments[0]) == kNumber, "a place is one in this array too");
  const std::unique_ptr<Segment>* const segments = tree.segments.data();
  for (std::size_t i = 0; i < count; ++i) {
    const Segment& segment = **at(segments, place[i]);
    const std::size_t child = Primitives::step(segment.node_below, &mass[i]);
    const double* const next = at(segment.group_sums, child * kFanout);
    __builtin_prefetch(next);
    __builtin_prefetch(next + kFanout / 2);
    place[i] = static_cast<std::uint32_t>(place[i] * kFanout + child);
  }
  fence_loops();
  for (std::size_t i = 0; i < count; ++i) {
    constexpr std::size_t kNodes = kFanout * kNumber;  // of a segment, as offsets
    const Segment& segment = **at(segments, place[i] / kNodes * kNumber);
    const std::size_t node = place[i] % kNodes * kFanout;
    const std::size_t group = node + Primitives::scan_step(at(segment.group_sums, node), &mass[i]);
    __builtin_prefetch(segment.weights + group / kNumber * kFanout);
    place[i] = static_cast<std::uint32_t>(place[i] / kNodes * (kNodes * kFanout) + group);
  }
  fence_loops();
  std::uint32_t astray = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t group = place[i] / kNumber;
    const Segment& segment = *segments[group / kSegmentGroups];
    const float* const begin = segment.weights + group % kSegmentGroups * kFanout;
    const std::size_t child = Primitives::last_step(begin, mass[i]);
    slots[i] = static_cast<Slot>(group * kFanout + child);
    // As bits: a weight is not negative, so subtracting 1 sets the highest bit only for 0.
    std::uint32_t bits;
    __builtin_memcpy(&bits, begin + child, sizeof(bits));
    __builtin_memcpy(weights + i, &bits, sizeof(bits));
    astray |= bits - 1;
  }
  if (astray >> 31) [[unlikely]] {
    for (std::size_t i = 0; i < count; ++i) {
      if (weights[i] != 0) continue;
      slots[i] = last_positive_slot_near(tree, slots[i]);
      weights[i] = segments[slots[i] / kSegmentSlots]->weights[slots[i] % kSegmentSlots];
    }
  }
}

template <typename Primitives>
[[gnu::always_inline]] inline void find_all(const Tree& tree, const double* masses,
                                            std::size_t count, Slot* slots, float* weights) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    double mass[kBlock];
    const std::size_t block = std::min(kBlock, count - begin);
    for (std::size_t i = 0; i < block; ++i) mass[i] = masses[begin + i];
    find_block<Primitives>(tree, mass, block, slots + begin, weights + begin);
  }
}

template <typename Primitives>
[[gnu::always_inline]] inline void draw_all(const Tree& tree, RandomLanes& random,
                                            std::size_t count, Slot* slots, double* probabilities) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    alignas(64) double mass[kBlock];
    float weights[kBlock];
    const std::size_t block = std::min(kBlock, count - begin);
    constexpr std::size_t kLast = RandomLanes::kLanes - 1;
    Primitives::fill(random, tree.total, mass, (block + kLast) & ~kLast);
    find_block<Primitives>(tree, mass, block, slots + begin, weights);
    for (std::size_t i = 0; i < block; ++i) {
      probabilities[begin + i] = static_cast<double>(weights[i]) / tree.total;
    }
  }
}

// The nodes of one level to recompute, each once.
class DirtyList {
 public:
  explicit DirtyList(std::uint8_t* flags) : flags_(flags) {}
  // Without a branch: whether a node is listed already cannot be predicted.
  void add(std::size_t node) {
    nodes_[count_] = static_cast<std::uint32_t>(node);
    count_ += flags_[node] ^ 1u;
    flags_[node] = 1;
  }
  std::size_t size() const { return count_; }
  // The node, no longer marked.
  std::size_t take(std::size_t i) {
    flags_[nodes_[i]] = 0;
    return nodes_[i];
  }

 private:
  std::uint8_t* flags_;
  std::size_t count_ = 0;
  std::uint32_t nodes_[kRefreshMax + 1];
};

// Groups of a refresh that are handled together: the cache lines that they need fit in the
// first-level cache. They were prefetched when the groups were noted.
inline constexpr std::size_t kRefreshBlock = 64;

// Refreshes `count` groups and their nodes in the segments.
template <typename Primitives>
[[gnu::always_inline]] inline void refresh_block(Tree& tree, const std::uint32_t* groups,
                                                 std::size_t count, DirtyList& dirty) {
  const std::unique_ptr<Segment>* const segments = tree.segments.data();
  for (std::size_t i = 0; i < count; ++i) {
    Segment& segment = *segments[groups[i] / kSegmentGroups];
    const std::size_t group = groups[i] % kSegmentGroups;
    segment.group_sums[group] = Primitives::add_up(segment.weights + group * kFanout);
  }
  // All sums are stored before a node is read: a wide load right after a narrow store to the same
  // line would wait for it.
  fence_loops();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t number = groups[i] / kSegmentGroups;
    Segment& segment = *segments[number];
    const std::size_t node = groups[i] % kSegmentGroups / kFanout;
    segment.node_sums[node] = Primitives::add_up(segment.group_sums + node * kFanout);
    dirty.add(number);
  }
  fence_loops();
}

// Requires count <= kRefreshMax.
template <typename Primitives>
[[gnu::always_inline]] inline void refresh_all(Tree& tree, const std::uint32_t* groups,
                                               std::size_t count) {
  REVERIE_CHECK(count <= kRefreshMax);
  DirtyList dirty(tree.dirty.data());
  for (std::size_t begin = 0; begin < count; begin += kRefreshBlock) {
    refresh_block<Primitives>(tree, groups + begin, std::min(kRefreshBlock, count - begin), dirty);
  }
  const auto fold_segment = [&tree](std::size_t node) __attribute__((always_inline)) {
    Segment& segment = *tree.segments[node];
    return Primitives::fold(segment.node_sums, segment.node_below);
  };
  if (tree.levels.empty()) {
    for (std::size_t i = 0; i < dirty.size(); ++i) tree.total = fold_segment(dirty.take(i));
    return;
  }
  DirtyList above(tree.levels[0].dirty.data());
  for (std::size_t i = 0; i < dirty.size(); ++i) {
    const std::size_t node = dirty.take(i);
    tree.levels[0].sums[node / kFanout].values[node % kFanout] = fold_segment(node);
    above.add(node / kFanout);
  }
  for (std::size_t k = 0; k + 1 < tree.levels.size(); ++k) {
    Level& level = tree.levels[k];
    DirtyList next(tree.levels[k + 1].dirty.data());
    for (std::size_t i = 0; i < above.size(); ++i) {
      const std::size_t node = above.take(i);
      tree.levels[k + 1].sums[node / kFanout].values[node % kFanout] =
          Primitives::fold(level.sums[node].values, level.below[node].values);
      next.add(node / kFanout);
    }
    above = next;
  }
  Level& root = tree.levels.back();
  for (std::size_t i = 0; i < above.size(); ++i) {
    tree.total = Primitives::fold(root.sums[above.take(i)].values, root.below[0].values);
  }
}

}  // namespace reverie::sum_tree
