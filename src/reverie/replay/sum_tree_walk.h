// The search and the update of a SumTree, whole batches level by level, over the four primitives
// that a processor does in its own way:
//
//     struct Primitives {
//       // The last child, in their order, whose exclusive running sum is at most `mass`.
//       static std::size_t pick(const double* below, double mass);
//       static std::size_t pick_weight(const float* weights, double mass);  // sums on the way
//       // Writes the exclusive running sums of 16 numbers; returns their sum.
//       static double fold(const double* sums, double* below);
//       static double add_up(const float* weights);  // the sum that fold would return
//     };
//
// Each level is one loop over a chunk of the batch. The rounds of a loop do not depend on each
// other, so the processor runs some ten at a time, and each asks for the cache lines that its next
// level will read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "reverie/replay/sum_tree_nodes.h"

namespace reverie::sum_tree {

// What is carried from level to level for one chunk fits in the first-level cache.
inline constexpr std::size_t kChunk = 256;

template <typename Primitives>
[[gnu::always_inline]] inline void find_chunk(const Tree& tree, const double* masses,
                                              std::size_t count, Slot* slots, float* weights) {
  double mass[kChunk];
  std::uint32_t node[kChunk];
  for (std::size_t i = 0; i < count; ++i) {
    mass[i] = masses[i];
    node[i] = 0;
  }
  for (std::size_t level = tree.levels.size(); level-- > 0;) {
    const Fan* const below = tree.levels[level].below.data();
    for (std::size_t i = 0; i < count; ++i) {
      const double* const sums = below[node[i]].values;
      const std::size_t child = Primitives::pick(sums, mass[i]);
      mass[i] -= sums[child];
      node[i] = static_cast<std::uint32_t>(node[i] * kFanout + child);
    }
  }
  const std::unique_ptr<Segment>* const segments = tree.segments.data();
  for (std::size_t i = 0; i < count; ++i) {
    const Segment& segment = *segments[node[i]];
    const std::size_t child = Primitives::pick(segment.node_below, mass[i]);
    mass[i] -= segment.node_below[child];
    node[i] = static_cast<std::uint32_t>(node[i] * kFanout + child);
    const double* const next = segment.group_below + child * kFanout;
    __builtin_prefetch(next);
    __builtin_prefetch(next + 8);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Segment& segment = *segments[node[i] / kFanout];
    const double* const sums = segment.group_below + node[i] % kFanout * kFanout;
    const std::size_t child = Primitives::pick(sums, mass[i]);
    mass[i] -= sums[child];
    const std::size_t group = node[i] * kFanout + child;
    node[i] = static_cast<std::uint32_t>(group);
    __builtin_prefetch(segment.weights + group % (kFanout * kFanout) * kFanout);
  }
  bool astray = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Segment& segment = *segments[node[i] / (kFanout * kFanout)];
    const float* const group = segment.weights + node[i] % (kFanout * kFanout) * kFanout;
    const std::size_t child = Primitives::pick_weight(group, mass[i]);
    slots[i] = static_cast<Slot>(node[i] * kFanout + child);
    weights[i] = group[child];
    astray |= weights[i] == 0;
  }
  if (astray) [[unlikely]] {
    for (std::size_t i = 0; i < count; ++i) {
      if (weights[i] != 0) continue;
      slots[i] = last_weighty_slot_near(tree, slots[i]);
      weights[i] = segments[slots[i] / kSegmentSlots]->weights[slots[i] % kSegmentSlots];
    }
  }
}

template <typename Primitives>
[[gnu::always_inline]] inline void find_all(const Tree& tree, const double* masses,
                                            std::size_t count, Slot* slots, float* weights) {
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    find_chunk<Primitives>(tree, masses + begin, std::min(kChunk, count - begin), slots + begin,
                           weights + begin);
  }
}

