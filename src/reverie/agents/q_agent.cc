#include "reverie/agents/q_agent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "reverie/agents/optimizer.h"
#include "reverie/base/check.h"
#include "reverie/nn/initializer.h"
#include "reverie/rl/exploration.h"
#include "reverie/rl/huber.h"
#include "reverie/rl/q_target.h"

namespace reverie {
namespace {

// The rows of `from` without their padding.
void pack(nn::ConstMatrix from, std::vector<float>& to) {
  for (std::size_t row = 0; row < from.rows; ++row) {
    std::copy_n(from.row(row), from.columns, to.data() + row * from.columns);
  }
}

class QPolicy final : public Policy {
 public:
  QPolicy(const nn::Mlp& mlp, const EpsilonSchedule& schedule, std::size_t row_count_max)
      : schedule_(schedule), action_count_(mlp.output_width()), pass_(mlp, row_count_max) {}

  void act(const nn::Parameters& weights, nn::ConstMatrix obs, std::uint64_t step, Random& random,
           std::span<std::byte> actions) override {
    const double epsilon = epsilon_at(schedule_, step);
    // The network runs only if some row's action is not random.
    explores_.resize(obs.rows);
    bool all_explore = true;
    for (std::size_t row = 0; row < obs.rows; ++row) {
      explores_[row] = random.uniform() < epsilon;
      all_explore = all_explore && explores_[row] != 0;
    }
    if (!all_explore) act_greedily(weights, obs, actions);
    for (std::size_t row = 0; row < obs.rows; ++row) {
      if (explores_[row] == 0) continue;
      put(actions, row, static_cast<std::int64_t>(random.below(action_count_)));
    }
  }

  void act_greedily(const nn::Parameters& weights, nn::ConstMatrix obs,
                    std::span<std::byte> actions) override {
    const nn::ConstMatrix values = pass_.forward(weights, obs);
    for (std::size_t row = 0; row < obs.rows; ++row) {
      const std::size_t best = greedy_action({values.row(row), values.columns});
      put(actions, row, static_cast<std::int64_t>(best));
    }
  }

 private:
  static void put(std::span<std::byte> actions, std::size_t row, std::int64_t action) {
    std::memcpy(actions.data() + row * sizeof(action), &action, sizeof(action));
  }

  const EpsilonSchedule schedule_;
  const std::size_t action_count_;
  nn::MlpPass pass_;
  std::vector<std::uint8_t> explores_;
};

class QLearner final : public Learner {
 public:
  QLearner(const nn::Mlp& mlp, float huber_delta, bool is_double, std::size_t batch_size)
      : huber_delta_(huber_delta),
        is_double_(is_double),
        pass_(mlp, batch_size),
        target_pass_(mlp, batch_size),
        next_online_(batch_size * mlp.output_width()),
        next_target_(batch_size * mlp.output_width()),
        targets_(batch_size),
        errors_(batch_size),
        derivatives_(batch_size) {}

  void learn(const WeightsView& weights, const TransitionBatch& batch, Random&,
             Gradients& out) override {
    const nn::Parameters& online = *weights.networks[0];
    const nn::Parameters& target = *weights.networks[1];
    pack(target_pass_.forward(target, batch.next_obs()), next_target_);
    if (is_double_) {
      pack(pass_.forward(online, batch.next_obs()), next_online_);
      double_q_targets(batch.rewards(), batch.discounts(), next_online_, next_target_, targets_);
    } else {
      q_targets(batch.rewards(), batch.discounts(), next_target_, targets_);
    }
    const nn::Matrix values = pass_.forward(online, batch.obs());
    const std::size_t size = batch.size();
    for (std::size_t i = 0; i < size; ++i) {
      errors_[i] = values(i, action(batch, i)) - targets_[i];
      out.td_errors[i] = std::abs(errors_[i]);
    }
    REVERIE_CHECK(huber_losses(errors_, huber_delta_, derivatives_).ok());
    out.loss = 0;
    for (std::size_t i = 0; i < size; ++i) {
      out.loss += static_cast<double>(batch.weights()[i]) * static_cast<double>(derivatives_[i]);
    }
    out.loss /= static_cast<double>(size);
    REVERIE_CHECK(huber_derivatives(errors_, huber_delta_, derivatives_).ok());
    const nn::Matrix gradient = pass_.output_gradient();
    const float share = 1.0f / static_cast<float>(size);
    for (std::size_t i = 0; i < size; ++i) {
      std::fill_n(gradient.row(i), gradient.columns, 0.0f);
      gradient(i, action(batch, i)) = batch.weights()[i] * derivatives_[i] * share;
    }
    pass_.backward(online, out.networks[0]);
    out.is_present[0] = 1;
  }

