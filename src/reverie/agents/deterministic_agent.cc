// Tested in continuous_agents_test.cc.
#include "reverie/agents/deterministic_agent.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "reverie/agents/action_range.h"
#include "reverie/agents/critic_pass.h"
#include "reverie/agents/optimizer.h"
#include "reverie/base/normal.h"
#include "reverie/nn/initializer.h"
#include "reverie/rl/clipped_double_q.h"
#include "reverie/rl/td_target.h"

namespace reverie {
namespace {

// The rows of `from` without their padding.
void pack(nn::ConstMatrix from, std::span<float> to) {
  for (std::size_t row = 0; row < from.rows; ++row) {
    std::copy_n(from.row(row), from.columns, to.data() + row * from.columns);
  }
}

void add_noise(Random& random, double sigma, double noise_max, std::span<float> actions) {
  for (float& action : actions) {
    const double noise = std::clamp(sigma * normal_pair(random).first, -noise_max, noise_max);
    action = std::clamp(action + static_cast<float>(noise), -1.0f, 1.0f);
  }
}

class DeterministicPolicy final : public Policy {
 public:
  DeterministicPolicy(const nn::Mlp& mlp, const ActionRange& range, double sigma,
                      std::uint64_t random_steps, std::size_t row_count_max)
      : range_(range),
        sigma_(sigma),
        random_steps_(random_steps),
        pass_(mlp, row_count_max),
        actions_(row_count_max * range.width()) {}

  void act(const nn::Parameters& weights, nn::ConstMatrix obs, std::uint64_t step, Random& random,
           std::span<std::byte> actions) override {
    const std::span<float> chosen = std::span(actions_).first(obs.rows * range_.width());
    if (step < random_steps_) {
      for (float& action : chosen) action = static_cast<float>(2 * random.uniform() - 1);
    } else {
      pack(pass_.forward(weights, obs), chosen);
      add_noise(random, sigma_, 2.0, chosen);
    }
    range_.to_env(chosen, actions);
  }

  void act_greedily(const nn::Parameters& weights, nn::ConstMatrix obs,
                    std::span<std::byte> actions) override {
    const std::span<float> chosen = std::span(actions_).first(obs.rows * range_.width());
    pack(pass_.forward(weights, obs), chosen);
    range_.to_env(chosen, actions);
  }

 private:
  const ActionRange range_;
  const double sigma_;
  const std::uint64_t random_steps_;
  nn::MlpPass pass_;
  std::vector<float> actions_;
};

struct Shapes {
  nn::Mlp policy;
  nn::Mlp critic;
  ActionRange range;
  std::size_t critic_count;

  std::size_t learned() const { return 1 + critic_count; }
};

class DeterministicLearner final : public Learner {
 public:
  DeterministicLearner(const Shapes& shapes, const TrainSettings& settings, std::size_t batch_size)
      : shapes_(shapes),
        settings_(settings),
        policy_pass_(shapes.policy, batch_size),
        critic_pass_(shapes.critic, shapes.range.width(), batch_size),
        actions_(batch_size * shapes.range.width()),
        action_gradient_(actions_.size()),
        next_values_(shapes.critic_count, std::vector<float>(batch_size)),
        targets_(batch_size),
        derivatives_(batch_size) {}

  void learn(const WeightsView& weights, const TransitionBatch& batch, Random& random,
             Gradients& out) override {
    compute_targets(weights, batch, random);
    learn_critics(weights, batch, out);
    const bool updates_policy = (weights.version + 1) % settings_.policy_delay == 0;
    out.is_present[0] = updates_policy ? 1 : 0;
    if (updates_policy) learn_policy(weights, batch, out.networks[0]);
  }

