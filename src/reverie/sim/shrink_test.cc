#include "reverie/sim/shrink.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace reverie::sim {
namespace {

using Numbers = std::vector<int>;

bool has(const Numbers& numbers, int wanted) {
  return std::ranges::find(numbers, wanted) != numbers.end();
}

TEST(Shrink, KeepsTheNeededFaultsInOrder) {
  Numbers all(100);
  std::iota(all.begin(), all.end(), 0);
  int runs = 0;
  const Numbers few = shrink<int>(all, [&](const Numbers& faults) {
    ++runs;
    return has(faults, 3) && has(faults, 50) && has(faults, 97);
  });
  EXPECT_EQ(few, (Numbers{3, 50, 97}));
  EXPECT_LT(runs, 200);
}

TEST(Shrink, NothingIsLeftOfARunThatFailsWithoutFaults) {
  EXPECT_TRUE(shrink<int>({1, 2, 3}, [](const Numbers&) { return true; }).empty());
  EXPECT_TRUE(shrink<int>({}, [](const Numbers&) { return true; }).empty());
}

// Sometimes only two can be left out together; then each one that remains is needed.
TEST(Shrink, EachRemainingFaultIsNeeded) {
  const auto fails = [](const Numbers& faults) {
    return faults.size() >= 4 && faults.size() % 2 == 0;
  };
  Numbers all(64);
  const Numbers few = shrink<int>(all, fails);
  EXPECT_TRUE(fails(few));
  for (std::size_t i = 0; i < few.size(); ++i) {
    Numbers fewer = few;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(fails(fewer));
  }
}

}  // namespace
}  // namespace reverie::sim
