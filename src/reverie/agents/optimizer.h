// What every algorithm does with a gradient: refuse NaN, clip the norm, take an Adam step; and how
// target networks follow.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
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

  // Whether a step with this gradient can be taken. INVALID_ARGUMENT, naming network and layer, if
  // it has a NaN or infinity. Changes nothing.
  Result<double> check(const nn::Parameters& gradient) const;
  // One step; `progress` and `step_scale` as in Agent::step(). On an error nothing is changed.
  Status step(const nn::Parameters& gradient, double progress, double step_scale,
              nn::Parameters& parameters);

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
};

// Updates the target network after step number `version`: a copy every target_interval steps, or a
// share tau of the way at each.
void follow(const TrainSettings& settings, std::uint64_t version, const nn::Parameters& online,
            nn::Parameters& target);

// Agent::save() and load() for an agent that consists of networks, their optimisers and a version.
void save_agent(std::uint64_t version, std::span<const nn::Parameters* const> networks,
                std::span<const Optimizer> optimizers, ByteWriter& out);
Status load_agent(std::uint64_t& version, std::span<nn::Parameters* const> networks,
                  std::span<Optimizer> optimizers, ByteReader& in);

// The seed of the initial weights. Requires settings with a seed.
std::uint64_t derived_weights_seed(const TrainSettings& settings);

}  // namespace reverie
