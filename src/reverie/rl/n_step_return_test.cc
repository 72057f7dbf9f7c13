#include "reverie/rl/n_step_return.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

std::vector<float> returns_of(const std::vector<float>& rewards,
                              const std::vector<float>& discounts,
                              const std::vector<float>& bootstrap) {
  std::vector<float> returns(bootstrap.size(), -1.0f);
  n_step_returns(rewards, discounts, bootstrap, returns);
  return returns;
}

TEST(NStepReturn, MatchesATableWorkedByHand) {
  // 1 + .5 * 1 + .25 * 1 + .125 * 10
  EXPECT_EQ(returns_of({1, 1, 1}, {.5f, .5f, .5f}, {10}), std::vector<float>{3.0f});
  // 2 - .5 * 4 + .25 * 8 + .125 * 0
  EXPECT_EQ(returns_of({2, -4, 8}, {.5f, .5f, .5f}, {0}), std::vector<float>{2.0f});
  // One step is the target of plain Q-learning: r + gamma v.
  EXPECT_EQ(returns_of({3}, {.75f}, {4}), std::vector<float>{6.0f});
}

TEST(NStepReturn, TerminationCutsOffTheBootstrapAndLaterRewards) {
  EXPECT_EQ(returns_of({1, 1, 1}, {.5f, 0, .5f}, {10}), std::vector<float>{1.5f});
  EXPECT_EQ(returns_of({1, 1, 1}, {.5f, .5f, 0}, {10}), std::vector<float>{1.75f});
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(returns_of({1, 1}, {.5f, 0}, {infinite}), std::vector<float>{1.5f});
}

TEST(NStepReturn, StepsOfRewardZeroAndDiscountOnePadAShortWindow) {
  // Two steps before a time limit: 1 + .5 * 1 + .25 * 10, however many steps follow.
  EXPECT_EQ(returns_of({1, 1}, {.5f, .5f}, {10}), std::vector<float>{4.0f});
  EXPECT_EQ(returns_of({1, 1, 0}, {.5f, .5f, 1}, {10}), std::vector<float>{4.0f});
  EXPECT_EQ(returns_of({1, 1, 0, 0}, {.5f, .5f, 1, 1}, {10}), std::vector<float>{4.0f});
}

// The model computes the definition with powers and sums in double precision.
TEST(NStepReturn, OfABatchAgreesWithTheDefinitionWindowByWindow) {
  constexpr std::size_t kWindows = 37;
  constexpr std::size_t kSteps = 5;
  Random random(std::uint64_t{5});
  std::vector<float> rewards(kWindows * kSteps);
  std::vector<float> discounts(kWindows * kSteps);
  std::vector<float> bootstrap(kWindows);
  for (float& r : rewards) r = static_cast<float>(random.uniform() - 0.5);
  for (float& d : discounts) d = random.below(5) == 0 ? 0.0f : 0.99f;
  for (float& v : bootstrap) v = static_cast<float>(100 * random.uniform());
  const std::vector<float> returns = returns_of(rewards, discounts, bootstrap);
  for (std::size_t window = 0; window < kWindows; ++window) {
    double sum = 0;
    double discount = 1;
    for (std::size_t t = 0; t < kSteps; ++t) {
      sum += discount * rewards[window * kSteps + t];
      discount *= discounts[window * kSteps + t];
    }
    sum += discount * bootstrap[window];
    EXPECT_NEAR(returns[window], sum, 1e-4) << "window " << window;
  }
}

TEST(NStepReturn, OfNoWindowsIsEmpty) {
  EXPECT_TRUE(returns_of({}, {}, {}).empty());
}

TEST(NStepReturnDeathTest, RefusesSpansThatDoNotFit) {
  EXPECT_DEATH(returns_of({1, 1, 1}, {.5f, .5f, .5f}, {1, 2}), "invariant broken");
  EXPECT_DEATH(returns_of({1, 1}, {.5f}, {1}), "invariant broken");
  EXPECT_DEATH(returns_of({}, {}, {1}), "invariant broken");
}

}  // namespace
}  // namespace reverie
