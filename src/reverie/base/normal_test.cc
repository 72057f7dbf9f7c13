#include "reverie/base/normal.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

// The Kolmogorov-Smirnov distance; 200,000 true normal draws exceed the bound for one seed in 10^6.
TEST(Normal, DrawsFollowTheNormalDistribution) {
  Random random(std::uint64_t{17});
  std::vector<double> draws(200'000);
  fill_normal<double>(random, draws);
  std::sort(draws.begin(), draws.end());
  double distance = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double expected = 0.5 * std::erfc(-draws[i] / std::sqrt(2.0));
    const double below = static_cast<double>(i) / static_cast<double>(draws.size());
    distance = std::max(distance, std::abs(expected - below));
  }
  EXPECT_LT(distance, 2.7 / std::sqrt(static_cast<double>(draws.size())));
}

TEST(Normal, TheNumbersOfAPairAreUncorrelated) {
  Random random(std::uint64_t{18});
  double sum = 0;
  constexpr int kPairs = 100'000;
  for (int i = 0; i < kPairs; ++i) {
    const NormalPair pair = normal_pair(random);
    sum += pair.first * pair.second;
  }
  EXPECT_LT(std::abs(sum) / kPairs, 5 / std::sqrt(static_cast<double>(kPairs)));
}

TEST(Normal, ASeedRepeatsTheDrawsAndAnOddLengthIsFilled) {
  Random first(std::uint64_t{3});
  Random second(std::uint64_t{3});
  std::vector<float> odd(7, 100.0f);
  std::vector<float> even(8);
  fill_normal<float>(first, odd);
  fill_normal<float>(second, even);
  for (std::size_t i = 0; i < odd.size(); ++i) EXPECT_EQ(odd[i], even[i]);
}

}  // namespace
}  // namespace reverie
