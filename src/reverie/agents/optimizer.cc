// Tested in q_agent_test.cc and continuous_agents_test.cc.
#include "reverie/agents/optimizer.h"

#include <algorithm>
#include <array>
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

Result<double> Optimizer::check(const nn::Parameters& gradient, double square_sum) const {
  Result<double> norm = nn::gradient_norm(mlp_, gradient, square_sum);
  if (!norm.ok()) return norm.status().with_context(name_);
  return norm;
}

void Optimizer::begin_step(double norm, double progress, double step_scale) {
  const double rate = learning_rate_ * (1.0 - progress * (1.0 - last_share_)) * step_scale;
  is_idle_ = rate == 0;  // the schedule may end at 0
  if (is_idle_) return;
  REVERIE_CHECK(adam_.set_learning_rate(rate).ok());
  const double scale = norm_max_ > 0 ? nn::clip_scale(norm, norm_max_) : 1.0;
  adam_.begin_step(static_cast<float>(scale));
}

void Optimizer::step_part(const nn::Parameters& gradient, nn::Part part,
                          nn::Parameters& parameters) {
  if (!is_idle_) adam_.step_part(gradient, part, parameters);
}

Status begin_steps(const Gradients& gradients, std::span<const double> square_sums, double progress,
                   double step_scale, std::span<Optimizer> optimizers) {
  std::array<double, 8> norms{};
  REVERIE_CHECK(optimizers.size() <= norms.size());
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    if (gradients.is_present[i] == 0) continue;
    REVERIE_ASSIGN_OR_RETURN(norms[i], optimizers[i].check(gradients.networks[i], square_sums[i]));
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    if (gradients.is_present[i] != 0) optimizers[i].begin_step(norms[i], progress, step_scale);
  }
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

bool follows(const TrainSettings& settings, std::uint64_t version) {
  return settings.tau > 0 || version % settings.target_interval == 0;
}

void follow(const TrainSettings& settings, std::uint64_t version, const nn::Parameters& online,
            nn::Part part, nn::Parameters& target) {
  if (!follows(settings, version)) return;
  if (settings.tau > 0) {
    nn::polyak_average(online, static_cast<float>(settings.tau), target, part);
    return;
  }
  const auto [begin, end] = part.of(online.float_count());
  std::copy_n(online.data() + begin, end - begin, target.data() + begin);
}

std::uint64_t derived_weights_seed(const TrainSettings& settings) {
  return derived_seed(*settings.seed, SeedUse::kWeights);
}

}  // namespace reverie
