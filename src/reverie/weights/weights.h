// Weights: one peer publishes versions of weights, others take the newest when they want it.
//
//     learner   publish(7)  -->  [ memory of version 7 ]  <-- mapped --  actors on this host
//                                          |
//                                          +---- sent, if asked for --> an actor elsewhere
//
// A publisher that is restarted may continue from a lower version: any version of its new run is
// newer than those of its earlier ones, by the calendar of its host when its Weights were made.
//
// Each version has its own memory, which is not written again while any peer holds it: so a peer
// has one whole version for as long as it holds it. On one host it is mapped, not copied; a page
// that a holder writes to becomes private. Every peer that has a version serves it: a peer that
// joins late, or whose publisher has died, gets it from any peer that it names as a source or is
// connected to. Peers to which it must be sent form a tree by themselves (weights_core.h), and get
// only the changes if these are at most half.
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

// Thread-safe. In a forked child each call gives FAILED_PRECONDITION, or nothing and without effect
// if it returns no status.
class Weights {
 public:
  using VersionPtr = std::shared_ptr<const WeightsVersion>;
  struct Options {
    std::string name;  // the same on all participants
    // Peers to ask, in this order; the first reachable one answers.
    std::vector<std::string> sources;
    bool uses_shared_memory = true;
  };

  // ALREADY_EXISTS if the peer has weights with this name.
  static Result<std::unique_ptr<Weights>> make(std::shared_ptr<Peer> peer, const Options& options);
  // Not on the peer's I/O thread.
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Copies the value, and answers the waiting peers. INVALID_ARGUMENT unless `version` is above
  // this peer's; RESOURCE_EXHAUSTED if there is no memory; CANCELLED once closed.
  Status publish(std::uint64_t version, const Payload& value);
  // The version that this peer has, and serves; null if it has none.
  VersionPtr held() const;
  // The same in memory that only the caller uses, and may write to: mapped once more, or copied.
  // RESOURCE_EXHAUSTED if there is no memory.
  Result<VersionPtr> own_copy() const;
  // Asks for a newer version; returns what this peer has then, null if there is none yet. Its
  // number is lower than that of the version before if the publisher was restarted with a lower
  // one. UNAVAILABLE if no source can be reached. `is_interrupted` is called periodically on this
  // thread; true ends the call with CANCELLED.
  Result<VersionPtr> pull(TimePoint deadline, const std::function<bool()>& is_interrupted = {});
  // Waits for a version >= `at_least`, or, if this peer has a version, for any of a later run of
  // the publisher. DEADLINE_EXCEEDED if none arrives in time.
  Result<VersionPtr> wait_for(std::uint64_t at_least, TimePoint deadline,
                              const std::function<bool()>& is_interrupted = {});
  // Stops asking and serving. Idempotent.
  void close();

  class Impl;

 private:
  Weights(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
