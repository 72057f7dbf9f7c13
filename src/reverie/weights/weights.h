// Weights by version: one peer publishes them, others take the newest when they want it.
//
//     learner   publish(7)  -->  [ memory of version 7 ]  <-- mapped --  actors on this host
//                                          |
//                                          +---- sent, if asked for --> an actor elsewhere
//
// Each version lies in memory of its own, which is not written again while any peer holds it: so
// what a peer has is one version, whole, for as long as it holds it. On one host it is mapped, not
// copied; a page that a holder writes to becomes its own. Every peer that has a version serves it:
// a peer that comes late, or whose publisher has died, gets it from any peer that it names as a
// source or is connected to. Peers to which it has to be sent form a tree by themselves
// (weights_core.h), and get only what has changed where that is less than half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/rpc/peer.h"
#include "reverie/weights/held_version.h"

namespace reverie {

// Thread-safe. After a fork each call in the child gives FAILED_PRECONDITION.
class Weights {
 public:
  using VersionPtr = std::shared_ptr<const WeightsVersion>;
  struct Options {
    std::string name;  // the same on all that take part
    // Peers to ask, in this order; the first that can be reached answers.
    std::vector<std::string> sources;
    bool uses_shared_memory = true;
  };

  // ALREADY_EXISTS where the peer has weights of this name.
  static Result<std::unique_ptr<Weights>> make(std::shared_ptr<Peer> peer, const Options& options);
  // Not on the peer's I/O thread.
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Copies the value, and answers the peers that wait. INVALID_ARGUMENT unless `version` is above
  // the one that this peer has; RESOURCE_EXHAUSTED without memory.
  Status publish(std::uint64_t version, const Payload& value);
  // What this peer has; null for nothing.
  VersionPtr held() const;
  // Asks for what is newer than that; gives what this peer has then, null if there is none yet.
  // UNAVAILABLE when no source can be reached. `is_interrupted` is asked now and then, on this
  // thread: where it says so, the call ends with CANCELLED.
  Result<VersionPtr> pull(TimePoint deadline, const std::function<bool()>& is_interrupted = {});
  // Waits until there is a version of at least this one. DEADLINE_EXCEEDED if none comes in time.
  Result<VersionPtr> wait_for(std::uint64_t at_least, TimePoint deadline,
                              const std::function<bool()>& is_interrupted = {});
  // Neither asks nor serves any more. Idempotent.
  void close();

  class Impl;

 private:
  Weights(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
