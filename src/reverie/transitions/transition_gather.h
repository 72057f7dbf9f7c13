// TransitionGather: sampled items of a replay buffer as arrays.
//
//     item     [h h | s0 s1 | n]     frame_stack 3, n_step 2
//     obs       h h   s0              action of s0
//     next_obs            s0 s1 n     reward  r0 + gamma r1      discount  gamma^2, or 0
//
// Where an episode has no frame yet that a stack reaches back to, its first one is repeated.
// Everything is copied once, from the rows to its place in the batch. A first pass over the items
// asks for the lines that the next one reads, so that many misses are under way at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/trajectory.h"
#include "reverie/transitions/transition_plan.h"

namespace reverie {

// Where a batch of B goes: row-major, one pointer a leaf, in the plan's order. With T steps, where
// the plan has sequences, each array has an axis [T] behind [B]; observations have [frame_stack]
// behind these where that is above 1.
struct TransitionTargets {
  std::span<std::byte* const> obs;
  std::span<std::byte* const> action;
  std::span<std::byte* const> next_obs;
  float* reward = nullptr;
  std::uint8_t* terminated = nullptr;
  float* discount = nullptr;
  std::uint8_t* mask = nullptr;  // of sequences alone: 1 for steps that count
  // With hindsight alone: 1 for items with another goal. TransitionGather leaves it.
  std::uint8_t* hindsight = nullptr;
};

// Keeps its memory from call to call. Not thread-safe.
class TransitionGather {
 public:
  // Requires items of that plan, still pinned. DATA_LOSS when they are not.
  Status gather(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                const TransitionTargets& targets);

 private:
  // The rows of an item: `split` of them from one place on, the others from another.
  struct Rows {
    const std::byte* first = nullptr;   // the chunk's begin
    const std::byte* second = nullptr;  // of the rows behind; null where there is one chunk
    std::uint32_t offset = 0;           // of the item's first row in its chunk
    std::uint32_t split = 0;
    ItemShape shape;
  };

  Status find(const TransitionPlan& plan, std::span<const TrajectoryView> items);
  void copy_small(const TransitionPlan& plan, const TransitionTargets& targets) const;
  void copy_large(const TransitionPlan& plan, const TransitionTargets& targets) const;
  void copy_outcomes(const TransitionPlan& plan, const TransitionTargets& targets) const;

  std::vector<Rows> rows_;
  std::vector<double> powers_;  // of gamma
};

}  // namespace reverie
