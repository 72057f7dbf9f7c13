// TransitionGather: sampled items of a replay buffer as arrays.
//
//     item     [h h | s0 s1 | n]     frame_stack 3, n_step 2
//     obs       h h   s0              action of s0
//     next_obs            s0 s1 n     reward  r0 + gamma r1      discount  gamma^2, or 0
//
// If a stack reaches back beyond the first frame of an episode, that frame is repeated. Everything
// is copied once, from the rows to its place in the batch. A first pass over the items prefetches
// the cache lines that the next one reads, so that many misses are in flight at once.
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

// Where to write a batch of B: row-major, one pointer per leaf, in the plan's order. If the plan
// has sequences of T steps, each array has an axis [T] after [B]; observations have [frame_stack]
// after these if that is above 1.
struct TransitionTargets {
  std::span<std::byte* const> obs;
  std::span<std::byte* const> action;
  std::span<std::byte* const> next_obs;
  float* reward = nullptr;
  std::uint8_t* terminated = nullptr;
  float* discount = nullptr;
  std::uint8_t* mask = nullptr;  // only for sequences: 1 for steps that count
  // Only with hindsight: 1 for items with another goal. TransitionGather does not fill it.
  std::uint8_t* hindsight = nullptr;
};

// Keeps its memory from call to call. Not thread-safe.
class TransitionGather {
 public:
  // Requires pinned items of that plan. DATA_LOSS if they are not.
  Status gather(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                const TransitionTargets& targets);

 private:
  // The rows of an item in one column: `split` of them at `first`, the others at `second`.
  struct Rows {
    const std::byte* first = nullptr;   // the column's row 0
    const std::byte* second = nullptr;  // row 0 in the second chunk; null if there is one chunk
    std::uint32_t offset = 0;           // of the item's first row in its chunk
    std::uint32_t split = 0;
    ItemShape shape;
    bool first_is_raw = true;  // whether that chunk is raw; else it is encoded
    bool second_is_raw = true;
  };

  // Finds the small columns' rows. Keeps chunks raw that may be encoded, until the end.
  Status find(const TransitionPlan& plan, std::span<const TrajectoryView> items);
  // The small columns of a chunk, and whether its rows are raw. Null for a chunk of another
  // plan.
  const std::byte* small_rows(const TransitionPlan& plan, const Chunk& chunk, bool& is_raw);
  // The rows of a large column of item i; decoded rows are valid until the next call.
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
  std::vector<RawRows> raw_;  // of chunks that may be encoded meanwhile
  ColumnDecoder decoder_;
  std::vector<std::byte> decoded_;
  std::vector<double> powers_;  // of gamma
};

}  // namespace reverie
