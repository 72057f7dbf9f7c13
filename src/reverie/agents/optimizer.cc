// Tested in q_agent_test.cc and continuous_agents_test.cc.
#include "reverie/agents/optimizer.h"

#include <utility>

#include "reverie/learn/loops.h"

namespace reverie {

Optimizer::Optimizer(const nn::Mlp& mlp, std::string name, const TrainSettings& settings,
                     nn::Adam adam)
    : mlp_(mlp),
      name_(std::move(name)),
      learning_rate_(adam.options().learning_rate),
      last_share_(settings.learning_rate_last_share),
      norm_max_(settings.gradient_norm_max),
      adam_(std::move(adam)) {}

Result<Optimizer> Optimizer::make(const nn::Mlp& mlp, std::string name, double learning_rate,
                                  const TrainSettings& settings) {
  nn::AdamOptions options;
  options.learning_rate = learning_rate;
  options.epsilon = settings.adam_epsilon;
  REVERIE_ASSIGN_OR_RETURN(nn::Adam adam, nn::Adam::make(mlp, options));
  return Optimizer(mlp, std::move(name), settings, std::move(adam));
}

Result<double> Optimizer::check(const nn::Parameters& gradient) const {
  Result<double> norm = nn::gradient_norm(mlp_, gradient);
  if (!norm.ok()) return norm.status().with_context(name_);
  return norm;
}

Status Optimizer::step(const nn::Parameters& gradient, double progress, double step_scale,
                       nn::Parameters& parameters) {
  REVERIE_ASSIGN_OR_RETURN(const double norm, check(gradient));
  const double rate = learning_rate_ * (1.0 - progress * (1.0 - last_share_)) * step_scale;
  // The schedule may end at 0, which means no step at all.
  if (rate == 0) return {};
  REVERIE_RETURN_IF_ERROR(adam_.set_learning_rate(rate));
  const double scale = norm_max_ > 0 ? nn::clip_scale(norm, norm_max_) : 1.0;
  adam_.step(gradient, static_cast<float>(scale), parameters);
  return {};
}

void follow(const TrainSettings& settings, std::uint64_t version, const nn::Parameters& online,
            nn::Parameters& target) {
  if (settings.tau > 0) {
    nn::polyak_average(online, static_cast<float>(settings.tau), target);
  } else if (version % settings.target_interval == 0) {
    target.assign(online);
  }
}

std::uint64_t derived_weights_seed(const TrainSettings& settings) {
  return derived_seed(*settings.seed, SeedUse::kWeights);
}

}  // namespace reverie