 private:
  void compute_targets(const WeightsView& weights, const TransitionBatch& batch, Random& random) {
    const std::size_t targets = shapes_.learned();
    pack(policy_pass_.forward(*weights.networks[targets], batch.next_obs()), actions_);
    if (settings_.target_noise > 0) {
      add_noise(random, settings_.target_noise, settings_.target_noise_max, actions_);
    }
    for (std::size_t critic = 0; critic < shapes_.critic_count; ++critic) {
      const std::span<const float> values =
          critic_pass_.values(*weights.networks[targets + 1 + critic], batch.next_obs(), actions_);
      std::ranges::copy(values, next_values_[critic].begin());
    }
    if (shapes_.critic_count == 1) {
      td_targets(batch.rewards(), batch.discounts(), next_values_[0], targets_);
    } else {
      clipped_double_q_targets(batch.rewards(), batch.discounts(), next_values_[0], next_values_[1],
                               targets_);
    }
  }

  void learn_critics(const WeightsView& weights, const TransitionBatch& batch, Gradients& out) {
    shapes_.range.from_env(batch.continuous_actions(), actions_);
    std::ranges::fill(out.td_errors, 0.0f);
    out.loss = 0;
    const float share = 1.0f / static_cast<float>(shapes_.critic_count);
    for (std::size_t critic = 1; critic <= shapes_.critic_count; ++critic) {
      const nn::Parameters& parameters = *weights.networks[critic];
      const std::span<const float> values = critic_pass_.values(parameters, batch.obs(), actions_);
      out.loss +=
          regress(values, targets_, batch.weights(), static_cast<float>(settings_.huber_delta),
                  share, derivatives_, out.td_errors);
      critic_pass_.backward(parameters, derivatives_, out.networks[critic]);
      out.is_present[critic] = 1;
    }
  }

  void learn_policy(const WeightsView& weights, const TransitionBatch& batch,
                    nn::Parameters& gradient) {
    const nn::Parameters& policy = *weights.networks[0];
    pack(policy_pass_.forward(policy, batch.obs()), actions_);
    (void)critic_pass_.values(*weights.networks[1], batch.obs(), actions_);
    std::ranges::fill(derivatives_, -1.0f / static_cast<float>(batch.size()));
    std::ranges::fill(action_gradient_, 0.0f);
    critic_pass_.add_action_gradient(*weights.networks[1], derivatives_, action_gradient_);
    const nn::Matrix outputs = policy_pass_.output_gradient();
    for (std::size_t row = 0; row < outputs.rows; ++row) {
      std::copy_n(action_gradient_.data() + row * outputs.columns, outputs.columns,
                  outputs.row(row));
    }
    policy_pass_.backward(policy, gradient);
  }

  const Shapes shapes_;
  const TrainSettings settings_;
  nn::MlpPass policy_pass_;
  CriticPass critic_pass_;
  std::vector<float> actions_;
  std::vector<float> action_gradient_;
  std::vector<std::vector<float>> next_values_;
  std::vector<float> targets_;
  std::vector<float> derivatives_;
};

class DeterministicAgent final : public Agent {
 public:
  DeterministicAgent(const AgentSpec& spec, const TrainSettings& settings, Shapes shapes,
                     std::vector<Optimizer> optimizers)
      : spec_(spec),
        settings_(settings),
        shapes_(std::move(shapes)),
        optimizers_(std::move(optimizers)) {
    Random random(derived_weights_seed(settings));
    const std::size_t learned = shapes_.learned();
    for (std::size_t i = 0; i < learned; ++i) {
      parameters_.push_back(mlp(i).make_parameters());
      nn::initialize_uniform(mlp(i), random, parameters_.back());
    }
    for (std::size_t i = 0; i < learned; ++i) parameters_.push_back(parameters_[i].copy());
    for (const nn::Parameters& parameters : parameters_) networks_.push_back(&parameters);
  }
  DeterministicAgent(const DeterministicAgent&) = delete;
  DeterministicAgent& operator=(const DeterministicAgent&) = delete;

  const AgentSpec& spec() const override { return spec_; }
  const nn::Mlp& policy_network() const override { return shapes_.policy; }

