// Weighted draws over slots: a 16-ary tree that keeps running sums where it is searched.
//
//     top, level by level    [ 0 s s s .. s ]               f64, 16 nodes of the level below
//                            [ 0 s s s .. s ] ...           f64, 16 segments
//     segment, 4096 slots    [ 0 s s s .. s ]               f64, 16 nodes of the level below
//                            [ t t t t .. t ] x 16          f64, sums of 16 groups
//                            [ w w w w .. w ] x 256         f32 weights, 16 slots: a cache line
//
// A node holds the exclusive running sums of its children, so that a search passes a level with
// one comparison of the node with the mass, a count and a subtraction. The two lowest levels,
// which are nearly all of the memory, hold plain sums and weights, accumulated during the search:
// the cost of an update of a large tree is its cache lines, and running sums there would add two.
// Whole batches descend level by level, so that many searches, and the loads of their cache lines,
// are in flight.
//
// An update stores the weight and notes the group; the sums above are recomputed from their
// children, level by level, when they are next needed or 1024 groups wait. So a node that many
// updates touched is recomputed once, and the tree is a function of its weights alone: nothing
// drifts, whatever the number and the range of updates. Weights of 1e30 come and go without a trace
// among weights of 1e-30.
//
// Source: Zhang et al. 2021, "Parallel Actors and Learners", section IV-C. Differs: running sums in
// the nodes, f64 above f32; whole batches; recomputed sums where the paper adds differences; growth
// by segments; a slot of weight 0 is never drawn; the children of a node share the mass in the
// tree's own order (order_of).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reverie/sum_tree/frozen_contents.h"
#include "reverie/sum_tree/random_lanes.h"
#include "reverie/sum_tree/slot.h"
#include "reverie/sum_tree/sum_tree_nodes.h"

namespace reverie {

// Not thread-safe: the table that owns it locks. Holds no random state.
class SumTree {
 public:
  // The machine code to run: the best that this processor supports, or a plainer one. All give the
  // same results, bit by bit.
  enum class Kernel { kBest, kAvx2, kPortable };

  explicit SumTree(Kernel kernel = Kernel::kBest);
  SumTree(const SumTree&) = delete;
  SumTree& operator=(const SumTree&) = delete;

  // The code in use: "avx512", "avx2" or "portable".
  const char* kernel_name() const { return kernels_->name; }

  // Slots 0 .. capacity() - 1 exist, at first with weight 0. reach() makes `slot` exist: it adds
  // segments of 4096 slots (18 KB each) and, at 16 times as many, a level on top.
  std::size_t capacity() const { return tree_.segments.size() * sum_tree::kSegmentSlots; }
  void reach(Slot slot);

  // Gives each slot its weight. If a slot occurs twice, the last weight wins. Requires slots <
  // capacity(), weights that are 0 or in [FLT_MIN, FLT_MAX], spans of one size.
  void update(std::span<const Slot> slots, std::span<const float> weights);
  void set(Slot slot, float weight) { update({&slot, 1}, {&weight, 1}); }

  // O(1). Requires slot < capacity().
  float weight(Slot slot) const {
    return tree_.segments[slot / sum_tree::kSegmentSlots]->weights[slot % sum_tree::kSegmentSlots];
  }
  // The sum of all weights; 0 if and only if all are 0.
  double total() {
    refresh();
    return tree_.total;
  }

  // For each mass: the slot whose share of [0, total()) contains it, and the slot's weight, which
  // is never 0. Requires total() > 0, masses in [0, total()), spans of one size.
  void find(std::span<const double> masses, std::span<Slot> slots, std::span<float> weights);

  // Draws slots with replacement, each with probability weight / total(), which it returns too.
  // Requires total() > 0, spans of one size.
  void draw(RandomLanes& random, std::span<Slot> slots, std::span<double> probabilities);

  // A slot with a lower order has its share of [0, total()) further left.
  static std::uint32_t order_of(Slot slot);

  std::size_t memory_bytes() const;

  // The weights when the tree was frozen; any thread may read() them until thaw(). The first change
  // to a segment afterwards copies it, or gives them up if there is no memory.
  class Frozen : public FrozenContents {
   public:
    std::size_t capacity() const { return segments_.size() * sum_tree::kSegmentSlots; }
    // Inside read(). Requires slot < capacity().
    float weight(Slot slot) const {
      return segments_[slot / sum_tree::kSegmentSlots]->weights[slot % sum_tree::kSegmentSlots];
    }

   private:
    friend class SumTree;
    std::vector<const sum_tree::Segment*> segments_;
    std::vector<std::unique_ptr<sum_tree::Segment>> kept_;  // segments changed since
    std::vector<bool> is_kept_;
  };
  // Only one at a time.
  std::shared_ptr<const Frozen> freeze();
  void thaw() { frozen_.reset(); }

 private:
  void keep(std::span<const Slot> slots);
  void add_segment();
  void refresh() {
    if (waiting_count_ == 0) return;
    kernels_->refresh(tree_, waiting_.data(), waiting_count_);
    waiting_count_ = 0;
    waiting_last_ = kNoSlot;
  }

  sum_tree::Tree tree_;
  std::shared_ptr<Frozen> frozen_;
  const sum_tree::Kernels* kernels_;
  // Groups whose weights are newer than the sums above them.
  std::array<std::uint32_t, sum_tree::kRefreshMax> waiting_;
  std::size_t waiting_count_ = 0;
  std::uint32_t waiting_last_ = kNoSlot;  // the last of these; kNoSlot: none
};

}  // namespace reverie
