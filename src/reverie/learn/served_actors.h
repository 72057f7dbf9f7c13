// The learner's end of a training whose actors are in other processes or on other hosts.
//
//     actors elsewhere --reports (step_report.h)--> ServedActors --> [ table ] --batches-->
//     learners
//            ^                                           '--> RatioGate
//            '---------- weights channel "policy" <----------'
//
// Actors may come, go and die at any time: the learners use the steps that arrive, and wait if
// there are none. An actor that is ahead of update_interval gets its answer once the learners have
// caught up. If an actor dies, its steps since its last report are lost.
//
// Each actor has a replay buffer of the table, whose streams are its environments. An actor that
// was silent for a while loses it; the next actor's steps there do not continue its episodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "reverie/base/status.h"
#include "reverie/learn/trainer.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe.
class ServedActors {
 public:
  struct Counts {
    std::size_t actors = 0;     // active in the last two seconds, or waiting for an answer
    std::uint64_t reports = 0;  // so far
    std::uint64_t published = 0;
  };

  // Serves on `peer` until close(). The trainer, which has outside_replay()s, outlives it.
  // ALREADY_EXISTS if the peer serves another training; RESOURCE_EXHAUSTED if the system has no
  // thread for it.
  static Result<std::unique_ptr<ServedActors>> open(std::shared_ptr<Peer> peer, Trainer& trainer);
  ~ServedActors();
  ServedActors(const ServedActors&) = delete;
  ServedActors& operator=(const ServedActors&) = delete;

  Counts counts() const;
  // Tells the actors that the training is over, in answers to their reports; waits up to 1 s for the
  // reports of those that are stepping. Idempotent.
  void close();

  class Impl;

 private:
  ServedActors(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
