// Weighted draws over slots: a 16-ary tree that keeps running sums where it is searched.
//
//     top, level by level    [ 0 s s s .. s ]                  f64, one node of 16 a child group,
//                            [ 0 s s s .. s ] ...              a child for each segment
//     segment (4096 slots)   [ 0 s s s .. s ]                  f64, 16 children
//                            [ 0 s s s .. s ] x 16             f64, 16 children each
//                            [ w w w .. w ] x 256              f32 weights, 16 slots a cache line
//
// A node holds the exclusive running sums of its 16 children, so that a search passes a level with
// one comparison of the node with the mass, a count and a subtraction; only the last 16 weights are
// summed on the way. Beside them lie the plain sums of the children. An update writes the weight,
// and then makes each node above anew from these, whole batches level by level: the tree is a
// function of its weights alone. Nothing drifts, whatever the number and the range of updates:
// weights 1e30 come and go without a trace among weights 1e-30.
//
// The children of a node lie along the mass in an order of the tree's own (see order_of).
//
// Source: Zhang et al. 2021, "Parallel Actors and Learners", section IV-C.
// Differs: running sums in the nodes, f64 above f32; whole batches; sums made anew where the paper
// adds differences; growth by segments; a slot of weight 0 is never drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reverie/replay/slot.h"
#include "reverie/replay/sum_tree_nodes.h"

namespace reverie {

// Not thread-safe: the table that owns it locks. Holds no random state: the caller draws.
class SumTree {
 public:
  // The machine code to run: the best that this processor has, or the portable one (they give the
  // same answers, bit by bit).
  enum class Kernel { kBest, kPortable };

  explicit SumTree(Kernel kernel = Kernel::kBest);
  ~SumTree();
  SumTree(SumTree&&) noexcept;
  SumTree& operator=(SumTree&&) noexcept;

  // The name of the code that runs: "avx2" or "portable".
  const char* kernel_name() const;

  // Slots 0 .. capacity() - 1 exist, at first with weight 0. reach() makes `slot` exist: it adds
  // segments of 4096 slots (20 KB each) and, with 16 times as many, a level on top.
  std::size_t capacity() const { return tree_.segments.size() * sum_tree::kSegmentSlots; }
  void reach(Slot slot);

  // Gives each slot its weight. A slot may come twice: the last one wins. O(log16 capacity) each,
  // and less where slots share nodes.
  // Requires slots below capacity(), weights that are 0 or in [FLT_MIN, FLT_MAX], spans of one
  // size.
  void update(std::span<const Slot> slots, std::span<const float> weights);
  void set(Slot slot, float weight) { update({&slot, 1}, {&weight, 1}); }

  // For each mass the slot in whose share of [0, total()) it lies, and the slot's weight, which is
  // never 0. O(log16 capacity) each.
  // Requires total() > 0, masses in [0, total()), spans of one size.
  void find(std::span<const double> masses, std::span<Slot> slots, std::span<float> weights) const;

  // Requires slot < capacity().
  float weight(Slot slot) const {
    return tree_.segments[slot / sum_tree::kSegmentSlots]->weights[slot % sum_tree::kSegmentSlots];
  }
  // The sum of all weights; 0 exactly when all are 0.
  double total() const { return tree_.total; }

  // The place of a slot along the mass: a slot with the lower number has the lower share.
  static std::uint32_t order_of(Slot slot);

  std::size_t memory_bytes() const;

 private:
  sum_tree::Tree tree_;
  const sum_tree::Kernels* kernels_;
};

}  // namespace reverie
