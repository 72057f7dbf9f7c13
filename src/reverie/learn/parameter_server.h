// ParameterServer: gradients of several learners in, versions of weights out.
//
//     synchronous     learner 0 --g--\                       all wait for the last; it takes one
//                     learner 1 --g---+-- mean -- step --> v+1   step with the mean
//
//     asynchronous    learner 0 --g-- step --> v+1            a step for each gradient, on weights
//                     learner 1 --------g-- step --> v+2      that may have moved: its staleness
//
// Actors read the policy as whole versions, without a lock; so do asynchronous learners.
// Synchronous ones read the agent itself, which does not change while they compute.
//
// Sources: Li et al. 2014; "Parallel Actors and Learners" IV-C, which leaves the aggregation open.
#pragma once

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
  Result<bool> submit_to_round(std::size_t learner, Gradients& gradients, double progress)
      REVERIE_REQUIRES(mutex_);
  Result<bool> submit_alone(Gradients& gradients, std::uint64_t version, double progress)
      REVERIE_REQUIRES(mutex_);
  Status step(Gradients& gradients, double progress, double scale) REVERIE_REQUIRES(mutex_);
  // Adds the others' gradients to the first one's, in the learners' order, and divides.
  void average() REVERIE_REQUIRES(mutex_);

  Agent& agent_;
  const ParameterServerOptions options_;
  PublishedNetworks published_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Gradients*> round_ REVERIE_GUARDED_BY(mutex_);  // by learner, null before submit()
  std::size_t submitted_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::uint64_t round_number_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ REVERIE_GUARDED_BY(mutex_) = false;
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
