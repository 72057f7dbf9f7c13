// Every learning rule compared with tests/data/learning_rules.txt, which the Python tests read too.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/status.h"
#include "reverie/rl/action_noise.h"
#include "reverie/rl/advantages.h"
#include "reverie/rl/categorical_projection.h"
#include "reverie/rl/clipped_double_q.h"
#include "reverie/rl/exploration.h"
#include "reverie/rl/huber.h"
#include "reverie/rl/q_target.h"
#include "reverie/rl/squashed_gaussian.h"
#include "reverie/rl/td_target.h"
#include "reverie/rl/v_trace.h"
#include "tests/support/number_table.h"
#include "tests/tests_dir.h"

namespace reverie {
namespace {

using Floats = std::vector<float>;
using Results = std::map<std::string, Floats>;

// The four spans of a rollout, and the vectors that hold them.
struct RolloutCase {
  explicit RolloutCase(const NumberCase& c)
      : rewards(c.floats("rewards")),
        discounts(c.floats("discounts")),
        values(c.floats("values")),
        next_values(c.floats("next_values")),
        step_count(c.argument("rewards").extents[1]) {}

  Rollout view() const { return {rewards, discounts, values, next_values, ends, step_count}; }

  Floats rewards;
  Floats discounts;
  Floats values;
  Floats next_values;
  std::vector<std::uint8_t> ends;
  std::size_t step_count;
};

Results td(const NumberCase& c) {
  Floats out(c.floats("rewards").size());
  td_targets(c.floats("rewards"), c.floats("discounts"), c.floats("next_values"), out);
  return {{"targets", out}};
}

Results q(const NumberCase& c) {
  Floats out(c.floats("rewards").size());
  q_targets(c.floats("rewards"), c.floats("discounts"), c.floats("next_values"), out);
  return {{"targets", out}};
}

Results double_q(const NumberCase& c) {
  Floats out(c.floats("rewards").size());
  double_q_targets(c.floats("rewards"), c.floats("discounts"), c.floats("next_online_values"),
                   c.floats("next_target_values"), out);
  return {{"targets", out}};
}

Results clipped_double_q(const NumberCase& c) {
  Floats out(c.floats("rewards").size());
  clipped_double_q_targets(c.floats("rewards"), c.floats("discounts"), c.floats("first_values"),
                           c.floats("second_values"), out);
  return {{"targets", out}};
}

Results soft_double_q(const NumberCase& c) {
  Floats out(c.floats("rewards").size());
  soft_double_q_targets(c.floats("rewards"), c.floats("discounts"), c.floats("first_values"),
                        c.floats("second_values"), c.floats("log_probabilities"),
                        c.scalar("temperature"), out);
  return {{"targets", out}};
}

Results projection(const NumberCase& c) {
  Floats out(c.floats("next_probabilities").size());
  EXPECT_TRUE(categorical_projection(c.floats("rewards"), c.floats("discounts"),
                                     c.floats("next_probabilities"), c.scalar("value_min"),
                                     c.scalar("value_max"), out)
                  .ok());
  return {{"projected", out}};
}

Results advantages(const NumberCase& c) {
  const RolloutCase t(c);
  Floats out(t.rewards.size());
  EXPECT_TRUE(generalized_advantages(t.view(), c.scalar("lambda"), out).ok());
  return {{"advantages", out}};
}

Results trace(const NumberCase& c) {
  const RolloutCase t(c);
  Floats targets(t.rewards.size());
  Floats policy(t.rewards.size());
  const VTraceOptions options{c.scalar("lambda"), c.scalar("rho_max"),
                              c.scalar("advantage_rho_max")};
  EXPECT_TRUE(v_trace(t.view(), c.floats("ratios"), options, targets, policy).ok());
  return {{"targets", targets}, {"advantages", policy}};
}

Results losses(const NumberCase& c) {
  Floats out(c.floats("errors").size());
  EXPECT_TRUE(huber_losses(c.floats("errors"), c.scalar("delta"), out).ok());
  return {{"losses", out}};
}

Results derivatives(const NumberCase& c) {
  Floats out(c.floats("errors").size());
  EXPECT_TRUE(huber_derivatives(c.floats("errors"), c.scalar("delta"), out).ok());
  return {{"derivatives", out}};
}

Results gaussian(const NumberCase& c) {
  Floats actions(c.floats("mean").size());
  Floats log_probabilities(c.argument("mean").extents[0]);
  squashed_gaussian(c.floats("mean"), c.floats("log_std"), c.floats("noise"), actions,
                    log_probabilities);
  Floats again(log_probabilities.size());
  squashed_gaussian_log_probabilities(c.floats("mean"), c.floats("log_std"), actions, again);
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_NEAR(again[i], log_probabilities[i], 1e-4);
  return {{"actions", actions}, {"log_probabilities", log_probabilities}};
}

Results gaussian_gradient(const NumberCase& c) {
  Floats mean(c.floats("actions").size());
  Floats log_std(mean.size());
  squashed_gaussian_gradient(c.floats("log_std"), c.floats("noise"), c.floats("actions"),
                             c.floats("action_gradient"), c.floats("log_probability_gradient"),
                             mean, log_std);
  return {{"mean_gradient", mean}, {"log_std_gradient", log_std}};
}

Results epsilon(const NumberCase& c) {
  const EpsilonSchedule schedule{c.argument("first").scalar(), c.argument("last").scalar(),
                                 static_cast<std::uint64_t>(c.scalar("step_count")),
                                 c.scalar("decay") == 0 ? Decay::kLinear : Decay::kExponential};
  EXPECT_TRUE(check_schedule(schedule).ok());
  Floats out;
  for (const double step : c.argument("steps").numbers) {
    out.push_back(static_cast<float>(epsilon_at(schedule, static_cast<std::uint64_t>(step))));
  }
  return {{"epsilons", out}};
}

Results epsilons_of_actors(const NumberCase& c) {
  Floats out;
  const auto count = static_cast<std::size_t>(c.scalar("actor_count"));
  for (std::size_t actor = 0; actor < count; ++actor) {
    out.push_back(static_cast<float>(
        actor_epsilon(actor, count, c.argument("base").scalar(), c.argument("alpha").scalar())));
  }
  return {{"epsilons", out}};
}

Results greedy(const NumberCase& c) {
  std::vector<std::int32_t> actions(c.argument("explore_draws").numbers.size());
  epsilon_greedy(c.floats("values"), c.argument("epsilon").scalar(),
                 c.argument("explore_draws").numbers, c.argument("action_draws").numbers, actions);
  return {{"actions", Floats(actions.begin(), actions.end())}};
}

Results noisy_actions(const NumberCase& c) {
  Floats out(c.floats("actions").size());
  EXPECT_TRUE(add_gaussian_noise(c.floats("actions"), c.floats("normals"),
                                 {c.scalar("sigma"), c.scalar("noise_max")}, c.floats("low"),
                                 c.floats("high"), out)
                  .ok());
  return {{"noisy", out}};
}

Results ornstein_uhlenbeck(const NumberCase& c) {
  Floats state = c.floats("state");
  const OrnsteinUhlenbeckNoise noise{c.scalar("theta"), c.scalar("sigma"), c.scalar("dt"),
                                     c.scalar("mean")};
  EXPECT_TRUE(ornstein_uhlenbeck_step(noise, c.floats("normals"), state).ok());
  return {{"state", state}};
}

const std::map<std::string, std::function<Results(const NumberCase&)>>& rules() {
  static const std::map<std::string, std::function<Results(const NumberCase&)>> all = {
      {"td_targets", td},
      {"q_targets", q},
      {"double_q_targets", double_q},
      {"clipped_double_q_targets", clipped_double_q},
      {"soft_double_q_targets", soft_double_q},
      {"categorical_projection", projection},
      {"generalized_advantages", advantages},
      {"v_trace", trace},
      {"huber_losses", losses},
      {"huber_derivatives", derivatives},
      {"squashed_gaussian", gaussian},
      {"squashed_gaussian_gradient", gaussian_gradient},
      {"epsilon_at", epsilon},
      {"actor_epsilon", epsilons_of_actors},
      {"epsilon_greedy", greedy},
      {"add_gaussian_noise", noisy_actions},
      {"ornstein_uhlenbeck_step", ornstein_uhlenbeck}};
  return all;
}

std::vector<NumberCase> table() {
  return read_number_table(std::string(REVERIE_TESTS_DIR) + "/data/learning_rules.txt");
}

TEST(LearningRules, MatchTheReferenceTable) {
  std::set<std::string> seen;
  for (const NumberCase& c : table()) {
    SCOPED_TRACE(c.rule + ": " + c.about);
    seen.insert(c.rule);
    ASSERT_TRUE(rules().contains(c.rule));
    const Results results = rules().at(c.rule)(c);
    ASSERT_EQ(results.size(), c.results.size());
    for (const auto& [name, expected] : c.results) {
      const Floats& actual = results.at(name);
      ASSERT_EQ(actual.size(), expected.numbers.size()) << name;
      for (std::size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], expected.numbers[i], 2e-5 * (1 + std::abs(expected.numbers[i])))
            << name << "[" << i << "]";
      }
    }
  }
  EXPECT_EQ(seen.size(), rules().size());
}

