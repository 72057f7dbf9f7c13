// LearnerLoop: one learner's batches, from the draw to the new priorities.
//
//     replay --> batch --> Learner (weights handed in) --> gradients --> holder of the weights
//       ^------------------ |TD error| + epsilon -----------'
//
// It has no thread, and does not wait: a replay without items is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/train_settings.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

// Not thread-safe.
class LearnerLoop {
 public:
  LearnerLoop(const TrainSettings& settings, const Agent& agent,
              std::shared_ptr<ReplayBuffer> replay, std::uint64_t seed);

  // Draws a batch; `progress` is the share of the training that is over, for beta.
  Status sample(double progress);
  // The gradients of that batch at `weights`.
  Gradients& learn(const WeightsView& weights);
  // INVALID_ARGUMENT for an infinite TD error that the Huber loss hides from the gradients; any
  // other number that is not finite is in these too, and found by the agent's step.
  Status check_errors() const;
  // Sets the priorities of the batch to the TD errors. Does nothing if draws are uniform.
  Status update_priorities();

  // Called between two batches.
  void save(ByteWriter& out) const;
  Status load(ByteReader& in);

 private:
  const TrainSettings& settings_;
  std::shared_ptr<ReplayBuffer> replay_;
  TransitionBatch batch_;
  std::unique_ptr<Learner> learner_;
  Gradients gradients_;
  Random random_;
  std::vector<double> priorities_;
};

}  // namespace reverie
