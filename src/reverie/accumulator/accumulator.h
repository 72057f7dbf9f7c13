// Accumulator: sums the gradients of all members of a group once there are enough samples. The part
// of reverie.Accumulator without Python; see docs/concepts/groups.md.
//
//     contribute(arrays) --> sums of the open round --(the leader calls)--> sum over the group
//     update()           <-- results in order, and the leader's model where it is needed
//
// A thin shell around AccumulatorCore: a lock, a thread for its timers, and the sums. Rounds begin
// and end, and leaders are elected, while the program computes; update() shows the results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/accumulator/accumulator_core.h"
#include "reverie/base/status.h"
#include "reverie/group/group.h"
#include "reverie/reduce/reduce_layout.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe, but only one thread at a time may contribute. In a forked child each call gives
// FAILED_PRECONDITION, or does nothing.
class Accumulator {
 public:
  struct Options {
    std::string name;  // the same on all members of the group
    std::string average;
    std::vector<std::string> signature;  // of parameters and buffers, for messages too
    // The gradients: names, types and shapes, without bytes.
    std::vector<ReduceLeaf> gradients;
  };
  struct Sum {
    std::shared_ptr<GroupRound> round;  // array 0 has the counts, the gradients follow
    AccumulatorCore::Counts totals;
  };
  // What the program sees until the next update().
  struct View {
    std::string leader;  // empty: none
    bool is_connected = false;
    bool wants_gradients = false;
    bool wants_state = false;  // others need this member's model: give_state()
    std::uint64_t version = 0;
    std::optional<Payload> state;  // of another member's model, to be adopted
    std::optional<Sum> sum;        // to take a step with; never together with a state
  };

  // ALREADY_EXISTS if the peer has one with this name in this group.
  static Result<std::unique_ptr<Accumulator>> make(std::shared_ptr<Peer> peer,
                                                   std::shared_ptr<Group> group,
                                                   const Options& options);
  ~Accumulator();
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  // Also reports to the group that the program advances. If `is_busy`, the program has a result to
  // take a step with, and gets no other and no state.
  // INVALID_ARGUMENT if its model differs from the leader's.
  Result<View> update(bool is_busy);
  // Adds `gradients` times `weight` to the open round, and `samples` to its count. Described by
  // Options::gradients; they are copied. They are lost if there is no leader, or if the group
  // changes before their round has ended.
  Status contribute(std::uint64_t samples, std::span<const ReduceLeaf> gradients,
                    std::uint64_t weight = 1);
  // Gives the model's state to the members that View::wants_state is about; the leader can also
  // give it to all. INVALID_ARGUMENT if it is too large for a message.
  Status give_state(const Payload& value, bool to_all);
  void set_version(std::uint64_t version);
  void set_virtual_batch_size(std::uint64_t size);
  void set_parallel(std::size_t count);
  std::string why_waiting() const;
  // Leaves the group's rounds. Idempotent. Not on the peer's I/O thread.
  void close();

  class Impl;

 private:
  Accumulator(std::shared_ptr<Peer> peer, std::shared_ptr<Group> group, std::shared_ptr<Impl> impl,
              std::uint64_t listener);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Impl> impl_;
  const std::uint64_t listener_;
};

}  // namespace reverie
