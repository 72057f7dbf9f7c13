// The algorithms for continuous actions: their gradients are the slopes of their losses.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/agents/action_range.h"
#include "reverie/agents/algorithms.h"
#include "reverie/agents/critic_pass.h"
#include "reverie/base/normal.h"
#include "reverie/rl/squashed_gaussian.h"
#include "tests/support/agent_batches.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 5;
constexpr std::size_t kObs = 3;
constexpr std::size_t kActions = 2;

AgentSpec two_numbers() {
  AgentSpec spec;
  spec.obs_width = kObs;
  spec.action_width = kActions;
  spec.action_low = {-2, 0};
  spec.action_high = {2, 1};
  return spec;
}

TrainSettings small(Algorithm algorithm) {
  TrainSettings settings = default_settings(algorithm);
  settings.seed = 1;
  settings.hidden = {16};
  settings.batch_size = kBatch;
  settings.target_noise = 0;  // so that the targets can be computed
  return settings;
}

void fill(TransitionBatch& batch, std::uint64_t seed) {
  Random random(seed);
  test::fill_without_actions(batch, random);
  const std::span<float> actions = batch.mutable_continuous_actions();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto draw = static_cast<float>(random.uniform());
    actions[i] = i % kActions == 0 ? -2 + 4 * draw : draw;
  }
}

std::vector<double> joined(const float* obs, const std::vector<double>& action) {
  std::vector<double> all(obs, obs + kObs);
  all.insert(all.end(), action.begin(), action.end());
  return all;
}

// An agent's networks by index, any of which can be replaced.
struct Weights {
  explicit Weights(const Agent& agent)
      : networks(agent.weights().networks.begin(), agent.weights().networks.end()) {}
  std::vector<const nn::Parameters*> networks;
};

// The losses as deterministic_agent.h and soft_agent.h state them, summed over critics.
class Losses {
 public:
  Losses(Algorithm algorithm, const Agent& agent, const nn::Mlp& critic,
         const TransitionBatch& batch)
      : algorithm_(algorithm), agent_(agent), critic_(critic), batch_(batch) {
    // The same draws as the learner's: first for the next actions, then for the actions.
    Random random(std::uint64_t{9});
    next_noise_.resize(kBatch * kActions);
    noise_.resize(kBatch * kActions);
    fill_normal(random, std::span(next_noise_));
    fill_normal(random, std::span(noise_));
    const Weights now(agent);
    for (std::size_t row = 0; row < kBatch; ++row) targets_.push_back(target(now, row));
  }

  double critics(const Weights& weights) const {
    double loss = 0;
    for (std::size_t row = 0; row < kBatch; ++row) {
      std::vector<double> action(kActions);
      const float* stored = batch_.continuous_actions().row(row);
      action[0] = static_cast<double>(stored[0]) / 2;
      action[1] = static_cast<double>(stored[1]) * 2 - 1;
      for (std::size_t i = 1; i <= critic_count(); ++i) {
        const double error =
            value(*weights.networks[i], batch_.obs().row(row), action) - targets_[row];
        loss += static_cast<double>(batch_.weights()[row]) * error * error / 2 / kBatch;
      }
    }
    return loss;
  }

  double policy(const Weights& weights) const {
    const Weights now(agent_);
    double loss = 0;
    for (std::size_t row = 0; row < kBatch; ++row) {
      const float* obs = batch_.obs().row(row);
      double log_probability = 0;
      const std::vector<double> action =
          act(*weights.networks[0], obs, noise_, row, &log_probability);
      double q = value(*now.networks[1], obs, action);
      if (algorithm_ == Algorithm::kSac) {
        q = std::min(q, value(*now.networks[2], obs, action));
        q -= temperature(now) * log_probability;
      }
      loss -= q / kBatch;
    }
    return loss;
  }

  double temperature_slope() const {
    const Weights now(agent_);
    double mean = 0;
    for (std::size_t row = 0; row < kBatch; ++row) {
      double log_probability = 0;
      (void)act(*now.networks[0], batch_.obs().row(row), noise_, row, &log_probability);
      mean += log_probability / kBatch;
    }
    return -(mean - static_cast<double>(kActions));
  }

  std::size_t critic_count() const { return algorithm_ == Algorithm::kDdpg ? 1 : 2; }

