// What every algorithm does with a gradient: refuse NaN, clip the norm, take an Adam step; and how
// target networks follow.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/train_settings.h"
#include "reverie/nn/adam.h"
#include "reverie/nn/mlp.h"
#include "reverie/nn/parameters.h"

namespace reverie {

// Adam for one network, with the schedule and the bound of the settings. Not thread-safe.
class Optimizer {
 public:
  // `name` is for messages: "the critic". INVALID_ARGUMENT as nn::Adam::make.
  static Result<Optimizer> make(const nn::Mlp& mlp, std::string name, double learning_rate,
                                const TrainSettings& settings);

  // Whether a step with this gradient can be taken: its norm. INVALID_ARGUMENT, naming network and
  // layer, if it has a NaN or infinity. Changes nothing.
  Result<double> check(const nn::Parameters& gradient, double square_sum) const;
  // One step, as Agent::begin_step() and step_part(). Requires the norm from check().
  void begin_step(double norm, double progress, double step_scale);
  void step_part(const nn::Parameters& gradient, nn::Part part, nn::Parameters& parameters);

  // Saves and loads the moments. DATA_LOSS for those of another network.
  void save(ByteWriter& out) const;
  Status load(ByteReader& in);

 private:
  Optimizer(const nn::Mlp& mlp, std::string name, const TrainSettings& settings, nn::Adam adam);

  nn::Mlp mlp_;
  std::string name_;
  double learning_rate_;
  double last_share_;
  double norm_max_;  // 0: no bound
  nn::Adam adam_;
  bool is_idle_ = false;  // the schedule is at 0, which means no step at all
};

// begin_step() of the optimisers whose gradients are present; checks all of them first.
Status begin_steps(const Gradients& gradients, std::span<const double> square_sums, double progress,
                   double step_scale, std::span<Optimizer> optimizers);

// Whether the target network changes after step number `version`: by a copy every target_interval
// steps, or by a share tau of the way at each. And the change of a part of it.
bool follows(const TrainSettings& settings, std::uint64_t version);
void follow(const TrainSettings& settings, std::uint64_t version, const nn::Parameters& online,
            nn::Part part, nn::Parameters& target);

// Agent::save() and load() for an agent that consists of networks, their optimisers and a version.
void save_agent(std::uint64_t version, std::span<const nn::Parameters* const> networks,
                std::span<const Optimizer> optimizers, ByteWriter& out);
Status load_agent(std::uint64_t& version, std::span<nn::Parameters* const> networks,
                  std::span<Optimizer> optimizers, ByteReader& in);

// The seed of the initial weights. Requires settings with a seed.
std::uint64_t derived_weights_seed(const TrainSettings& settings);

}  // namespace reverie
