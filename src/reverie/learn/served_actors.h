// The learner's end of a training whose actors are in other processes or on other hosts.
//
//     actors elsewhere --reports (step_report.h)--> ServedActors --> [ table ] --batches-->
//     learners
//            ^                                           '--> RatioGate
//            '---------- weights channel "policy" <----------'
//
// Actors come, go and die as they like: the learners take what there is, and wait where there is
// none. An actor that is ahead of update_interval gets its answer when the learners have caught up.
// The steps of an actor that dies are lost from its last report on.
//
// Each actor has a way into the table, whose streams are its environments. One that was silent for
// a while gives it up; what the next one writes there is known not to go on from what was.
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
    std::size_t actors = 0;     // heard of in the last two seconds, or waiting for an answer
    std::uint64_t reports = 0;  // so far
    std::uint64_t published = 0;
  };

  // Serves on `peer` until close(). The trainer, which has places for actors, outlives it.
  // ALREADY_EXISTS where the peer serves another training.
  static Result<std::unique_ptr<ServedActors>> open(std::shared_ptr<Peer> peer, Trainer& trainer);
  ~ServedActors();
  ServedActors(const ServedActors&) = delete;
  ServedActors& operator=(const ServedActors&) = delete;

  Counts counts() const;
  // Actors that wait are told that it is over. Idempotent.
  void close();

  class Impl;

 private:
  ServedActors(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
