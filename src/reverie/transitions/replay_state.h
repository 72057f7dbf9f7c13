// The state of a replay buffer besides the items of its table: its options, and the streams of its
// writers. A checkpoint of the store has the items; with both, a buffer continues as the saved one
// would have.
//
//     save   write_replay_state(buffers, out, save_store)   streams are held while both are written
//     load   read_replay_plan(in)                           to open buffers alike
//            restore_replay(buffers, in, items)             before the table gets the items
//
// The format is in docs/formats/checkpoint.md.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/record/trajectory.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

// What a buffer is made with.
struct ReplayPlan {
  TransitionOptions options;
  std::vector<TensorSpec> obs;
  std::vector<TensorSpec> action;

  static ReplayPlan of(const TransitionPlan& plan) {
    return {plan.options(),
            {plan.obs().begin(), plan.obs().end()},
            {plan.action().begin(), plan.action().end()}};
  }
  friend bool operator==(const ReplayPlan&, const ReplayPlan&) = default;
};

// Appends the state of all buffers of one table, the first and those beside() it, and then calls
// `save_store`, which writes the table; adds wait until it returns. Every row that an item refers
// to is published then. Returns what `save_store` returns.
Status write_replay_state(std::span<ReplayBuffer* const> buffers, std::vector<std::byte>& out,
                          const std::function<Status()>& save_store);

// Reads the first part of a state. DATA_LOSS if it is malformed.
Result<ReplayPlan> read_replay_plan(ByteReader& in);

// How many buffers were saved, from what read_replay_plan() leaves; 0 if it is malformed.
std::size_t saved_buffer_count(ByteReader in, const TransitionOptions& options);

// Restores the rest into at least as many buffers, which no thread uses yet and whose tables are
// empty; further buffers stay as they are. `items`, the checkpoint's items of each table, are
// changed to the buffers' own layout and chunks. Empty ones stay empty. DATA_LOSS for a state that
// no buffer of this plan can have written, INVALID_ARGUMENT for too few buffers.
Status restore_replay(std::span<ReplayBuffer* const> buffers, ByteReader& in,
                      std::span<const std::span<Trajectory>> items);

}  // namespace reverie
