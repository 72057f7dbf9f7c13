#include "reverie/replay/sum_tree.h"

#include "reverie/base/check.h"

namespace reverie {

using sum_tree::Fan;
using sum_tree::kFanout;
using sum_tree::kSegmentSlots;
using sum_tree::Level;
using sum_tree::Segment;
using sum_tree::Tree;

SumTree::SumTree(Kernel kernel) : kernels_(&sum_tree::portable_kernels()) {
  if (kernel == Kernel::kPortable) return;
  if (const sum_tree::Kernels* avx2 = sum_tree::avx2_kernels()) kernels_ = avx2;
}
SumTree::~SumTree() = default;
SumTree::SumTree(SumTree&&) noexcept = default;
SumTree& SumTree::operator=(SumTree&&) noexcept = default;

const char* SumTree::kernel_name() const {
  return kernels_->name;
}

void SumTree::reach(Slot slot) {
  while (slot >= capacity()) {
    tree_.segments.push_back(std::make_unique<Segment>());
    tree_.dirty.push_back(0);
    // The new segment weighs nothing, so the sums above stand; there only have to be enough nodes.
    std::size_t children = tree_.segments.size();
    for (std::size_t k = 0; children > 1; ++k) {
      if (k == tree_.levels.size()) {
        // A new root: its first child is the tree as it was.
        Level& root = tree_.levels.emplace_back();
        root.sums.emplace_back().values[0] = tree_.total;
        kernels_->fold(root.sums[0].values, root.below.emplace_back().values);
        root.dirty.push_back(0);
      }
      Level& level = tree_.levels[k];
      children = (children + kFanout - 1) / kFanout;
      level.below.resize(children);
      level.sums.resize(children);
      level.dirty.resize(children);
    }
  }
}

void SumTree::update(std::span<const Slot> slots, std::span<const float> weights) {
  REVERIE_CHECK(slots.size() == weights.size());
  kernels_->update(tree_, slots.data(), weights.data(), slots.size());
}

void SumTree::find(std::span<const double> masses, std::span<Slot> slots,
                   std::span<float> weights) const {
  REVERIE_CHECK(masses.size() == slots.size() && masses.size() == weights.size());
  REVERIE_CHECK(tree_.total > 0 || masses.empty());
  kernels_->find(tree_, masses.data(), masses.size(), slots.data(), weights.data());
}

std::uint32_t SumTree::order_of(Slot slot) {
  // A child's number has four bits: two for the step within a lane, then two for the lane. Along
  // the mass the lane comes first.
  return ((slot & 0x33333333u) << 2) | ((slot & 0xccccccccu) >> 2);
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

// Along the mass, child number `rank` of a node lies at this place.
constexpr std::size_t child_at(std::size_t rank) {
  return rank % kLanes * 4 + rank / kLanes;
}

template <typename T>
std::size_t last_weighty(const T* values) {
  for (std::size_t rank = kFanout; rank-- > 0;) {
    if (values[child_at(rank)] > 0) return child_at(rank);
  }
  REVERIE_CHECK(!"the node has a child with a weight");
  return 0;
}

template <typename T>
bool any_weighty(const T* values) {
  for (std::size_t i = 0; i < kFanout; ++i) {
    if (values[i] > 0) return true;
  }
  return false;
}

}  // namespace

Slot last_weighty_slot_near(const Tree& tree, Slot slot) {
  // The sums of the children of the node `height` levels above the slots. Height 1 is a node with
  // weights as children.
  const auto visit = [&tree](std::size_t height, std::size_t node, auto action) {
    if (height == 1) {
      return action(tree.segments[node / 256]->weights + node % 256 * kFanout);
    }
    if (height == 2) {
      return action(tree.segments[node / 16]->group_sums + node % 16 * kFanout);
    }
    if (height == 3) {
      return action(tree.segments[node]->node_sums);
    }
    return action(tree.levels[height - 4].sums[node].values);
  };
  std::size_t height = 1;
  std::size_t node = slot / kFanout;
  while (!visit(height, node, [](const auto* values) { return any_weighty(values); })) {
    ++height;
    node /= kFanout;
  }
  for (; height > 0; --height) {
    node = node * kFanout +
           visit(height, node, [](const auto* values) { return last_weighty(values); });
  }
  return static_cast<Slot>(node);
}

}  // namespace sum_tree
}  // namespace reverie
