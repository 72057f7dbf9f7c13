// Tested in continuous_agents_test.cc.
#include "reverie/agents/soft_agent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reverie/agents/action_range.h"
#include "reverie/agents/critic_pass.h"
#include "reverie/agents/optimizer.h"
#include "reverie/base/normal.h"
#include "reverie/nn/initializer.h"
#include "reverie/rl/clipped_double_q.h"
#include "reverie/rl/squashed_gaussian.h"

namespace reverie {
namespace {

// Adam moves a number by fewer learning rates than this in a step, (1 - 0.9) / sqrt(1 - 0.999).
// Kingma & Ba 2015, section 2.1.
constexpr double kAdamStepsMax = 3.2;

constexpr float kLogStdMin = -20;
constexpr float kLogStdMax = 2;

// In the order of the header.
enum Network : std::size_t { kPolicy, kCritic0, kCritic1, kTemperature, kTarget0, kTarget1, kAll };
constexpr std::size_t kLearned = 4;

// Actions drawn from the policy's outputs, with what their gradients need.
class SquashedDraw {
 public:
  SquashedDraw(std::size_t batch_size, std::size_t width)
      : width_(width),
        mean_(batch_size * width),
        log_std_(batch_size * width),
        is_held_(batch_size * width),
        noise_(batch_size * width),
        actions_(batch_size * width),
        log_probabilities_(batch_size) {}

  // `outputs` are rows of D means and D log standard deviations.
  void draw(nn::ConstMatrix outputs, Random& random) {
    rows_ = outputs.rows;
    for (std::size_t row = 0; row < rows_; ++row) {
      for (std::size_t i = 0; i < width_; ++i) {
        const std::size_t at = row * width_ + i;
        const float log_std = outputs(row, width_ + i);
        mean_[at] = outputs(row, i);
        log_std_[at] = std::clamp(log_std, kLogStdMin, kLogStdMax);
        is_held_[at] = log_std < kLogStdMin || log_std > kLogStdMax ? 1 : 0;
      }
    }
    fill_normal(random, std::span(noise_).first(rows_ * width_));
    squashed_gaussian(part(mean_), part(log_std_), part(noise_), part(actions_),
                      std::span(log_probabilities_).first(rows_));
  }

  std::span<const float> actions() const { return std::span(actions_).first(rows_ * width_); }
  std::span<const float> log_probabilities() const {
    return std::span(log_probabilities_).first(rows_);
  }

  // Computes the loss's gradient in the outputs from its gradients in the actions and log
  // probabilities.
  void send_back(std::span<const float> action_gradient,
                 std::span<const float> log_probability_gradient, nn::Matrix outputs) {
    mean_gradient_.resize(mean_.size());
    log_std_gradient_.resize(mean_.size());
    squashed_gaussian_gradient(part(log_std_), part(noise_), part(actions_), action_gradient,
                               log_probability_gradient, part(mean_gradient_),
                               part(log_std_gradient_));
    for (std::size_t row = 0; row < rows_; ++row) {
      for (std::size_t i = 0; i < width_; ++i) {
        const std::size_t at = row * width_ + i;
        outputs(row, i) = mean_gradient_[at];
        outputs(row, width_ + i) = is_held_[at] != 0 ? 0.0f : log_std_gradient_[at];
      }
    }
  }

 private:
  std::span<float> part(std::vector<float>& values) const {
    return std::span(values).first(rows_ * width_);
  }

  std::size_t width_;
  std::size_t rows_ = 0;
  std::vector<float> mean_;
  std::vector<float> log_std_;
  std::vector<std::uint8_t> is_held_;  // where log_std is at a bound, so its derivative is 0
  std::vector<float> noise_;
  std::vector<float> actions_;
  std::vector<float> log_probabilities_;
  std::vector<float> mean_gradient_;
  std::vector<float> log_std_gradient_;
};

class SoftPolicy final : public Policy {
 public:
  SoftPolicy(const nn::Mlp& mlp, const ActionRange& range, std::uint64_t random_steps,
             std::size_t row_count_max)
      : range_(range),
        random_steps_(random_steps),
        pass_(mlp, row_count_max),
        draw_(row_count_max, range.width()),
        actions_(row_count_max * range.width()) {}