// A list without duplicates of the nodes to make anew in one level.
class DirtyList {
 public:
  explicit DirtyList(std::uint8_t* flags) : flags_(flags) {}
  // Without a branch: whether a node is already listed cannot be foretold.
  void add(std::uint32_t node) {
    nodes_[count_] = node;
    count_ += flags_[node] ^ 1u;
    flags_[node] = 1;
  }
  // Calls `visit` with each node, and leaves the flags as they were before.
  template <typename Visit>
  [[gnu::always_inline]] void drain(Visit visit) {
    for (std::size_t i = 0; i < count_; ++i) {
      flags_[nodes_[i]] = 0;
      visit(nodes_[i]);
    }
  }

 private:
  std::uint8_t* flags_;
  std::size_t count_ = 0;
  std::uint32_t nodes_[kChunk + 1];
};

template <typename Primitives>
[[gnu::always_inline]] inline void update_chunk(Tree& tree, const Slot* slots, const float* weights,
                                                std::size_t count) {
  const std::unique_ptr<Segment>* const segments = tree.segments.data();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = slots[i] % kSegmentSlots;
    __builtin_prefetch(segments[slots[i] / kSegmentSlots]->weights + at, 1);
  }
  // All weights are stored before any is summed: loads that follow a narrower store to the same
  // line at once would wait for it.
  for (std::size_t i = 0; i < count; ++i) {
    Segment& segment = *segments[slots[i] / kSegmentSlots];
    const std::size_t at = slots[i] % kSegmentSlots;
    segment.weights[at] = weights[i];
    const std::size_t node = at / (kFanout * kFanout) * kFanout;
    __builtin_prefetch(segment.group_sums + node, 1);
    __builtin_prefetch(segment.group_sums + node + 8, 1);
    __builtin_prefetch(segment.group_below + node, 1);
    __builtin_prefetch(segment.group_below + node + 8, 1);
  }
  for (std::size_t i = 0; i < count; ++i) {
    Segment& segment = *segments[slots[i] / kSegmentSlots];
    const std::size_t group = slots[i] % kSegmentSlots / kFanout;
    segment.group_sums[group] = Primitives::add_up(segment.weights + group * kFanout);
  }
  DirtyList dirty_segments(tree.dirty.data());
  for (std::size_t i = 0; i < count; ++i) {
    Segment& segment = *segments[slots[i] / kSegmentSlots];
    const std::size_t node = slots[i] % kSegmentSlots / (kFanout * kFanout);
    segment.node_sums[node] =
        Primitives::fold(segment.group_sums + node * kFanout, segment.group_below + node * kFanout);
    dirty_segments.add(slots[i] / kSegmentSlots);
  }
  if (tree.levels.empty()) {
    dirty_segments.drain([&](std::uint32_t segment) {
      tree.total = Primitives::fold(segments[segment]->node_sums, segments[segment]->node_below);
    });
    return;
  }
  DirtyList dirty_nodes(tree.levels[0].dirty.data());
  Fan* const sums = tree.levels[0].sums.data();
  dirty_segments.drain([&](std::uint32_t segment) {
    sums[segment / kFanout].values[segment % kFanout] =
        Primitives::fold(segments[segment]->node_sums, segments[segment]->node_below);
    dirty_nodes.add(static_cast<std::uint32_t>(segment / kFanout));
  });
  for (std::size_t level = 0; level + 1 < tree.levels.size(); ++level) {
    Level& here = tree.levels[level];
    Level& above = tree.levels[level + 1];
    DirtyList dirty_above(above.dirty.data());
    dirty_nodes.drain([&](std::uint32_t node) {
      above.sums[node / kFanout].values[node % kFanout] =
          Primitives::fold(here.sums[node].values, here.below[node].values);
      dirty_above.add(static_cast<std::uint32_t>(node / kFanout));
    });
    dirty_nodes = dirty_above;
  }
  dirty_nodes.drain([&](std::uint32_t node) {
    Level& root = tree.levels.back();
    tree.total = Primitives::fold(root.sums[node].values, root.below[node].values);
  });
}

template <typename Primitives>
[[gnu::always_inline]] inline void update_all(Tree& tree, const Slot* slots, const float* weights,
                                              std::size_t count) {
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    update_chunk<Primitives>(tree, slots + begin, weights + begin, std::min(kChunk, count - begin));
  }
}

}  // namespace reverie::sum_tree
