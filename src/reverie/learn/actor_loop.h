// ActorLoop: one actor's environments, policy and stream into a replay buffer, or a report to one.
//
//     obs --> policy (weights handed in) --> actions --> environments --> sink
//
// It has no thread and never waits: that is up to the caller of step().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/learn/actor_envs.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/return_log.h"
#include "reverie/learn/step_sink.h"

namespace reverie {

// Not thread-safe.
class ActorLoop {
 public:
  // `log` outlives it. Requires a sink for as many environments as `envs` has.
  ActorLoop(std::unique_ptr<ActorEnvs> envs, std::unique_ptr<Policy> policy,
            std::unique_ptr<StepSink> sink, ReturnLog& log, std::uint64_t seed);

  std::size_t env_count() const { return envs_->count(); }

  // One step of each environment, after `step_number` steps of all actors. The first call resets
  // them. INVALID_ARGUMENT for an observation or reward that is not finite; else the error of the
  // environments or the sink. Only after the sink's was the step taken; after another error save()
  // saves the state before it, and step() must not be called again.
  Status step(const nn::Parameters& weights, std::uint64_t step_number);

  // Saves everything except the buffer, between two steps. Errors: the environments', or DATA_LOSS.
  Status save(ByteWriter& out) const;
  Status load(ByteReader& in);

 private:
  // Checks everything that the last step gave.
  Status check_step() const;
  void count_episodes(std::uint64_t step_number);

  std::unique_ptr<ActorEnvs> envs_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<StepSink> sink_;
  ReturnLog& log_;
  Random random_;
  bool is_begun_ = false;
  bool is_untaken_ = false;      // the last step
  std::vector<float> obs_;       // before the step
  std::vector<float> next_obs_;  // after it; the final one if an episode ended
  std::vector<std::byte> actions_;
  Shape obs_shape_;
  Shape action_shape_;
  std::vector<double> returns_;  // of the current episodes
  std::vector<std::uint64_t> lengths_;
};

}  // namespace reverie
