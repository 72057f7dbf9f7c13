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
// was silent for a while loses it, and so does one whose peer is not connected if there is no
// other; the next actor's steps there do not continue its episodes.
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
  // A number that is drawn for each object. Actors get it when they join, and their reports carry
  // it: UNAVAILABLE for another object's, as of a learner that was started again meanwhile.
  std::uint64_t run() const;
  // Tells all connected peers that the training is over (kTrainingEndFunction), and the actors in
  // answers to their reports. Waits until they know, but at most 1 s. Idempotent.
  void close();

  class Impl;

 private:
  ServedActors(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