TEST(LearningRules, ADiscountOfZeroCutsOffEverythingAfterIt) {
  const float infinite = std::numeric_limits<float>::infinity();
  const Floats one = {1};
  const Floats zero = {0};
  const Floats broken = {infinite};
  Floats target(1);
  td_targets(one, zero, broken, target);
  EXPECT_EQ(target[0], 1.0f);
  double_q_targets(one, zero, broken, broken, target);
  EXPECT_EQ(target[0], 1.0f);
  clipped_double_q_targets(one, zero, broken, broken, target);
  EXPECT_EQ(target[0], 1.0f);
  soft_double_q_targets(one, zero, broken, broken, broken, 0.2f, target);
  EXPECT_EQ(target[0], 1.0f);
  const Rollout rollout{one, zero, zero, broken, {}, 1};
  ASSERT_TRUE(generalized_advantages(rollout, 0.9f, target).ok());
  EXPECT_EQ(target[0], 1.0f);
  Floats policy(1);
  ASSERT_TRUE(v_trace(rollout, one, {}, target, policy).ok());
  EXPECT_EQ(target[0], 1.0f);
  EXPECT_EQ(policy[0], 1.0f);
}

// One row with two episodes gives the same as a row for each; the first episode is truncated.
TEST(LearningRules, EpisodesInOneRowDoNotAffectEachOther) {
  const Floats rewards = {1, 2, 3, 4};
  const Floats discounts = {0.9f, 0.9f, 0.9f, 0.9f};
  const Floats values = {0.5f, -1, 2, 0};
  const Floats next_values = {-1, 7, 0, 5};  // 7: the value of the observation at the cut
  const Floats ratios = {0.5f, 2, 1.5f, 0.25f};
  const std::vector<std::uint8_t> ends = {0, 1, 0, 1};
  const Rollout together{rewards, discounts, values, next_values, ends, 4};
  const Rollout apart{rewards, discounts, values, next_values, {}, 2};
  Floats first(4);
  Floats second(4);
  ASSERT_TRUE(generalized_advantages(together, 0.8f, first).ok());
  ASSERT_TRUE(generalized_advantages(apart, 0.8f, second).ok());
  EXPECT_EQ(first, second);
  Floats first_policy(4);
  Floats second_policy(4);
  const VTraceOptions options{0.7f, 1.2f, 1.0f};
  ASSERT_TRUE(v_trace(together, ratios, options, first, first_policy).ok());
  ASSERT_TRUE(v_trace(apart, ratios, options, second, second_policy).ok());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first_policy, second_policy);
}

