// What a replay buffer is beside the items of its table: what it was made with, and the streams of
// those that write to it. A checkpoint of the store has the items; with both, a buffer goes on as
// the one that was saved would have.
//
//     save   write_replay_state(buffers, out, save_store)   streams are held while both are written
//     load   read_replay_plan(in)                           to open buffers alike
//            restore_replay(buffers, in, items)             before the table gets the items
//
// docs/formats/checkpoint.md has the bytes.
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

// Appends the state of all ways into one table, the first buffer and those beside() it, and then
// calls `save_store`, which writes the table; adds wait until it returns. Every row that an item
// refers to is published then. Says what `save_store` says.
Status write_replay_state(std::span<ReplayBuffer* const> buffers, std::vector<std::byte>& out,
                          const std::function<Status()>& save_store);

// The first part of a state: DATA_LOSS for what cannot be one.
Result<ReplayPlan> read_replay_plan(ByteReader& in);

// The rest of it, into as many buffers, which no thread uses yet and whose table is empty. `items`,
// those that the checkpoint has for that table, are made the buffers' own: rows lie as theirs do.
// Empty ones stay so. DATA_LOSS for what no buffer of this plan has written, INVALID_ARGUMENT for
// another number of buffers.
Status restore_replay(std::span<ReplayBuffer* const> buffers, ByteReader& in,
                      std::span<Trajectory> items);

}  // namespace reverie