  std::unique_ptr<Policy> make_policy(std::size_t row_count_max) const override {
    return std::make_unique<DeterministicPolicy>(shapes_.policy, shapes_.range,
                                                 settings_.noise_sigma, settings_.warmup_steps,
                                                 row_count_max);
  }
  std::unique_ptr<Learner> make_learner(std::size_t batch_size) const override {
    return std::make_unique<DeterministicLearner>(shapes_, settings_, batch_size);
  }
  Gradients make_gradients(std::size_t batch_size) const override {
    Gradients gradients;
    for (std::size_t i = 0; i < shapes_.learned(); ++i) {
      gradients.networks.push_back(mlp(i).make_parameters());
    }
    gradients.is_present.resize(shapes_.learned());
    gradients.td_errors.resize(batch_size);
    return gradients;
  }

  WeightsView weights() const override { return {networks_, version_}; }

  Status begin_step(const Gradients& gradients, std::span<const double> square_sums,
                    double progress, double step_scale) override {
    REVERIE_RETURN_IF_ERROR(begin_steps(gradients, square_sums, progress, step_scale, optimizers_));
    ++version_;
    return {};
  }
  void step_part(const Gradients& gradients, nn::Part part) override {
    for (std::size_t i = 0; i < shapes_.learned(); ++i) {
      if (gradients.is_present[i] == 0) continue;
      optimizers_[i].step_part(gradients.networks[i], part, parameters_[i]);
    }
    // A share is taken with each step of the policy, as in TD3's source; copies are counted in
    // gradient steps.
    if (settings_.tau > 0 && gradients.is_present[0] == 0) return;
    for (std::size_t i = 0; i < shapes_.learned(); ++i) {
      follow(settings_, version_, parameters_[i], part, parameters_[shapes_.learned() + i]);
    }
  }

  Status save(ByteWriter& out) const override {
    save_agent(version_, networks_, optimizers_, out);
    return {};
  }
  Status load(ByteReader& in) override {
    std::vector<nn::Parameters*> networks;
    for (nn::Parameters& parameters : parameters_) networks.push_back(&parameters);
    return load_agent(version_, networks, optimizers_, in);
  }

 private:
  const nn::Mlp& mlp(std::size_t network) const {
    return network == 0 ? shapes_.policy : shapes_.critic;
  }

  const AgentSpec spec_;
  const TrainSettings settings_;
  const Shapes shapes_;
  std::vector<Optimizer> optimizers_;
  std::vector<nn::Parameters> parameters_;
  std::vector<const nn::Parameters*> networks_;
  std::uint64_t version_ = 0;
};

}  // namespace

Result<std::unique_ptr<Agent>> make_deterministic_agent(const AgentSpec& spec,
                                                        const TrainSettings& settings,
                                                        DeterministicKind kind) {
  const bool is_td3 = kind == DeterministicKind::kTd3;
  REVERIE_ASSIGN_OR_RETURN(ActionRange range, ActionRange::make(spec, is_td3 ? "td3" : "ddpg"));
  nn::MlpSpec shape;
  shape.output = nn::Activation::kTanh;
  shape.widths.push_back(spec.obs_width);
  shape.widths.insert(shape.widths.end(), settings.hidden.begin(), settings.hidden.end());
  shape.widths.push_back(spec.action_width);
  REVERIE_ASSIGN_OR_RETURN(nn::Mlp policy, nn::Mlp::make(std::move(shape)));
  REVERIE_ASSIGN_OR_RETURN(nn::Mlp critic, make_critic(spec, settings.hidden));
  std::vector<Optimizer> optimizers;
  REVERIE_ASSIGN_OR_RETURN(
      Optimizer of_policy,
      Optimizer::make(policy, "the policy", settings.policy_learning_rate, settings));
  optimizers.push_back(std::move(of_policy));
  const std::size_t critic_count = is_td3 ? 2 : 1;
  for (std::size_t i = 0; i < critic_count; ++i) {
    std::string name = critic_count == 1 ? "the critic" : format("critic {}", i);
    REVERIE_ASSIGN_OR_RETURN(
        Optimizer of_critic,
        Optimizer::make(critic, std::move(name), settings.learning_rate, settings));
    optimizers.push_back(std::move(of_critic));
  }
  Shapes shapes{std::move(policy), std::move(critic), std::move(range), critic_count};
  return std::unique_ptr<Agent>(std::make_unique<DeterministicAgent>(
      spec, settings, std::move(shapes), std::move(optimizers)));
}

}  // namespace reverie