 private:
  static double temperature(const Weights& weights) {
    return std::exp(static_cast<double>(weights.networks[3]->data()[0]));
  }
  double value(const nn::Parameters& critic, const float* obs,
               const std::vector<double>& action) const {
    return test::outputs(critic_, critic, joined(obs, action))[0];
  }
  std::vector<double> act(const nn::Parameters& policy, const float* obs,
                          const std::vector<float>& noise, std::size_t row,
                          double* log_probability) const {
    std::vector<double> out =
        test::outputs(agent_.policy_network(), policy, std::vector<double>(obs, obs + kObs));
    std::vector<double> action(kActions);
    *log_probability = 0;
    for (std::size_t i = 0; i < kActions; ++i) {
      if (algorithm_ != Algorithm::kSac) {
        action[i] = std::tanh(out[i]);
        continue;
      }
      const auto draw = static_cast<double>(noise[row * kActions + i]);
      const double u = out[i] + std::exp(out[kActions + i]) * draw;
      action[i] = std::tanh(u);
      *log_probability += -draw * draw / 2 - out[kActions + i] - 0.5 * std::log(2 * M_PI) -
                          std::log(1 - action[i] * action[i]);
    }
    return action;
  }
  double target(const Weights& now, std::size_t row) const {
    const float* next = batch_.next_obs().row(row);
    double log_probability = 0;
    const bool is_soft = algorithm_ == Algorithm::kSac;
    const std::size_t targets = is_soft ? 4 : 2 + critic_count();
    const std::size_t policy = is_soft ? 0 : 1 + critic_count();
    const std::vector<double> action =
        act(*now.networks[policy], next, next_noise_, row, &log_probability);
    double q = value(*now.networks[targets], next, action);
    if (critic_count() == 2) q = std::min(q, value(*now.networks[targets + 1], next, action));
    if (is_soft) q -= temperature(now) * log_probability;
    return static_cast<double>(batch_.rewards()[row]) +
           static_cast<double>(batch_.discounts()[row]) * q;
  }

  Algorithm algorithm_;
  const Agent& agent_;
  const nn::Mlp& critic_;
  const TransitionBatch& batch_;
  std::vector<float> next_noise_;
  std::vector<float> noise_;
  std::vector<double> targets_;
};

class ContinuousAgent : public ::testing::TestWithParam<Algorithm> {};

TEST_P(ContinuousAgent, GradientsMatchTheSlopesOfTheLosses) {
  const Algorithm algorithm = GetParam();
  const TrainSettings settings = small(algorithm);
  const auto agent = make_agent(algorithm, two_numbers(), settings).value();
  const auto learner = agent->make_learner(kBatch);
  const nn::Mlp critic = make_critic(two_numbers(), settings.hidden).value();
  TransitionBatch batch(two_numbers(), kBatch);
  Gradients gradients = agent->make_gradients(kBatch);
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    Random random(seed);
    fill(batch, seed);
    learner->learn(agent->weights(), batch, random, gradients);
    ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
  }
  fill(batch, 77);
  Random random(std::uint64_t{9});
  learner->learn(agent->weights(), batch, random, gradients);
  const Losses losses(algorithm, *agent, critic, batch);
  EXPECT_NEAR(gradients.loss, losses.critics(Weights(*agent)), 1e-4);
  EXPECT_EQ(gradients.is_present[0], 1);  // the policy is due in step 12 with any of the delays
  constexpr float kMove = 1e-3f;
  for (std::size_t network = 0; network <= losses.critic_count(); ++network) {
    const nn::Mlp& mlp = network == 0 ? agent->policy_network() : critic;
    const auto loss_of = [&](const Weights& weights) {
      return network == 0 ? losses.policy(weights) : losses.critics(weights);
    };
    for (std::size_t layer = 0; layer < 2; ++layer) {
      for (std::size_t probe = 0; probe < 6; ++probe) {
        Weights more(*agent);
        Weights less(*agent);
        nn::Parameters up = more.networks[network]->copy();
        nn::Parameters down = less.networks[network]->copy();
        more.networks[network] = &up;
        less.networks[network] = &down;
        const std::size_t row = probe % mlp.weight(layer, up.span()).rows;
        const std::size_t column = probe % mlp.weight(layer, up.span()).columns;
        mlp.weight(layer, up.span())(row, column) += kMove;
        mlp.weight(layer, down.span())(row, column) -= kMove;
        const double slope = (loss_of(more) - loss_of(less)) / (2 * static_cast<double>(kMove));
        const float given = mlp.weight(layer, gradients.networks[network].span())(row, column);
        EXPECT_NEAR(static_cast<double>(given), slope, 2e-3 + 2e-3 * std::abs(slope))
            << "network " << network << " layer " << layer << " probe " << probe;
      }
    }
  }
  if (algorithm == Algorithm::kSac) {
    EXPECT_NEAR(static_cast<double>(gradients.networks[3].data()[0]), losses.temperature_slope(),
                1e-3);
  }
}

