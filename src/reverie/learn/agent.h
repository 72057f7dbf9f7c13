// The parts of an algorithm: one loop serves all algorithms.
//
//     Policy    one actor's thread     observations -> actions
//     Learner   one learner's thread   a batch -> gradients and TD errors
//     Agent     the parameter server   a gradient -> new weights; targets and optimisers
//                                      Policy and Learner get the weights that they use.
//
// Neither a policy nor a learner changes weights: so actors read while learners compute, gradients
// of several learners can be added, and the holder of the Agent decides when to take a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/learn/transition_batch.h"
#include "reverie/nn/mlp.h"
#include "reverie/nn/parameters.h"

namespace reverie {

// All networks of an agent, at one version. The policy's is the first.
struct WeightsView {
  std::span<const nn::Parameters* const> networks;
  std::uint64_t version = 0;  // steps taken so far
  // By network, the version at which it last changed. Empty: each changes with every step.
  std::span<const std::uint64_t> changed = {};
};

// Not thread-safe; one for each thread, with memory of its own.
class Policy {
 public:
  virtual ~Policy() = default;

  // One action per row of `obs`, in the environment's form: int64, or float32 of [rows,
  // action_width]. Explores as scheduled after `step` environment steps.
  virtual void act(const nn::Parameters& weights, nn::ConstMatrix obs, std::uint64_t step,
                   Random& random, std::span<std::byte> actions) = 0;
  // The same without exploration.
  virtual void act_greedily(const nn::Parameters& weights, nn::ConstMatrix obs,
                            std::span<std::byte> actions) = 0;
};

// The gradients of one batch.
struct Gradients {
  std::vector<nn::Parameters> networks;  // one per learned network
  // Whether networks[i] has a gradient: some policies learn less often than their critics.
  std::vector<std::uint8_t> is_present;
  std::vector<float> td_errors;  // [B], absolute
  double loss = 0;               // weighted mean over the batch
};

// Not thread-safe; one for each thread, with memory of its own.
class Learner {
 public:
  virtual ~Learner() = default;
  // Overwrites `out`, which Agent::make_gradients() made. Allocates nothing after the first call.
  virtual void learn(const WeightsView& weights, const TransitionBatch& batch, Random& random,
                     Gradients& out) = 0;
};

// By network, the sum of the squares of a part of its gradient; 0 for one that is not present.
std::vector<double> square_sums(const Gradients& gradients, nn::Part part = {});

// Not thread-safe, except for the makers, and for parts of a step.
class Agent {
 public:
  virtual ~Agent() = default;

  virtual const AgentSpec& spec() const = 0;
  // The shape of the policy's network, networks()[0].
  virtual const nn::Mlp& policy_network() const = 0;

  // For batches of up to `row_count_max` rows. Any thread.
  virtual std::unique_ptr<Policy> make_policy(std::size_t row_count_max) const = 0;
  virtual std::unique_ptr<Learner> make_learner(std::size_t batch_size) const = 0;
  virtual Gradients make_gradients(std::size_t batch_size) const = 0;

  // The current weights and targets; valid until the next step().
  virtual WeightsView weights() const = 0;

  // One step of the optimisers, and of the target networks. `progress` is the share of the training
  // that is over, for schedules; `step_scale` multiplies the step and is usually 1.
  // INVALID_ARGUMENT, naming the layer, and no change, if a gradient has a NaN or infinity.
  Status step(const Gradients& gradients, double progress, double step_scale);
  // The same by parts, for several threads: begin_step() by one of them, which gets the sums of the
  // gradients' squares (square_sums()); if it succeeds, each part once, by any thread.
  virtual Status begin_step(const Gradients& gradients, std::span<const double> square_sums,
                            double progress, double step_scale) = 0;
  virtual void step_part(const Gradients& gradients, nn::Part part) = 0;

  // Saves and loads everything that step() changes, for an agent made with the same settings.
  // DATA_LOSS for malformed bytes. UNIMPLEMENTED if an agent cannot be saved.
  virtual Status save(ByteWriter& out) const {
    (void)out;
    return unimplemented("this agent cannot be saved");
  }
  virtual Status load(ByteReader& in) {
    (void)in;
    return unimplemented("this agent cannot be saved");
  }
};

}  // namespace reverie