  void act(const nn::Parameters& weights, nn::ConstMatrix obs, std::uint64_t step, Random& random,
           std::span<std::byte> actions) override {
    if (step < random_steps_) {
      const std::span<float> chosen = std::span(actions_).first(obs.rows * range_.width());
      for (float& action : chosen) action = static_cast<float>(2 * random.uniform() - 1);
      range_.to_env(chosen, actions);
      return;
    }
    draw_.draw(pass_.forward(weights, obs), random);
    range_.to_env(draw_.actions(), actions);
  }

  void act_greedily(const nn::Parameters& weights, nn::ConstMatrix obs,
                    std::span<std::byte> actions) override {
    const nn::ConstMatrix outputs = pass_.forward(weights, obs);
    const std::span<float> chosen = std::span(actions_).first(obs.rows * range_.width());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      chosen[i] = std::tanh(outputs(i / range_.width(), i % range_.width()));
    }
    range_.to_env(chosen, actions);
  }

 private:
  const ActionRange range_;
  const std::uint64_t random_steps_;
  nn::MlpPass pass_;
  SquashedDraw draw_;
  std::vector<float> actions_;
};

class SoftLearner final : public Learner {
 public:
  SoftLearner(const nn::Mlp& policy, const nn::Mlp& critic, const ActionRange& range,
              const TrainSettings& settings, double target_entropy, std::size_t batch_size)
      : range_(range),
        settings_(settings),
        target_entropy_(target_entropy),
        policy_pass_(policy, batch_size),
        critic_passes_{CriticPass(critic, range.width(), batch_size),
                       CriticPass(critic, range.width(), batch_size)},
        draw_(batch_size, range.width()),
        actions_(batch_size * range.width()),
        action_gradient_(actions_.size()),
        log_probability_gradient_(batch_size),
        values_{std::vector<float>(batch_size), std::vector<float>(batch_size)},
        targets_(batch_size),
        derivatives_(batch_size) {}

  void learn(const WeightsView& weights, const TransitionBatch& batch, Random& random,
             Gradients& out) override {
    const float temperature = std::exp(weights.networks[kTemperature]->data()[0]);
    compute_targets(weights, batch, temperature, random);
    learn_critics(weights, batch, out);
    const bool updates_policy = (weights.version + 1) % settings_.policy_delay == 0;
    if (updates_policy) learn_policy(weights, batch, temperature, random, out);
    std::ranges::fill(out.is_present, std::uint8_t{1});
    out.is_present[kPolicy] = updates_policy ? 1 : 0;
    out.is_present[kTemperature] = updates_policy && settings_.temperature == 0 ? 1 : 0;
  }

 private:
  void compute_targets(const WeightsView& weights, const TransitionBatch& batch, float temperature,
                       Random& random) {
    draw_.draw(policy_pass_.forward(*weights.networks[kPolicy], batch.next_obs()), random);
    for (std::size_t critic = 0; critic < 2; ++critic) {
      std::ranges::copy(critic_passes_[critic].values(*weights.networks[kTarget0 + critic],
                                                      batch.next_obs(), draw_.actions()),
                        values_[critic].begin());
    }
    soft_double_q_targets(batch.rewards(), batch.discounts(), values_[0], values_[1],
                          draw_.log_probabilities(), temperature, targets_);
  }

  void learn_critics(const WeightsView& weights, const TransitionBatch& batch, Gradients& out) {
    range_.from_env(batch.continuous_actions(), actions_);
    std::ranges::fill(out.td_errors, 0.0f);
    out.loss = 0;
    for (std::size_t critic = 0; critic < 2; ++critic) {
      const nn::Parameters& parameters = *weights.networks[kCritic0 + critic];
      const std::span<const float> values =
          critic_passes_[critic].values(parameters, batch.obs(), actions_);
      out.loss +=
          regress(values, targets_, batch.weights(), static_cast<float>(settings_.huber_delta),
                  0.5f, derivatives_, out.td_errors);
      critic_passes_[critic].backward(parameters, derivatives_, out.networks[kCritic0 + critic]);
    }
  }

