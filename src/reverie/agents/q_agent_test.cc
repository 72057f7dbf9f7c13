#include "reverie/agents/q_agent.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/agent_batches.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 6;

AgentSpec three_actions() {
  AgentSpec spec;
  spec.obs_width = 4;
  spec.action_count = 3;
  return spec;
}

TrainSettings small() {
  TrainSettings settings;
  settings.seed = 1;
  settings.hidden = {16};
  settings.batch_size = kBatch;
  return settings;
}

void fill(TransitionBatch& batch, std::uint64_t seed) {
  Random random(seed);
  test::fill_without_actions(batch, random);
  for (std::int64_t& a : batch.mutable_actions()) a = static_cast<std::int64_t>(random.below(3));
  batch.mutable_discounts()[1] = 0;
}

// The network's outputs for one row of observations.
std::vector<double> outputs(const nn::Mlp& mlp, const nn::Parameters& parameters,
                            const float* obs) {
  return test::outputs(mlp, parameters, std::vector<double>(obs, obs + mlp.input_width()));
}

std::size_t best_of(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

// The loss as the header states it, for one batch and a given target network.
struct Expected {
  double loss = 0;
  std::vector<double> errors;
};
Expected expected(const nn::Mlp& mlp, const nn::Parameters& online, const nn::Parameters& choice,
                  const nn::Parameters& target, const TransitionBatch& batch, bool is_double) {
  Expected result;
  for (std::size_t i = 0; i < kBatch; ++i) {
    const std::vector<double> next = outputs(mlp, target, batch.next_obs().row(i));
    const std::size_t best =
        is_double ? best_of(outputs(mlp, choice, batch.next_obs().row(i))) : best_of(next);
    const double y = static_cast<double>(batch.rewards()[i]) +
                     static_cast<double>(batch.discounts()[i]) * next[best];
    const auto action = static_cast<std::size_t>(batch.actions()[i]);
    const double error = outputs(mlp, online, batch.obs().row(i))[action] - y;
    result.errors.push_back(std::abs(error));
    const double huber = std::abs(error) <= 1 ? error * error / 2 : std::abs(error) - 0.5;
    result.loss += static_cast<double>(batch.weights()[i]) * huber / static_cast<double>(kBatch);
  }
  return result;
}

class QAgentTest : public ::testing::TestWithParam<bool> {};

TEST_P(QAgentTest, TheGradientMatchesTheSlopeOfTheLoss) {
  const bool is_double = GetParam();
  const auto agent = make_q_agent(three_actions(), small(), is_double).value();
  const auto learner = agent->make_learner(kBatch);
  TransitionBatch batch(three_actions(), kBatch);
  Gradients gradients = agent->make_gradients(kBatch);
  Random random(std::uint64_t{3});
  // Takes some steps first, so that the networks differ.
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    fill(batch, seed);
    learner->learn(agent->weights(), batch, random, gradients);
    ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
  }
  fill(batch, 77);
  learner->learn(agent->weights(), batch, random, gradients);
  const nn::Mlp& mlp = agent->policy_network();
  const nn::Parameters& online = *agent->weights().networks[0];
  const nn::Parameters& target = *agent->weights().networks[1];
  const Expected at = expected(mlp, online, online, target, batch, is_double);
  EXPECT_NEAR(gradients.loss, at.loss, 1e-5);
  for (std::size_t i = 0; i < kBatch; ++i) {
    EXPECT_NEAR(static_cast<double>(gradients.td_errors[i]), at.errors[i], 1e-5);
  }
  constexpr float kMove = 1e-3f;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (std::size_t probe = 0; probe < 8; ++probe) {
      nn::Parameters more = online.copy();
      nn::Parameters less = online.copy();
      const std::size_t row = probe % mlp.weight(layer, more.span()).rows;
      const std::size_t column = probe % mlp.weight(layer, more.span()).columns;
      mlp.weight(layer, more.span())(row, column) += kMove;
      mlp.weight(layer, less.span())(row, column) -= kMove;
      const double slope = (expected(mlp, more, online, target, batch, is_double).loss -
                            expected(mlp, less, online, target, batch, is_double).loss) /
                           (2 * static_cast<double>(kMove));
      const float given = mlp.weight(layer, gradients.networks[0].span())(row, column);
      EXPECT_NEAR(static_cast<double>(given), slope, 2e-4) << layer << " " << probe;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Both, QAgentTest, ::testing::Bool());

TEST(QAgent, TheTargetNetworkIsCopiedEveryInterval) {
  TrainSettings settings = small();
  settings.target_interval = 3;
  const auto agent = make_q_agent(three_actions(), settings, true).value();
  const auto learner = agent->make_learner(kBatch);
  TransitionBatch batch(three_actions(), kBatch);
  Gradients gradients = agent->make_gradients(kBatch);
  Random random(std::uint64_t{3});
  fill(batch, 5);
  const std::vector<const nn::Parameters*> networks(agent->weights().networks.begin(),
                                                    agent->weights().networks.end());
  const auto are_same = [&] {
    return std::ranges::equal(networks[0]->span(), networks[1]->span());
  };
  EXPECT_TRUE(are_same());
  for (int step = 1; step <= 6; ++step) {
    learner->learn(agent->weights(), batch, random, gradients);
    ASSERT_TRUE(agent->step(gradients, 0, 1).ok());
    EXPECT_EQ(are_same(), step % 3 == 0) << step;
  }
}

TEST(QAgent, AGradientThatIsNotFiniteIsRefusedAndNamesTheLayer) {
  const auto agent = make_q_agent(three_actions(), small(), true).value();
  Gradients gradients = agent->make_gradients(kBatch);
  const nn::Parameters before = agent->weights().networks[0]->copy();
  const nn::Mlp& mlp = agent->policy_network();
  mlp.bias(1, gradients.networks[0].span())(0, 2) = std::numeric_limits<float>::quiet_NaN();
  expect_refused(agent->step(gradients, 0, 1), StatusCode::kInvalidArgument,
                 {"value network", "layer 1", "bias"});
  EXPECT_TRUE(std::ranges::equal(before.span(), agent->weights().networks[0]->span()));
  EXPECT_EQ(agent->weights().version, 0u);
  gradients.networks[0].fill(0);
  EXPECT_TRUE(agent->step(gradients, 0, 1).ok());
}

TEST(QAgent, ExploresByTheScheduleAndOtherwiseTakesTheBestAction) {
  TrainSettings settings = small();
  settings.steps = 1'000;
  settings.epsilon_share = 0.5;
  settings.epsilon_last = 0;
  const auto agent = make_q_agent(three_actions(), settings, true).value();
  const auto policy = agent->make_policy(1);
  const nn::Parameters& weights = *agent->weights().networks[0];
  Random random(std::uint64_t{3});
  const float obs[] = {0.1f, -0.4f, 0.3f, 0.9f};
  const nn::ConstMatrix row{obs, 1, 4, 4};
  std::int64_t action = -1;
  const auto bytes = std::as_writable_bytes(std::span(&action, 1));
  policy->act_greedily(weights, row, bytes);
  const std::int64_t best = action;
  EXPECT_EQ(static_cast<std::size_t>(best),
            best_of(outputs(agent->policy_network(), weights, obs)));
  int others = 0;
  for (int i = 0; i < 3'000; ++i) {
    policy->act(weights, row, /*step=*/250, random, bytes);  // epsilon 1/2
    others += action != best ? 1 : 0;
    policy->act(weights, row, /*step=*/500, random, bytes);
    ASSERT_EQ(action, best);
  }
  EXPECT_NEAR(others, 1'000, 130);  // 2/3 of the random half; 5 deviations
}

TEST(QAgent, RefusesContinuousActionsAndNamesAlgorithmsThatSupportThem) {
  AgentSpec spec;
  spec.obs_width = 3;
  spec.action_width = 1;
  expect_refused(make_q_agent(spec, small(), false).status(), StatusCode::kInvalidArgument,
                 {"dqn", "sac"});
}

}  // namespace
}  // namespace reverie
