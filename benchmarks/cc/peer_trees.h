// The trees that ours is compared with. Not thread-safe, like ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/sum_tree/slot.h"

namespace reverie {

// The paper's tree: every level is in one array of cache lines, and a node's children have their
// sum in the parent. With `kShift`, nodes begin that many floats after the start of a line, which
// is the layout without padding.
template <std::size_t kChildren, std::size_t kShift = 0>
class Paper {
 public:
  explicit Paper(std::size_t leaves) {
    std::size_t size = leaves;
    std::vector<std::size_t> sizes;  // from the leaves up, each padded to whole nodes
    do {
      size = (size + kChildren - 1) / kChildren;
      sizes.push_back(size * kChildren);
    } while (size > 1);
    std::size_t begin = 0;
    for (auto it = sizes.rbegin(); it != sizes.rend(); ++it) {
      begins_.push_back(begin);
      begin += *it;
    }
    memory_.resize(begin + kLineFloats + kShift);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    nodes_ = memory_.data() + (0 - address) % 64 / sizeof(float) + kShift;
  }
  Paper(const Paper&) = delete;
  Paper& operator=(const Paper&) = delete;

  float weight(std::size_t slot) const { return nodes_[begins_.back() + slot]; }
  float total() const { return total_; }
  void update(std::span<const Slot> slots, std::span<const float> weights) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      add_above(slots[i], set_leaf(slots[i], weights[i]));
    }
  }
  // The two parts of an update, which the paper locks separately: the leaf, then all nodes above.
  float set_leaf(std::size_t slot, float weight) {
    float& leaf = nodes_[begins_.back() + slot];
    const float difference = weight - leaf;
    leaf += difference;
    return difference;
  }
  void add_above(std::size_t slot, float difference) {
    std::size_t node = slot / kChildren;
    for (std::size_t level = begins_.size() - 1; level-- > 0; node /= kChildren) {
      nodes_[begins_[level] + node] += difference;
    }
    total_ += difference;
  }
  void settle() {}
  void draw(std::span<Slot> slots) {
    for (Slot& slot : slots) slot = find(random_.uniform());
  }
  // The slot at which the running sum reaches `share` of the total.
  Slot find(double share) const {
    auto mass = static_cast<float>(share * static_cast<double>(total_));
    std::size_t node = 0;
    for (const std::size_t begin : begins_) {
      const float* const children = &nodes_[begin + node * kChildren];
      std::size_t child = 0;
      for (; child < kChildren - 1 && mass >= children[child]; ++child) mass -= children[child];
      // Its sums drift: without this, a mass beyond all of them would lead out of the tree.
      while (child > 0 && children[child] <= 0) --child;
      node = node * kChildren + child;
    }
    return static_cast<Slot>(node);
  }

 private:
  static constexpr std::size_t kLineFloats = 16;

  std::vector<std::size_t> begins_;
  std::vector<float> memory_;
  float* nodes_ = nullptr;
  float total_ = 0;
  Random random_{std::uint64_t{7}};
};

class Binary {
 public:
  explicit Binary(std::size_t leaves) {
    while (leaf_count_ < leaves) leaf_count_ *= 2;
    nodes_.resize(2 * leaf_count_);
  }
  void update(std::span<const Slot> slots, std::span<const float> weights) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      std::size_t node = slots[i] + leaf_count_;
      nodes_[node] = static_cast<double>(weights[i]);
      for (node /= 2; node > 0; node /= 2) nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
    }
  }
  void settle() {}
  void draw(std::span<Slot> slots) {
    for (Slot& slot : slots) {
      double mass = random_.uniform() * nodes_[1];
      std::size_t node = 1;
      while (node < leaf_count_) {
        node *= 2;
        if (mass >= nodes_[node]) mass -= nodes_[node++];
      }
      slot = static_cast<Slot>(node - leaf_count_);
    }
  }

 private:
  std::size_t leaf_count_ = 1;
  std::vector<double> nodes_;
  Random random_{std::uint64_t{7}};
};

}  // namespace reverie