  void learn_policy(const WeightsView& weights, const TransitionBatch& batch, float temperature,
                    Random& random, Gradients& out) {
    const nn::Parameters& policy = *weights.networks[kPolicy];
    draw_.draw(policy_pass_.forward(policy, batch.obs()), random);
    for (std::size_t critic = 0; critic < 2; ++critic) {
      std::ranges::copy(critic_passes_[critic].values(*weights.networks[kCritic0 + critic],
                                                      batch.obs(), draw_.actions()),
                        values_[critic].begin());
    }
    const float share = 1.0f / static_cast<float>(batch.size());
    std::ranges::fill(action_gradient_, 0.0f);
    for (std::size_t critic = 0; critic < 2; ++critic) {
      // Only the lower of both values has a gradient.
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const bool is_first = values_[0][i] <= values_[1][i];
        derivatives_[i] = is_first == (critic == 0) ? -share : 0.0f;
      }
      critic_passes_[critic].add_action_gradient(*weights.networks[kCritic0 + critic], derivatives_,
                                                 action_gradient_);
    }
    std::ranges::fill(log_probability_gradient_, temperature * share);
    draw_.send_back(action_gradient_, log_probability_gradient_, policy_pass_.output_gradient());
    policy_pass_.backward(policy, out.networks[kPolicy]);

    double mean = 0;
    for (const float log_probability : draw_.log_probabilities()) {
      mean += static_cast<double>(log_probability * share);
    }
    out.networks[kTemperature].fill(0);
    out.networks[kTemperature].data()[0] = -static_cast<float>(mean + target_entropy_);
  }

  const ActionRange range_;
  const TrainSettings settings_;
  const double target_entropy_;
  nn::MlpPass policy_pass_;
  std::array<CriticPass, 2> critic_passes_;
  SquashedDraw draw_;
  std::vector<float> actions_;
  std::vector<float> action_gradient_;
  std::vector<float> log_probability_gradient_;
  std::array<std::vector<float>, 2> values_;
  std::vector<float> targets_;
  std::vector<float> derivatives_;
};

class SoftAgent final : public Agent {
 public:
  SoftAgent(const AgentSpec& spec, const TrainSettings& settings, std::array<nn::Mlp, 4> shapes,
            ActionRange range, std::vector<Optimizer> optimizers)
      : spec_(spec),
        settings_(settings),
        shapes_(std::move(shapes)),
        range_(std::move(range)),
        optimizers_(std::move(optimizers)) {
    Random random(derived_weights_seed(settings));
    for (std::size_t i = 0; i < kLearned; ++i) {
      parameters_[i] = shapes_[i].make_parameters();
      if (i != kTemperature) nn::initialize_uniform(shapes_[i], random, parameters_[i]);
    }
    // A temperature that is learned starts at 1.
    const double first = settings.temperature > 0 ? settings.temperature : 1.0;
    parameters_[kTemperature].data()[0] = static_cast<float>(std::log(first));
    parameters_[kTarget0] = parameters_[kCritic0].copy();
    parameters_[kTarget1] = parameters_[kCritic1].copy();
    for (std::size_t i = 0; i < kAll; ++i) networks_[i] = &parameters_[i];
  }
  SoftAgent(const SoftAgent&) = delete;
  SoftAgent& operator=(const SoftAgent&) = delete;

  const AgentSpec& spec() const override { return spec_; }
  const nn::Mlp& policy_network() const override { return shapes_[kPolicy]; }

  std::unique_ptr<Policy> make_policy(std::size_t row_count_max) const override {
    return std::make_unique<SoftPolicy>(shapes_[kPolicy], range_, settings_.warmup_steps,
                                        row_count_max);
  }
  std::unique_ptr<Learner> make_learner(std::size_t batch_size) const override {
    const double entropy =
        settings_.target_entropy.value_or(-static_cast<double>(spec_.action_width));
    return std::make_unique<SoftLearner>(shapes_[kPolicy], shapes_[kCritic0], range_, settings_,
                                         entropy, batch_size);
  }
  Gradients make_gradients(std::size_t batch_size) const override {
    Gradients gradients;
    for (const nn::Mlp& shape : shapes_) gradients.networks.push_back(shape.make_parameters());
    gradients.is_present.resize(kLearned);
    gradients.td_errors.resize(batch_size);
    return gradients;
  }