TEST(LearningRules, ProjectedProbabilitiesKeepTheirSum) {
  const Floats rewards = {-100, 0.3f, 100};
  const Floats discounts = {0.99f, 0.5f, 0};
  const Floats probabilities = {0.1f, 0.2f, 0.3f, 0.4f, 0, 0, 0.5f, 0.5f, 1, 0, 0, 0};
  Floats projected(12);
  ASSERT_TRUE(categorical_projection(rewards, discounts, probabilities, -3, 3, projected).ok());
  for (std::size_t row = 0; row < 3; ++row) {
    float sum = 0;
    for (std::size_t a = 0; a < 4; ++a) sum += projected[4 * row + a];
    EXPECT_NEAR(sum, 1.0f, 1e-6);
  }
  EXPECT_EQ(projected[0], 1.0f);   // far below the support
  EXPECT_EQ(projected[11], 1.0f);  // far above
}

// tanh(u) is 1 in float32 from u = 9.1 on; the density stays finite.
TEST(LearningRules, SquashedActionsAtTheEdgeHaveFiniteDensities) {
  const Floats mean = {20, -20};
  const Floats log_std = {-5, -5};
  const Floats noise = {0, 0};
  Floats actions(2);
  Floats log_probability(1);
  squashed_gaussian(mean, log_std, noise, actions, log_probability);
  EXPECT_EQ(actions[0], 1.0f);
  // 5 - log(2 pi) / 2 - 2 (log 2 - 20) in each dimension
  EXPECT_NEAR(log_probability[0], 2 * (5 - 0.9189385 - 2 * (0.6931472 - 20)), 1e-3);
  squashed_gaussian_log_probabilities(mean, log_std, actions, log_probability);
  EXPECT_TRUE(std::isfinite(log_probability[0]));
}