 private:
  static std::size_t action(const TransitionBatch& batch, std::size_t row) {
    return static_cast<std::size_t>(batch.actions()[row]);
  }

  const float huber_delta_;
  const bool is_double_;
  nn::MlpPass pass_;
  nn::MlpPass target_pass_;
  std::vector<float> next_online_;
  std::vector<float> next_target_;
  std::vector<float> targets_;
  std::vector<float> errors_;
  std::vector<float> derivatives_;
};

class QAgent final : public Agent {
 public:
  QAgent(const AgentSpec& spec, const TrainSettings& settings, bool is_double, nn::Mlp mlp,
         Optimizer optimizer)
      : spec_(spec),
        settings_(settings),
        is_double_(is_double),
        mlp_(std::move(mlp)),
        online_(mlp_.make_parameters()),
        target_(mlp_.make_parameters()),
        networks_{&online_, &target_},
        optimizer_(std::move(optimizer)) {
    Random random(derived_weights_seed(settings));
    nn::initialize_uniform(mlp_, random, online_);
    target_.assign(online_);
  }
  QAgent(const QAgent&) = delete;
  QAgent& operator=(const QAgent&) = delete;

  const AgentSpec& spec() const override { return spec_; }
  const nn::Mlp& policy_network() const override { return mlp_; }

  std::unique_ptr<Policy> make_policy(std::size_t row_count_max) const override {
    EpsilonSchedule schedule;
    schedule.first = settings_.epsilon_first;
    schedule.last = settings_.epsilon_last;
    schedule.step_count =
        static_cast<std::uint64_t>(settings_.epsilon_share * static_cast<double>(settings_.steps));
    return std::make_unique<QPolicy>(mlp_, schedule, row_count_max);
  }
  std::unique_ptr<Learner> make_learner(std::size_t batch_size) const override {
    return std::make_unique<QLearner>(mlp_, static_cast<float>(settings_.huber_delta), is_double_,
                                      batch_size);
  }
  Gradients make_gradients(std::size_t batch_size) const override {
    Gradients gradients;
    gradients.networks.push_back(mlp_.make_parameters());
    gradients.is_present = {1};
    gradients.td_errors.resize(batch_size);
    return gradients;
  }

  WeightsView weights() const override { return {networks_, version_, changed_}; }

  Status begin_step(const Gradients& gradients, std::span<const double> square_sums,
                    double progress, double step_scale) override {
    REVERIE_RETURN_IF_ERROR(
        begin_steps(gradients, square_sums, progress, step_scale, {&optimizer_, 1}));
    changed_[0] = ++version_;
    if (follows(settings_, version_)) changed_[1] = version_;
    return {};
  }
  void step_part(const Gradients& gradients, nn::Part part) override {
    optimizer_.step_part(gradients.networks[0], part, online_);
    follow(settings_, version_, online_, part, target_);
  }

  Status save(ByteWriter& out) const override {
    save_agent(version_, networks_, {&optimizer_, 1}, out);
    return {};
  }
  Status load(ByteReader& in) override {
    const std::array<nn::Parameters*, 2> networks{&online_, &target_};
    REVERIE_RETURN_IF_ERROR(load_agent(version_, networks, {&optimizer_, 1}, in));
    changed_.fill(version_);
    return {};
  }

 private:
  const AgentSpec spec_;
  const TrainSettings settings_;
  const bool is_double_;
  const nn::Mlp mlp_;
  nn::Parameters online_;
  nn::Parameters target_;
  const std::array<const nn::Parameters*, 2> networks_;
  Optimizer optimizer_;
  std::uint64_t version_ = 0;
  std::array<std::uint64_t, 2> changed_{};  // of online_ and target_
};

}  // namespace

Result<std::unique_ptr<Agent>> make_q_agent(const AgentSpec& spec, const TrainSettings& settings,
                                            bool is_double) {
  if (!spec.is_discrete()) {
    return invalid_argument(
        "{} chooses among discrete actions, but the environment takes {} numbers; use ddpg, td3 or "
        "sac",
        is_double ? "ddqn" : "dqn", spec.action_width);
  }
  nn::MlpSpec shape;
  shape.widths.push_back(spec.obs_width);
  shape.widths.insert(shape.widths.end(), settings.hidden.begin(), settings.hidden.end());
  shape.widths.push_back(spec.action_count);
  REVERIE_ASSIGN_OR_RETURN(nn::Mlp mlp, nn::Mlp::make(std::move(shape)));
  REVERIE_ASSIGN_OR_RETURN(Optimizer optimizer, Optimizer::make(mlp, "the value network",
                                                                settings.learning_rate, settings));
  return std::unique_ptr<Agent>(
      std::make_unique<QAgent>(spec, settings, is_double, std::move(mlp), std::move(optimizer)));
}

}  // namespace reverie
