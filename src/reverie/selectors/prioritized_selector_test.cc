#include "reverie/selectors/prioritized_selector.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

std::unique_ptr<Prioritized> make(double exponent) {
  return Prioritized::make(exponent, std::uint64_t{7}).value();
}

TEST(Prioritized, AnExponentMustBeFiniteAndNotNegative) {
  for (const double exponent :
       {-0.1, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const auto made = Prioritized::make(exponent, std::nullopt);
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument) << exponent;
  }
  EXPECT_TRUE(Prioritized::make(0, std::nullopt).ok());
}

TEST(Prioritized, RefusesPrioritiesWithoutAFiniteWeight) {
  const auto selector = make(2.0);
  for (const double priority :
       {-1e-9, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), 1e20, 1e300}) {
    EXPECT_EQ(selector->check_priority(priority).code(), StatusCode::kInvalidArgument) << priority;
  }
  for (const double priority : {0.0, 1e-300, 1.0, 1e19}) {
    EXPECT_TRUE(selector->check_priority(priority).ok()) << priority;
  }
  EXPECT_TRUE(make(0)->check_priority(1e300).ok());
}

TEST(Prioritized, TheLargestAcceptedPriorityHasAFiniteWeight) {
  for (const double exponent : {0.6, 1.0, 3.0}) {
    const auto selector = make(exponent);
    double accepted = 1;
    double refused = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 2'000; ++i) {  // a binary search for the bound, to the last bit
      const double middle =
          std::isinf(refused) ? accepted * 2 : accepted + (refused - accepted) / 2;
      (selector->check_priority(middle).ok() ? accepted : refused) = middle;
    }
    selector->insert(0, accepted);
    selector->insert(1, 0);
    std::vector<Slot> slots(10);
    std::vector<double> probabilities(10);
    selector->draw(slots, probabilities);
    for (const double probability : probabilities) EXPECT_EQ(probability, 1.0);
    EXPECT_NEAR(std::pow(accepted, exponent) / FLT_MAX, 1, 1e-6);
  }
}

TEST(Prioritized, AnItemOfPriorityZeroIsDrawnOnlyIfAllAreZero) {
  const auto selector = make(0.0);
  for (Slot slot = 0; slot < 1'000; ++slot) selector->insert(slot, 0);
  selector->insert(1'000, 1e-300);
  std::vector<Slot> slots(10'000);
  std::vector<double> probabilities(slots.size());
  selector->draw(slots, probabilities);
  EXPECT_EQ(std::count(slots.begin(), slots.end(), Slot{1'000}), 10'000);
  selector->erase(1'000);
  selector->draw(slots, probabilities);
  EXPECT_EQ(probabilities[0], 1e-3);
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  EXPECT_GT(slots.size(), 990u);  // with 10 draws per slot hardly any is left out
}

TEST(Prioritized, DistinctDrawsTakeHeavyItemsFirstAndEventuallyAll) {
  // The weight of each item is a thousandth of the one before, down to 0.
  constexpr std::size_t kItems = 30;
  const auto selector = make(1.0);
  std::vector<double> priorities(kItems);
  for (Slot slot = 0; slot < kItems; ++slot) {
    priorities[slot] = slot < 25 ? std::pow(10.0, 37 - 3.0 * slot) : 0;
    selector->insert(slot, priorities[slot]);
  }
  std::vector<Slot> slots(kItems);
  std::vector<double> probabilities(kItems);
  for (int repeat = 0; repeat < 100; ++repeat) {
    ASSERT_EQ(selector->draw_distinct(slots, probabilities), kItems);
    std::vector<double> left = priorities;
    std::size_t left_count = kItems;
    for (std::size_t i = 0; i < kItems; ++i) {
      double total = 0;
      for (const double priority : left) total += priority;
      const double expected =
          total > 0 ? left[slots[i]] / total : 1.0 / static_cast<double>(left_count);
      ASSERT_NEAR(probabilities[i], expected, 1e-6 * expected) << "draw " << i;
      left[slots[i]] = 0;
      --left_count;
    }
    std::sort(slots.begin(), slots.end());
    for (Slot slot = 0; slot < kItems; ++slot) ASSERT_EQ(slots[slot], slot);
  }
}

TEST(Prioritized, UpdatesTakeEffectDuringAndAfterDistinctDraws) {
  const auto selector = make(1.0);
  for (Slot slot = 0; slot < 5'000; ++slot) selector->insert(slot, 1);
  std::vector<Slot> slots(2'000);
  std::vector<double> probabilities(slots.size());
  ASSERT_EQ(selector->draw_distinct(slots, probabilities), slots.size());
  const std::vector<double> zeros(slots.size(), 0.0);
  selector->update(slots, zeros);
  std::vector<Slot> rest(5'000);
  std::vector<double> rest_probabilities(rest.size());
  selector->draw(rest, rest_probabilities);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    ASSERT_EQ(rest_probabilities[i], 1.0 / 3'000);
    ASSERT_EQ(std::count(slots.begin(), slots.end(), rest[i]), 0);
  }
}

}  // namespace
}  // namespace reverie
