// Tested in q_agent_test.cc and continuous_agents_test.cc.
#include "reverie/agents/optimizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reverie/codec/byte_arrays.h"
#include "reverie/learn/loops.h"

namespace reverie {
namespace {

// Includes the padding, which is 0.
Status load_floats(ByteReader& in, nn::Parameters& into) {
  const std::vector<float> floats = read_array<float>(in);
  if (floats.size() != into.float_count()) {
    return data_loss("a network of {} numbers is given {}", into.float_count(), floats.size());
  }
  std::ranges::copy(floats, into.data());
  return {};
}

}  // namespace

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
  // The schedule may end at 0; then no step is taken.
  if (rate == 0) return {};
  REVERIE_RETURN_IF_ERROR(adam_.set_learning_rate(rate));
  const double scale = norm_max_ > 0 ? nn::clip_scale(norm, norm_max_) : 1.0;
  adam_.step(gradient, static_cast<float>(scale), parameters);
  return {};
}

void Optimizer::save(ByteWriter& out) const {
  write_array<float>(adam_.mean().span(), out);
  write_array<float>(adam_.square().span(), out);
  out.u64(adam_.step_count());
}

Status Optimizer::load(ByteReader& in) {
  nn::Parameters mean = mlp_.make_parameters();
  nn::Parameters square = mlp_.make_parameters();
  REVERIE_RETURN_IF_ERROR(load_floats(in, mean));
  REVERIE_RETURN_IF_ERROR(load_floats(in, square));
  adam_.restore(mean, square, in.u64());
  return {};
}

void save_agent(std::uint64_t version, std::span<const nn::Parameters* const> networks,
                std::span<const Optimizer> optimizers, ByteWriter& out) {
  out.u64(version);
  for (const nn::Parameters* const network : networks) write_array<float>(network->span(), out);
  for (const Optimizer& optimizer : optimizers) optimizer.save(out);
}

Status load_agent(std::uint64_t& version, std::span<nn::Parameters* const> networks,
                  std::span<Optimizer> optimizers, ByteReader& in) {
  version = in.u64();
  for (nn::Parameters* const network : networks) {
    REVERIE_RETURN_IF_ERROR(load_floats(in, *network));
  }
  for (Optimizer& optimizer : optimizers) REVERIE_RETURN_IF_ERROR(optimizer.load(in));
  return check_done(in, "the agent");
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