TEST_P(ContinuousAgent, AGradientThatIsNotFiniteChangesNothing) {
  const auto agent = make_agent(GetParam(), two_numbers(), small(GetParam())).value();
  Gradients gradients = agent->make_gradients(kBatch);
  std::ranges::fill(gradients.is_present, std::uint8_t{1});
  for (nn::Parameters& gradient : gradients.networks) gradient.fill(0);
  gradients.networks[0].data()[0] = 1;
  gradients.networks[1].data()[0] = std::numeric_limits<float>::infinity();
  const nn::Parameters before = agent->weights().networks[0]->copy();
  expect_refused(agent->step(gradients, 0, 1), StatusCode::kInvalidArgument, {"critic", "layer 0"});
  EXPECT_TRUE(std::ranges::equal(before.span(), agent->weights().networks[0]->span()));
  EXPECT_EQ(agent->weights().version, 0u);
}

TEST_P(ContinuousAgent, ActionsStayWithinTheEnvironmentsBounds) {
  TrainSettings settings = small(GetParam());
  settings.noise_sigma = 5;
  settings.warmup_steps = 10;
  const auto agent = make_agent(GetParam(), two_numbers(), settings).value();
  const auto policy = agent->make_policy(1);
  Random random(std::uint64_t{4});
  const float obs[kObs] = {0.3f, -1, 4};
  float action[kActions];
  float least[kActions] = {9, 9};
  float most[kActions] = {-9, -9};
  for (std::uint64_t i = 0; i < 400; ++i) {
    policy->act(*agent->weights().networks[0], {obs, 1, kObs, kObs}, i % 20, random,
                std::as_writable_bytes(std::span(action)));
    for (std::size_t k = 0; k < kActions; ++k) {
      least[k] = std::min(least[k], action[k]);
      most[k] = std::max(most[k], action[k]);
    }
  }
  EXPECT_GE(least[0], -2);
  EXPECT_LE(most[0], 2);
  EXPECT_GE(least[1], 0);
  EXPECT_LE(most[1], 1);
  EXPECT_LT(least[0], -1.5f);  // actions use most of the range
  EXPECT_GT(most[1], 0.9f);
}

INSTANTIATE_TEST_SUITE_P(All, ContinuousAgent,
                         ::testing::Values(Algorithm::kDdpg, Algorithm::kTd3, Algorithm::kSac),
                         [](const auto& algorithm) {
                           return std::string(algorithm_name(algorithm.param));
                         });

TEST(ContinuousAgents, Td3UpdatesItsPolicyEveryOtherStep) {
  const auto agent = make_agent(Algorithm::kTd3, two_numbers(), small(Algorithm::kTd3)).value();
  const auto learner = agent->make_learner(kBatch);
  TransitionBatch batch(two_numbers(), kBatch);
  Gradients gradients = agent->make_gradients(kBatch);
  Random random(std::uint64_t{1});
  fill(batch, 1);
  for (int step = 1; step <= 6; ++step) {
    const nn::Parameters before = agent->weights().networks[0]->copy();
    const nn::Parameters target = agent->weights().networks[3]->copy();
    learner->learn(agent->weights(), batch, random, gradients);
    ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
    const bool is_turn = step % 2 == 0;
    EXPECT_EQ(std::ranges::equal(before.span(), agent->weights().networks[0]->span()), !is_turn);
    EXPECT_EQ(std::ranges::equal(target.span(), agent->weights().networks[3]->span()), !is_turn);
  }
}

TEST(ContinuousAgents, SacUpdatesItsPolicyAndTemperatureEveryPolicyDelaySteps) {
  TrainSettings settings = small(Algorithm::kSac);
  settings.policy_delay = 3;
  const auto agent = make_agent(Algorithm::kSac, two_numbers(), settings).value();
  const auto learner = agent->make_learner(kBatch);
  TransitionBatch batch(two_numbers(), kBatch);
  Gradients gradients = agent->make_gradients(kBatch);
  Random random(std::uint64_t{1});
  fill(batch, 1);
  for (int step = 1; step <= 6; ++step) {
    std::vector<nn::Parameters> before;
    for (const nn::Parameters* network : agent->weights().networks) {
      before.push_back(network->copy());
    }
    learner->learn(agent->weights(), batch, random, gradients);
    ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const bool is_delayed = i == 0 || i == 3;  // the policy and the temperature
      const bool is_turn = !is_delayed || step % 3 == 0;
      EXPECT_EQ(std::ranges::equal(before[i].span(), agent->weights().networks[i]->span()),
                !is_turn)
          << "step " << step << " network " << i;
    }
  }
}

