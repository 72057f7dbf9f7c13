#include "reverie/sum_tree/sum_tree.h"

#include <algorithm>
#include <new>

#include "reverie/base/check.h"

namespace reverie {

using sum_tree::Fan;
using sum_tree::kFanout;
using sum_tree::kRefreshMax;
using sum_tree::kSegmentGroups;
using sum_tree::kSegmentSlots;
using sum_tree::Level;
using sum_tree::Segment;
using sum_tree::Tree;

namespace {

// Reserves for `count` elements, at least twice as many as before.
template <typename Vector>
void make_room(Vector& vector, std::size_t count) {
  if (vector.capacity() < count) vector.reserve(std::max(count, 2 * vector.capacity()));
}

}  // namespace

SumTree::SumTree(Kernel kernel) : kernels_(&sum_tree::portable_kernels()) {
  if (kernel == Kernel::kPortable) return;
  if (const sum_tree::Kernels* avx2 = sum_tree::avx2_kernels()) kernels_ = avx2;
  if (kernel == Kernel::kAvx2) return;
  if (const sum_tree::Kernels* avx512 = sum_tree::avx512_kernels()) kernels_ = avx512;
}

void SumTree::reach(Slot slot) {
  while (slot >= capacity()) add_segment();
}

// All allocations come first: if one fails, the tree does not change.
void SumTree::add_segment() {
  auto segment = std::make_unique<Segment>();
  make_room(tree_.segments, tree_.segments.size() + 1);
  make_room(tree_.dirty, tree_.segments.size() + 1);
  Level fresh;
  const auto each_level = [count = tree_.segments.size() + 1](auto act) {
    std::size_t children = count;
    for (std::size_t k = 0; children > 1; ++k) {
      children = (children + kFanout - 1) / kFanout;
      act(k, children);
    }
  };
  each_level([&](std::size_t k, std::size_t children) {
    if (k == tree_.levels.size()) {  // one at most
      fresh.below.resize(children);
      fresh.sums.resize(children);
      fresh.dirty.resize(children);
      make_room(tree_.levels, k + 1);
      return;
    }
    make_room(tree_.levels[k].below, children);
    make_room(tree_.levels[k].sums, children);
    make_room(tree_.levels[k].dirty, children);
  });

  tree_.segments.push_back(std::move(segment));
  tree_.dirty.push_back(0);
  // The new segment weighs nothing, so the sums above stand; there only have to be enough nodes.
  each_level([&](std::size_t k, std::size_t children) {
    if (k == tree_.levels.size()) {
      // Its first child is the former root: new slots come after it along the mass.
      fresh.sums[0].values[0] = tree_.total;
      std::fill_n(fresh.below[0].values + 1, kFanout - 1, tree_.total);
      tree_.levels.push_back(std::move(fresh));
      return;
    }
    tree_.levels[k].below.resize(children);
    tree_.levels[k].sums.resize(children);
    tree_.levels[k].dirty.resize(children);
  });
}

std::shared_ptr<const SumTree::Frozen> SumTree::freeze() {
  frozen_ = std::make_shared<Frozen>();
  const std::size_t count = tree_.segments.size();
  frozen_->segments_.reserve(count);
  for (const auto& segment : tree_.segments) frozen_->segments_.push_back(segment.get());
  frozen_->kept_.reserve(count);
  frozen_->is_kept_.resize(count);
  return frozen_;
}

void SumTree::keep(std::span<const Slot> slots) {
  for (const Slot slot : slots) {
    const std::size_t index = slot / kSegmentSlots;
    if (index >= frozen_->is_kept_.size() || frozen_->is_kept_[index]) continue;
    std::unique_ptr<Segment> copy;
    try {
      copy = std::make_unique<Segment>(*tree_.segments[index]);
    } catch (const std::bad_alloc&) {
      frozen_->give_up();
      frozen_.reset();
      return;
    }
    std::swap(copy, tree_.segments[index]);
    frozen_->kept_.push_back(std::move(copy));
    frozen_->is_kept_[index] = true;
  }
}

void SumTree::update(std::span<const Slot> slots, std::span<const float> weights) {
  REVERIE_CHECK(slots.size() == weights.size());
  if (frozen_) [[unlikely]] {
    keep(slots);
  }
  const std::unique_ptr<Segment>* const segments = tree_.segments.data();
  while (!slots.empty()) {
    const std::size_t count = std::min(slots.size(), kRefreshMax - waiting_count_);
    // In registers: through memory, each round would wait for the one before.
    std::uint32_t* const waiting = waiting_.data();
    std::size_t waiting_count = waiting_count_;
    std::uint32_t last = waiting_last_;
    for (std::size_t i = 0; i < count; ++i) {
      const Slot slot = slots[i];
      Segment& segment = *segments[slot / kSegmentSlots];
      segment.weights[slot % kSegmentSlots] = weights[i];
      // Prefetches the cache lines that the refresh will change.
      const std::size_t node = slot % kSegmentSlots / kSegmentGroups;
      __builtin_prefetch(segment.group_sums + node * kFanout, 1);
      __builtin_prefetch(segment.group_sums + node * kFanout + kFanout / 2, 1);
      // Consecutive slots often share a group; recording it once is enough.
      const auto group = static_cast<std::uint32_t>(slot / kFanout);
      waiting[waiting_count] = group;
      waiting_count += group != last ? 1 : 0;
      last = group;
    }
    waiting_count_ = waiting_count;
    waiting_last_ = last;
    if (waiting_count_ == kRefreshMax) refresh();
    slots = slots.subspan(count);
    weights = weights.subspan(count);
  }
}

void SumTree::find(std::span<const double> masses, std::span<Slot> slots,
                   std::span<float> weights) {
  REVERIE_CHECK(masses.size() == slots.size() && masses.size() == weights.size());
  REVERIE_CHECK(total() > 0 || masses.empty());
  kernels_->find(tree_, masses.data(), masses.size(), slots.data(), weights.data());
}

void SumTree::draw(RandomLanes& random, std::span<Slot> slots, std::span<double> probabilities) {
  REVERIE_CHECK(slots.size() == probabilities.size());
  REVERIE_CHECK(total() > 0 || slots.empty());
  kernels_->draw(tree_, random, slots.size(), slots.data(), probabilities.data());
}

std::uint32_t SumTree::order_of(Slot slot) {
  std::uint32_t order = 0;
  for (std::uint32_t shift = 0; shift < 32; shift += 4) {
    order |= static_cast<std::uint32_t>(sum_tree::child_at(slot >> shift & 15)) << shift;
  }
  return order;
}

std::size_t SumTree::memory_bytes() const {
  std::size_t bytes = sizeof(SumTree) + tree_.segments.size() * sizeof(Segment) +
                      tree_.segments.capacity() * sizeof(tree_.segments[0]) +
                      tree_.dirty.capacity() + tree_.levels.capacity() * sizeof(Level);
  for (const Level& level : tree_.levels) {
    bytes +=
        (level.below.capacity() + level.sums.capacity()) * sizeof(Fan) + level.dirty.capacity();
  }
  return bytes;
}

namespace sum_tree {
namespace {

// The last child with a weight along the mass; kFanout without one.
template <typename T>
std::size_t last_positive(const T* values) {
  for (std::size_t rank = kFanout; rank-- > 0;) {
    if (values[child_at(rank)] > 0) return child_at(rank);
  }
  return kFanout;
}

// The same for a node at a height: slots are at 0, groups at 1, segments at 3, then the levels.
std::size_t last_positive_child(const Tree& tree, std::size_t height, std::size_t node) {
  if (height == 1) {
    return last_positive(tree.segments[node / kSegmentGroups]->weights +
                         node % kSegmentGroups * kFanout);
  }
  if (height == 2) {
    return last_positive(tree.segments[node / kFanout]->group_sums + node % kFanout * kFanout);
  }
  if (height == 3) return last_positive(tree.segments[node]->node_sums);
  return last_positive(tree.levels[height - 4].sums[node].values);
}

}  // namespace

Slot last_positive_slot_near(const Tree& tree, Slot slot) {
  const std::size_t root_height = 3 + tree.levels.size();
  std::size_t height = 1;
  std::size_t node = slot / kFanout;
  while (last_positive_child(tree, height, node) == kFanout) {
    REVERIE_CHECK(height < root_height);
    ++height;
    node /= kFanout;
  }
  for (; height > 0; --height) {
    const std::size_t child = last_positive_child(tree, height, node);
    REVERIE_CHECK(child < kFanout);
    node = node * kFanout + child;
  }
  return static_cast<Slot>(node);
}

}  // namespace sum_tree
}  // namespace reverie