  WeightsView weights() const override { return {networks_, version_}; }

  Status begin_step(const Gradients& gradients, std::span<const double> square_sums,
                    double progress, double step_scale) override {
    if (gradients.is_present[kTemperature] != 0) REVERIE_RETURN_IF_ERROR(check_temperature());
    REVERIE_RETURN_IF_ERROR(begin_steps(gradients, square_sums, progress, step_scale, optimizers_));
    ++version_;
    return {};
  }
  void step_part(const Gradients& gradients, nn::Part part) override {
    for (std::size_t i = 0; i < kLearned; ++i) {
      if (gradients.is_present[i] == 0) continue;
      optimizers_[i].step_part(gradients.networks[i], part, parameters_[i]);
    }
    follow(settings_, version_, parameters_[kCritic0], part, parameters_[kTarget0]);
    follow(settings_, version_, parameters_[kCritic1], part, parameters_[kTarget1]);
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
  // Refuses a step after which the temperature may be infinite: the weights stay usable.
  Status check_temperature() const {
    const auto now = static_cast<double>(parameters_[kTemperature].data()[0]);
    const double most = std::log(static_cast<double>(std::numeric_limits<float>::max()));
    if (now + kAdamStepsMax * settings_.policy_learning_rate < most) return {};
    return invalid_argument(
        "the temperature is exp({}), and after a step with policy_learning_rate {} it may be more "
        "than exp({}), which no float holds; no step was taken. Lower policy_learning_rate, or "
        "scale the rewards down with reward_scale",
        now, settings_.policy_learning_rate, most);
  }

  const AgentSpec spec_;
  const TrainSettings settings_;
  const std::array<nn::Mlp, 4> shapes_;
  const ActionRange range_;
  std::vector<Optimizer> optimizers_;
  std::array<nn::Parameters, kAll> parameters_;
  std::array<const nn::Parameters*, kAll> networks_{};
  std::uint64_t version_ = 0;
};

}  // namespace

Result<std::unique_ptr<Agent>> make_soft_agent(const AgentSpec& spec,
                                               const TrainSettings& settings) {
  REVERIE_ASSIGN_OR_RETURN(ActionRange range, ActionRange::make(spec, "sac"));
  nn::MlpSpec shape;
  shape.widths.push_back(spec.obs_width);
  shape.widths.insert(shape.widths.end(), settings.hidden.begin(), settings.hidden.end());
  shape.widths.push_back(2 * spec.action_width);
  REVERIE_ASSIGN_OR_RETURN(nn::Mlp policy, nn::Mlp::make(std::move(shape)));
  REVERIE_ASSIGN_OR_RETURN(nn::Mlp critic, make_critic(spec, settings.hidden));
  // A single number, stored as the weight of a network that is never run.
  REVERIE_ASSIGN_OR_RETURN(nn::Mlp number, nn::Mlp::make({.widths = {1, 1}}));
  const std::array<nn::Mlp, 4> shapes{policy, critic, critic, number};
  constexpr std::array<const char*, 4> kNames{"the policy", "critic 0", "critic 1",
                                              "the temperature"};
  std::vector<Optimizer> optimizers;
  for (std::size_t i = 0; i < kLearned; ++i) {
    const bool is_critic = i == kCritic0 || i == kCritic1;
    REVERIE_ASSIGN_OR_RETURN(
        Optimizer optimizer,
        Optimizer::make(shapes[i], kNames[i],
                        is_critic ? settings.learning_rate : settings.policy_learning_rate,
                        settings));
    optimizers.push_back(std::move(optimizer));
  }
  return std::unique_ptr<Agent>(
      std::make_unique<SoftAgent>(spec, settings, shapes, std::move(range), std::move(optimizers)));
}

}  // namespace reverie
