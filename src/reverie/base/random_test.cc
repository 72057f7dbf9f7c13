#include "reverie/base/random.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Random, TheSameSeedGivesTheSameDraws) {
  Random a(std::uint64_t{7});
  Random b(std::uint64_t{7});
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(a.next(), b.next());
}

TEST(Random, DrawsMatchXoshiro256PlusPlusSeededWithSplitMix64) {
  // SplitMix64(0) gives the outputs that its authors publish. The draws come from a separate
  // implementation, which gives the published draws for the state {1, 2, 3, 4}.
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  Random random(std::uint64_t{0});
  for (const std::uint64_t draw :
       {0x53175d61490b23dfu, 0x61da6f3dc380d507u, 0x5c0fdf91ec9a7bfcu, 0x02eebf8c3bbe5e1au}) {
    EXPECT_EQ(random.next(), draw);
  }
}

TEST(Random, WithoutASeedReportsOneThatRepeatsItsDraws) {
  Random drawn(std::nullopt);
  Random again(drawn.seed());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(drawn.next(), again.next());
}

TEST(Random, UniformStaysInsideTheUnitInterval) {
  Random random(std::uint64_t{1});
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = random.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
}

TEST(Random, BelowCoversItsRangeEvenly) {
  Random random(std::uint64_t{3});
  int counts[7] = {};
  for (int i = 0; i < 70'000; ++i) ++counts[random.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

}  // namespace
}  // namespace reverie
