// CriticPass: one thread's memory to compute values of observations and actions, and the values'
// gradients for either network.
//
//     [obs | action]  -> critic -> Q        Q's gradient -> critic's parameters, or -> action
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reverie/learn/agent.h"
#include "reverie/learn/transition_batch.h"
#include "reverie/nn/mlp.h"

namespace reverie {

// The critic's shape. INVALID_ARGUMENT as nn::Mlp::make.
Result<nn::Mlp> make_critic(const AgentSpec& spec, const std::vector<std::size_t>& hidden);

// Not thread-safe.
class CriticPass {
 public:
  CriticPass(const nn::Mlp& critic, std::size_t action_width, std::size_t batch_size);

  // Q of each row; `actions` are rows without gaps, in [-1, 1]. Valid until the next call.
  std::span<const float> values(const nn::Parameters& critic, nn::ConstMatrix obs,
                                std::span<const float> actions);
  // After values(): the gradient of a loss whose derivative in each value is given.
  void backward(const nn::Parameters& critic, std::span<const float> derivatives,
                nn::Parameters& gradient);
  // After values(): adds that loss's gradient in the actions to `gradient`.
  void add_action_gradient(const nn::Parameters& critic, std::span<const float> derivatives,
                           std::span<float> gradient);

 private:
  void put(std::span<const float> derivatives);

  std::size_t obs_width_;
  std::size_t action_width_;
  nn::MlpPass pass_;
  std::vector<float> inputs_;
  std::vector<float> values_;
};

// The weighted regression of a critic to its targets: fills `derivatives` with those of mean(w *
// Huber(value - target)) in each value, adds |value - target| times `share` to `td_errors`, and
// returns the loss. Requires a delta above 0 and spans of one length.
double regress(std::span<const float> values, std::span<const float> targets,
               std::span<const float> weights, float huber_delta, float share,
               std::span<float> derivatives, std::span<float> td_errors);

}  // namespace reverie
