#include "reverie/sum_tree/priority_power.h"

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

float power_of(double priority, double exponent) {
  float weight = -1;
  priority_power(exponent, {&priority, 1}, {&weight, 1});
  return weight;
}

TEST(PriorityPower, MatchesThePowerToFloatRounding) {
  Random random(std::uint64_t{3});
  std::vector<double> priorities(1'001);
  std::vector<float> weights(priorities.size());
  for (int round = 0; round < 300; ++round) {
    const double exponent = round % 3 == 0 ? 1.0 : 3 * random.uniform();
    const double magnitude = 37 / std::max(exponent, 0.2);
    for (double& priority : priorities) {
      priority = std::pow(10.0, magnitude * (2 * random.uniform() - 1));
    }
    priority_power(exponent, priorities, weights);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double expected = std::pow(priorities[i], exponent);
      ASSERT_NEAR(static_cast<double>(weights[i]), expected, 1e-7 * expected)
          << priorities[i] << " to the power of " << exponent;
    }
  }
}

TEST(PriorityPower, PositivePrioritiesKeepAPositiveNormalWeight) {
  for (const double exponent : {0.0, 0.5, 1.0, 2.0, 50.0}) {
    for (const double priority : {DBL_TRUE_MIN, DBL_MIN, 1e-200, 1e-45, 1e-3}) {
      EXPECT_GE(power_of(priority, exponent), FLT_MIN) << priority << " ^ " << exponent;
    }
    EXPECT_EQ(power_of(1.0, exponent), 1.0f);
  }
  EXPECT_EQ(power_of(1e-300, 1.0), FLT_MIN);
  EXPECT_EQ(power_of(1e-300, 2.0), FLT_MIN);
}

TEST(PriorityPower, ALargeWeightStaysFinite) {
  EXPECT_EQ(power_of(1e300, 1.0), FLT_MAX);
  EXPECT_NEAR(power_of(1e300, 2.0) / FLT_MAX, 1, 1e-6);
  EXPECT_NEAR(power_of(std::sqrt(double{FLT_MAX}), 2.0) / FLT_MAX, 1, 1e-6);
}

TEST(PriorityPower, ZeroStaysZeroWithAnyExponent) {
  for (const double exponent : {0.0, 0.6, 1.0, 7.0}) EXPECT_EQ(power_of(0.0, exponent), 0.0f);
}

TEST(PriorityPower, WithExponentZeroAllPositivePrioritiesHaveWeightOne) {
  for (const double priority : {1e-300, 0.3, 1.0, 1e300}) EXPECT_EQ(power_of(priority, 0.0), 1.0f);
}

TEST(PriorityPower, ABatchGivesTheSameAsSinglePriorities) {
  Random random(std::uint64_t{4});
  for (std::size_t size = 0; size < 12; ++size) {
    std::vector<double> priorities(size);
    for (double& priority : priorities) priority = random.uniform() * 9;
    std::vector<float> weights(size);
    priority_power(0.6, priorities, weights);
    for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(weights[i], power_of(priorities[i], 0.6));
  }
}

}  // namespace
}  // namespace reverie