TEST(ContinuousAgents, DiscreteOrUnboundedActionsAreRefused) {
  AgentSpec discrete;
  discrete.obs_width = 1;
  discrete.action_count = 2;
  AgentSpec unbounded = two_numbers();
  unbounded.action_high[1] = std::numeric_limits<float>::infinity();
  for (const Algorithm algorithm : {Algorithm::kDdpg, Algorithm::kTd3, Algorithm::kSac}) {
    expect_refused(make_agent(algorithm, discrete, small(algorithm)).status(),
                   StatusCode::kInvalidArgument, {std::string(algorithm_name(algorithm)), "dqn"});
    expect_refused(make_agent(algorithm, unbounded, small(algorithm)).status(),
                   StatusCode::kInvalidArgument, {"element 1", "inf"});
  }
}

TEST(ContinuousAgents, ActionsWhoseRangeNoFloatHoldsAreRefused) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  for (const auto& [low, high] : {std::pair{-kMost, kMost}, std::pair{0.0f, kTiny}}) {
    AgentSpec spec = two_numbers();
    spec.action_low[0] = low;
    spec.action_high[0] = high;
    for (const Algorithm algorithm : {Algorithm::kDdpg, Algorithm::kTd3, Algorithm::kSac}) {
      expect_refused(make_agent(algorithm, spec, small(algorithm)).status(),
                     StatusCode::kInvalidArgument, {"element 0", "finite difference"});
    }
  }
}

// The gradient always asks for a higher temperature, whose exponential would be infinite.
TEST(ContinuousAgents, SacRefusesAStepAfterWhichTheTemperatureMayOverflow) {
  TrainSettings settings = small(Algorithm::kSac);
  settings.policy_learning_rate = 20;  // two steps bring it to exp(40)
  const auto agent = make_agent(Algorithm::kSac, two_numbers(), settings).value();
  Gradients gradients = agent->make_gradients(kBatch);
  std::ranges::fill(gradients.is_present, std::uint8_t{1});
  for (nn::Parameters& gradient : gradients.networks) gradient.fill(0);
  gradients.networks[3].data()[0] = -1;
  ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
  ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
  const float before = agent->weights().networks[3]->data()[0];
  expect_refused(agent->step(gradients, 0, 1), StatusCode::kInvalidArgument,
                 {"the temperature is exp(", "policy_learning_rate 20"});
  EXPECT_EQ(agent->weights().networks[3]->data()[0], before);
  EXPECT_EQ(agent->weights().version, 2u);
}

// A checkpoint of an earlier version may hold one.
TEST(ContinuousAgents, SacRefusesTheGradientsAtATemperatureThatIsInfinite) {
  const auto agent = make_agent(Algorithm::kSac, two_numbers(), small(Algorithm::kSac)).value();
  const auto learner = agent->make_learner(kBatch);
  TransitionBatch batch(two_numbers(), kBatch);
  fill(batch, 1);
  std::vector<const nn::Parameters*> networks(agent->weights().networks.begin(),
                                              agent->weights().networks.end());
  nn::Parameters temperature = networks[3]->copy();
  temperature.data()[0] = 1'000;
  networks[3] = &temperature;
  Gradients gradients = agent->make_gradients(kBatch);
  Random random(std::uint64_t{1});
  learner->learn({networks, 0}, batch, random, gradients);
  expect_refused(agent->step(gradients, 0, 1), StatusCode::kInvalidArgument,
                 {"the policy", "layer", "no step was taken"});
}

class CopiedTargets : public ::testing::TestWithParam<Algorithm> {};

// With a tau of 0 targets are copied every target_interval gradient steps, whether or not the
// policy steps with them.
TEST_P(CopiedTargets, AreCountedInGradientSteps) {
  TrainSettings settings = small(GetParam());
  settings.tau = 0;
  settings.target_interval = 5;
  settings.policy_delay = 2;
  const auto agent = make_agent(GetParam(), two_numbers(), settings).value();
  const auto learner = agent->make_learner(kBatch);
  TransitionBatch batch(two_numbers(), kBatch);
  Gradients gradients = agent->make_gradients(kBatch);
  Random random(std::uint64_t{1});
  fill(batch, 1);
  const std::size_t learned = GetParam() == Algorithm::kDdpg ? 2 : 3;
  for (int step = 1; step <= 20; ++step) {
    learner->learn(agent->weights(), batch, random, gradients);
    ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
    // The critics move with each step, so a target equals its critic only after a copy.
    for (std::size_t critic = 1; critic < learned; ++critic) {
      const auto networks = agent->weights().networks;
      EXPECT_EQ(std::ranges::equal(networks[critic]->span(), networks[learned + critic]->span()),
                step % 5 == 0)
          << "step " << step << " critic " << critic;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CopiedTargets, ::testing::Values(Algorithm::kDdpg, Algorithm::kTd3),
                         [](const auto& algorithm) {
                           return std::string(algorithm_name(algorithm.param));
                         });

}  // namespace
}  // namespace reverie
