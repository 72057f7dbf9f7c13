#include "reverie/base/number_set.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(NumberSet, AgreesWithAStdSet) {
  std::mt19937 rng(5);
  NumberSet numbers;
  std::set<std::uint64_t> model;
  std::uint64_t low = 0;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t number = low + rng() % 60;
    numbers.add(number);
    model.insert(number);
    if (step % 50 == 0) {
      low += rng() % 40;
      numbers.drop_below(low);
      model.erase(model.begin(), model.lower_bound(low));
    }
    const std::uint64_t asked = low + rng() % 70;
    ASSERT_EQ(numbers.contains(asked), model.contains(asked)) << asked << " at step " << step;
    std::size_t runs = 0;
    for (const std::uint64_t held : model) runs += model.contains(held - 1) ? 0 : 1;
    ASSERT_EQ(numbers.run_count(), runs) << "at step " << step;
  }
}

TEST(NumberSet, TheLargestNumberIsNeverIn) {
  NumberSet numbers;
  for (const std::uint64_t number : {UINT64_MAX - 1, UINT64_MAX, UINT64_MAX}) numbers.add(number);
  EXPECT_TRUE(numbers.contains(UINT64_MAX - 1));
  EXPECT_FALSE(numbers.contains(UINT64_MAX));
  ASSERT_EQ(numbers.run_count(), 1u);
  EXPECT_EQ(numbers.runs()[0].end, UINT64_MAX);
}

TEST(NumberSet, ConsecutiveNumbersFormOneRun) {
  NumberSet numbers;
  for (std::uint64_t number = 1; number <= 1000; ++number) numbers.add(number);
  EXPECT_EQ(numbers.run_count(), 1u);
  EXPECT_TRUE(numbers.contains(1000));
  EXPECT_FALSE(numbers.contains(1001));
  EXPECT_FALSE(numbers.contains(0));
}

TEST(NumberSet, TheOldestRunIsDroppedBeyondTheBound) {
  NumberSet numbers;
  for (std::uint64_t run = 0; run <= NumberSet::kRunsMax; ++run) numbers.add(2 * run);
  EXPECT_EQ(numbers.run_count(), NumberSet::kRunsMax);
  EXPECT_FALSE(numbers.contains(0));
  EXPECT_TRUE(numbers.contains(2));
}

}  // namespace
}  // namespace reverie
