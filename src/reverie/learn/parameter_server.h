// ParameterServer: gradients of several learners in, versions of weights out.
//
//     synchronous     learner 0 --g--\                       all wait for the last; then each takes
//                     learner 1 --g---+-- mean -- step --> v+1   the step for a part of the weights
//
//     asynchronous    learner 0 --g-- step --> v+1            a step for each gradient, on weights
//                     learner 1 --------g-- step --> v+2      that may have moved: its staleness
//
// Actors read the policy as whole versions, without a lock; so do asynchronous learners.
// Synchronous ones read the agent itself, which does not change while they compute.
//
// Sources: Li et al. 2014; "Parallel Actors and Learners" IV-C, which leaves the aggregation open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/published_networks.h"
#include "reverie/learn/weights_source.h"

namespace reverie {

struct ParameterServerOptions {
  std::size_t learner_count = 1;
  // Other threads that read the policy, numbered from 0.
  std::size_t reader_count = 1;
  bool asynchronous = false;
  std::uint64_t staleness_max = 8;
  bool shrink_stale_steps = false;
  // Steps between two publications; 1 if asynchronous.
  std::uint64_t publish_interval = 1;
};

class ParameterServer {
 public:
  struct Counts {
    std::uint64_t steps = 0;    // of the agent
    std::uint64_t dropped = 0;  // gradients that were too stale
    double staleness_mean = 0;  // of the gradients that were used
    std::uint64_t staleness_max = 0;
  };

  // `agent` outlives it, and nothing else may use it until the learners have ended.
  ParameterServer(Agent& agent, const ParameterServerOptions& options);

  // The weights for the learner's next gradient; valid until its submit().
  WeightsView weights(std::size_t learner);
  // Takes the gradient of a batch, which was computed at `version`. Synchronous: waits for the
  // other learners. False if it was too stale and dropped. CANCELLED after stop(); else the error
  // of Agent::step(), for every learner of the round.
  Result<bool> submit(std::size_t learner, Gradients& gradients, std::uint64_t version,
                      double progress);

  // The latest policy, for the thread of that reader; valid until its next call.
  nn::PublishedParameters::Version policy(std::size_t reader) {
    return published_.acquire_policy(reader);
  }
  Counts counts() const;
  // Saves the counts, for checkpoints. Requires that no learner is running.
  void save(ByteWriter& out) const;
  Status load(ByteReader& in);
  // Ends all current and future submit() calls.
  void stop();

 private:
  Result<bool> submit_to_round(std::size_t learner, Gradients& gradients, double progress);
  Result<bool> submit_alone(Gradients& gradients, std::uint64_t version, double progress)
      REVERIE_REQUIRES(mutex_);
  // A learner's part of a full round.
  Status step_together(std::size_t learner, std::uint64_t number, double progress);
  // Counts a step that was taken with so many gradients, and publishes the weights when due.
  void end_step(std::size_t gradient_count) REVERIE_REQUIRES(mutex_);
  // Sets a counter of rounds, and wakes those that wait for it.
  void reach(std::atomic<std::uint64_t>& counter, std::uint64_t number) REVERIE_REQUIRES(mutex_);
  // Waits until `counter` is at least `number`; `may_stop`: or the server is stopped. Whether it
  // is.
  bool wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t number, bool may_stop)
      REVERIE_EXCLUDES(mutex_);
  // Puts a part of the mean of the round into its first gradients.
  void average(nn::Part part);

  Agent& agent_;
  const ParameterServerOptions options_;
  const int spins_;  // of a learner that waits for the others, before it sleeps
  PublishedNetworks published_;
  mutable Mutex mutex_;
  CondVar changed_;
  // The current round, by learner: what was submitted, and the squares of the mean's part, by
  // network. Each learner sets its own, and reads the others' once all have come that far; so they
  // need no lock, at which all learners would meet at once.
  std::vector<Gradients*> round_;
  std::vector<std::vector<double>> square_sums_;
  // How many learners have submitted, averaged their part, and taken its step. Rounds are numbered
  // from 1; the other counters hold the last one that all learners have come so far with.
  std::size_t submitted_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::atomic<std::size_t> averaged_{0};
  std::atomic<std::size_t> stepped_{0};
  std::atomic<std::uint64_t> full_round_{0};
  std::atomic<std::uint64_t> averaged_round_{0};
  std::atomic<std::uint64_t> finished_round_{0};
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> has_failed_{false};
  Status failure_ REVERIE_GUARDED_BY(mutex_);
  Counts counts_ REVERIE_GUARDED_BY(mutex_);
  double staleness_sum_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::uint64_t used_ REVERIE_GUARDED_BY(mutex_) = 0;
};

// The policy for one of the server's readers.
class PublishedPolicy final : public WeightsSource {
 public:
  // `server` outlives it.
  PublishedPolicy(ParameterServer& server, std::size_t reader) : server_(server), reader_(reader) {}
  Result<nn::PublishedParameters::Version> newest() override { return server_.policy(reader_); }

 private:
  ParameterServer& server_;
  const std::size_t reader_;
};

}  // namespace reverie
