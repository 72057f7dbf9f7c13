// TransitionGather: sampled items of a replay buffer as arrays.
//
//     item     [h h | s0 s1 | n]     frame_stack 3, n_step 2
//     obs       h h   s0              action of s0
//     next_obs            s0 s1 n     reward  r0 + gamma r1      discount  gamma^2, or 0
//
// Where an episode has no frame yet that a stack reaches back to, its first one is repeated.
// Everything is copied once, from the rows to its place in the batch. A first pass over the items
// asks for the lines that the next one reads, so that many misses are under way at once.
//
// A large leaf of an encoded chunk is decoded, item by item, as far as the item's rows go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/column_decoder.h"
#include "reverie/record/chunk.h"
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
  // The rows of an item in one column: `split` of them from one place on, the others from another.
  struct Rows {
    const std::byte* first = nullptr;   // where the column's row 0 lies
    const std::byte* second = nullptr;  // of the rows behind; null where there is one chunk
    std::uint32_t offset = 0;           // of the item's first row in its chunk
    std::uint32_t split = 0;
    ItemShape shape;
    bool first_is_raw = true;  // the chunk; else it is encoded
    bool second_is_raw = true;
  };

  // Finds the small columns' rows. Holds chunks that may be encoded as they are until the end.
  Status find(const TransitionPlan& plan, std::span<const TrajectoryView> items);
  // Where the small columns of a chunk lie, and whether its rows are raw. Null for a chunk that is
  // not of this plan.
  const std::byte* small_rows(const TransitionPlan& plan, const Chunk& chunk, bool& is_raw);
  // The rows of a large column of item i; those that had to be decoded until the next call.
  Result<Rows> large_rows(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                          std::size_t i, std::size_t column);
  Status decode(const Chunk& chunk, std::size_t column, std::uint32_t begin, std::uint32_t count,
                std::byte* to);
  // Calls visit(rows, column) for the leaf of each item.
  template <typename Visit>
  Status for_each_item(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                       const LeafPlace& leaf, Visit visit);
  Status copy_leaves(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                     const TransitionTargets& targets);
  Status copy_sequences(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                        const TransitionTargets& targets);
  void copy_outcomes(const TransitionPlan& plan, const TransitionTargets& targets) const;

  std::vector<Rows> rows_;
  std::vector<RawRows> raw_;  // of the chunks that may be encoded meanwhile
  ColumnDecoder decoder_;
  std::vector<std::byte> decoded_;
  std::vector<double> powers_;  // of gamma
};

}  // namespace reverie