TEST(LearningRules, NanIsPropagated) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Floats broken = {nan};
  const Floats one = {1};
  Floats out(1);
  for (const bool is_first : {true, false}) {
    clipped_double_q_targets(one, one, is_first ? broken : one, is_first ? one : broken, out);
    EXPECT_TRUE(std::isnan(out[0]));
  }
  for (std::size_t place = 0; place < 3; ++place) {
    Floats values = {2, 1, 3};
    values[place] = nan;
    EXPECT_EQ(greedy_action(values), place);
    q_targets(one, one, values, out);
    EXPECT_TRUE(std::isnan(out[0])) << place;
    double_q_targets(one, one, values, Floats{1, 1, 1}, out);
    EXPECT_TRUE(std::isnan(out[0])) << place;
    const Floats over = {0};
    double_q_targets(one, over, values, Floats{1, 1, 1}, out);
    EXPECT_EQ(out[0], 1.0f);
  }
  Floats advantages(1);
  const Rollout rollout{one, one, one, one, {}, 1};
  ASSERT_TRUE(v_trace(rollout, broken, {}, out, advantages).ok());
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(advantages[0]));
  Floats projected(2);
  ASSERT_TRUE(categorical_projection(broken, one, Floats{0.5f, 0.5f}, 0, 1, projected).ok());
  EXPECT_TRUE(std::isnan(projected[0]) && std::isnan(projected[1]));
  ASSERT_TRUE(huber_losses(broken, 1, out).ok());
  EXPECT_TRUE(std::isnan(out[0]));
  ASSERT_TRUE(huber_derivatives(broken, 1, out).ok());
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(LearningRules, RefuseSettingsOutOfRange) {
  Floats out(2);
  const Floats two = {1, 2};
  const Rollout rollout{two, two, two, two, {}, 2};
  EXPECT_EQ(generalized_advantages(rollout, 1.5f, out).message(),
            "lambda is 1.5; it must be between 0 and 1 (0.95 is usual)");
  EXPECT_EQ(v_trace(rollout, two, {.lambda = -1}, out, out).message(),
            "lambda is -1; it must be between 0 and 1");
  EXPECT_EQ(v_trace(rollout, two, {.rho_max = 0}, out, out).message(),
            "rho_max is 0 and advantage_rho_max is 1; both must be above 0");
  EXPECT_EQ(categorical_projection({}, {}, {}, 1, 1, {}).message(),
            "value_min is 1 and value_max is 1; both must be finite, and value_min the lower one");
  EXPECT_EQ(huber_losses(two, 0, out).message(), "delta is 0; it must be above 0 (1 is usual)");
  EXPECT_EQ(check_schedule({.first = 1.5}).message(),
            "epsilon goes from 1.5 to 0.05; both must be between 0 and 1");
  EXPECT_EQ(check_schedule({.last = 0, .decay = Decay::kExponential}).message(),
            "epsilon goes from 1 to 0; an exponential schedule neither begins nor ends at 0");
  EXPECT_EQ(add_gaussian_noise(two, two, {.sigma = -1}, two, two, out).message(),
            "sigma is -1; it must be finite and at least 0");
  EXPECT_EQ(add_gaussian_noise(two, two, {}, two, Floats{0, 9}, out).message(),
            "low[0] is 1 and high[0] is 0; low must not be above high");
  EXPECT_EQ(ornstein_uhlenbeck_step({.dt = 0}, two, out).message(),
            "dt is 0 and mean is 0; both must be finite, and dt above 0");
}

TEST(LearningRulesDeathTest, RefuseSpansThatDoNotFit) {
  const Floats one = {1};
  const Floats two = {1, 2};
  const Floats three = {1, 2, 3};
  Floats out(2);
  EXPECT_DEATH(td_targets(two, two, one, out), "invariant broken");
  EXPECT_DEATH(q_targets(two, two, three, out), "invariant broken");
  EXPECT_DEATH(double_q_targets(two, two, two, three, out), "invariant broken");
}

}  // namespace
}  // namespace reverie
