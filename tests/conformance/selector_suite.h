// What every Selector must do, compared with a model that gives each item's probability.
//
// A selector joins with one line in a test file:
//
//     INSTANTIATE_TEST_SUITE_P(Fifo, SelectorSuite, ::testing::Values(SelectorKind{
//         "Fifo", [] { return std::make_unique<Fifo>(); }, oldest_inserted}));
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/selectors/selector.h"
#include "tests/scale.h"

namespace reverie::testing {

struct SelectorItem {
  Slot slot = kNoSlot;
  double priority = 0;
  std::uint64_t inserted = 0;  // higher for items inserted later
  std::uint64_t renewed = 0;   // higher for items inserted or updated later
};

struct SelectorKind {
  std::string name;  // what Selector::name() returns
  // Makes a selector; one that draws at random has a fixed seed.
  std::function<std::unique_ptr<Selector>()> make;
  // The probability of each item to be drawn next. Requires at least one item.
  std::function<std::vector<double>(std::span<const SelectorItem>)> probabilities;
  // Priorities that the tests give to items.
  std::vector<double> priorities = {0, 0.25, 1, 1, 3, 7, 100};
};

inline std::ostream& operator<<(std::ostream& out, const SelectorKind& kind) {
  return out << kind.name;
}

// Probability 1 for the first item in the order `before`.
template <typename Before>
std::vector<double> first_by(std::span<const SelectorItem> items, Before before) {
  std::vector<double> probabilities(items.size());
  const auto first = std::min_element(items.begin(), items.end(), before);
  probabilities[static_cast<std::size_t>(first - items.begin())] = 1;
  return probabilities;
}

class SelectorSuite : public ::testing::TestWithParam<SelectorKind> {
 protected:
  // A selector, and the items that it should hold.
  struct Pair {
    std::unique_ptr<Selector> selector;
    std::vector<SelectorItem> items;
    std::uint64_t now = 0;

    // Uses the lowest free slot, as a table does.
    Slot insert(double priority) {
      std::set<Slot> used;
      for (const SelectorItem& item : items) used.insert(item.slot);
      Slot slot = 0;
      while (used.contains(slot)) ++slot;
      insert(slot, priority);
      return slot;
    }
    void insert(Slot slot, double priority) {
      selector->insert(slot, priority);
      ++now;
      items.push_back({slot, priority, now, now});
    }
    void update(std::span<const Slot> slots, std::span<const double> priorities) {
      selector->update(slots, priorities);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        SelectorItem& item = *std::find_if(items.begin(), items.end(), [&](const auto& candidate) {
          return candidate.slot == slots[i];
        });
        item.priority = priorities[i];
        item.renewed = ++now;
      }
    }
    void erase(std::size_t i) {
      selector->erase(items[i].slot);
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
    }
    void replace(std::span<const Slot> slots, double priority) {
      selector->replace(slots, priority);
      for (const Slot slot : slots) {
        ++now;
        *std::ranges::find(items, slot, &SelectorItem::slot) = {slot, priority, now, now};
      }
    }
  };

  Pair make() { return {GetParam().make(), {}}; }
  double any_priority() {
    return GetParam().priorities[random_.below(GetParam().priorities.size())];
  }

  // Slots of some items, without repeats; half of the time the oldest ones, in order of insertion.
  std::vector<Slot> some_slots(std::vector<SelectorItem> items) {
    std::ranges::sort(items, {}, &SelectorItem::inserted);
    if (random_.below(2) == 0) {
      for (std::size_t i = items.size(); i > 1; --i) {
        std::swap(items[i - 1], items[random_.below(i)]);
      }
    }
    items.resize(random_.below(items.size() + 1));
    std::vector<Slot> slots;
    for (const SelectorItem& item : items) slots.push_back(item.slot);
    return slots;
  }

  // Checks that `slot` may be drawn from the items with `probability`. Returns the item's index.
  std::size_t expect_drawn(std::span<const SelectorItem> items, Slot slot, double probability) {
    const std::vector<double> expected = GetParam().probabilities(items);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].slot != slot) continue;
      EXPECT_GT(expected[i], 0) << "slot " << slot << " is not to be drawn now";
      EXPECT_NEAR(probability, expected[i], 1e-6 * expected[i]) << "slot " << slot;
      return i;
    }
    ADD_FAILURE() << "slot " << slot << " is not in";
    return 0;
  }
  void expect_draws(Pair& pair, std::size_t count) {
    std::vector<Slot> slots(count);
    std::vector<double> probabilities(count);
    pair.selector->draw(slots, probabilities);
    for (std::size_t i = 0; i < count; ++i) {
      expect_drawn(pair.items, slots[i], probabilities[i]);
    }
  }
  void expect_distinct_draws(Pair& pair, std::size_t count) {
    std::vector<Slot> slots(count, kNoSlot);
    std::vector<double> probabilities(count, -1);
    const std::size_t drawn = pair.selector->draw_distinct(slots, probabilities);
    ASSERT_EQ(drawn, std::min(count, pair.items.size()));
    std::vector<SelectorItem> left = pair.items;
    for (std::size_t i = 0; i < drawn; ++i) {
      const std::size_t place = expect_drawn(left, slots[i], probabilities[i]);
      if (HasFailure()) return;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(place));
    }
    ASSERT_EQ(pair.selector->size(), pair.items.size());
  }

  Random random_{std::uint64_t{5}};
};

TEST_P(SelectorSuite, AgreesWithItsModelInAnySequenceOfCalls) {
  for (const std::size_t size_max : {3, 12, 60}) {
    Pair pair = make();
    for (std::int64_t step = 0; step < scaled(1'500, 20'000) && !HasFailure(); ++step) {
      const std::uint64_t action = random_.below(11);
      if (action == 10) {
        pair.replace(some_slots(pair.items), any_priority());
      } else if (action < 4 && pair.items.size() < size_max) {
        pair.insert(any_priority());
      } else if (action == 4 && !pair.items.empty()) {
        pair.erase(random_.below(pair.items.size()));
      } else if (action == 5) {
        std::vector<Slot> slots(pair.items.empty() ? 0 : random_.below(6));  // with repeats
        std::vector<double> priorities(slots.size());
        for (std::size_t i = 0; i < slots.size(); ++i) {
          slots[i] = pair.items[random_.below(pair.items.size())].slot;
          priorities[i] = any_priority();
        }
        pair.update(slots, priorities);
      } else if (action < 8) {
        expect_draws(pair, pair.items.empty() ? 0 : random_.below(5));
      } else {
        expect_distinct_draws(pair, random_.below(size_max + 3));
      }
      ASSERT_EQ(pair.selector->size(), pair.items.size()) << "step " << step;
    }
  }
}

// The bound on chi-square is about the 1 - 1e-4 quantile for 11 degrees of freedom.
TEST_P(SelectorSuite, DrawFrequenciesMatchTheirProbabilities) {
  constexpr std::size_t kItems = 12;
  constexpr std::size_t kDraws = 100'000;
  Pair pair = make();
  for (std::size_t i = 0; i < kItems; ++i) pair.insert(any_priority());
  std::vector<Slot> slots(kDraws);
  std::vector<double> probabilities(kDraws);
  pair.selector->draw(slots, probabilities);
  std::vector<double> counts(kItems);
  for (const Slot slot : slots) ++counts[slot];
  const std::vector<double> expected = GetParam().probabilities(pair.items);
  double chi_square = 0;
  for (std::size_t i = 0; i < kItems; ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "slot " << i;
    } else {
      const double mean = expected[i] * kDraws;
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
  }
  EXPECT_LT(chi_square, 40);
}

// The distribution of the second of two distinct draws is a sum over all first draws.
TEST_P(SelectorSuite, DistinctDrawFrequenciesMatchTheirProbabilities) {
  constexpr std::size_t kItems = 5;
  constexpr int kDraws = 40'000;
  Pair pair = make();
  for (std::size_t i = 0; i < kItems; ++i) pair.insert(GetParam().priorities[i]);
  std::vector<double> expected(kItems);
  const std::vector<double> first = GetParam().probabilities(pair.items);
  for (std::size_t i = 0; i < kItems; ++i) {
    if (first[i] == 0) continue;
    std::vector<SelectorItem> left = pair.items;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<double> second = GetParam().probabilities(left);
    for (std::size_t k = 0; k < left.size(); ++k) expected[left[k].slot] += first[i] * second[k];
  }
  std::vector<double> counts(kItems);
  for (int draw = 0; draw < kDraws; ++draw) {
    Slot slots[2];
    double probabilities[2];
    ASSERT_EQ(pair.selector->draw_distinct(slots, probabilities), 2u);
    ++counts[slots[1]];
  }
  double chi_square = 0;
  for (std::size_t i = 0; i < kItems; ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "slot " << i;
    } else {
      const double mean = expected[i] * kDraws;
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
  }
  EXPECT_LT(chi_square, 27);
}

TEST_P(SelectorSuite, GrowsByThousandsAndReusesSlots) {
  constexpr Slot kSlots = 20'000;
  Pair pair = make();
  Selector& selector = *pair.selector;
  std::vector<Slot> slots(kSlots);
  std::iota(slots.begin(), slots.end(), Slot{0});
  const std::size_t empty_bytes = selector.memory_bytes();
  for (int round = 0; round < 2; ++round) {
    for (const Slot slot : slots) selector.insert(slot, any_priority());
    ASSERT_EQ(selector.size(), kSlots);
    std::vector<Slot> all(kSlots + 1);
    std::vector<double> probabilities(kSlots + 1);
    ASSERT_EQ(selector.draw_distinct(all, probabilities), kSlots);
    all.pop_back();
    std::sort(all.begin(), all.end());
    ASSERT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
    ASSERT_EQ(all.back(), kSlots - 1);
    // Erases in another order than that of insertion.
    std::vector<Slot> order = slots;
    for (Slot i = kSlots - 1; i > 0; --i) std::swap(order[i], order[random_.below(i + 1)]);
    for (const Slot slot : order) selector.erase(slot);
    ASSERT_EQ(selector.size(), 0u);
  }
  EXPECT_LT(selector.memory_bytes() - empty_bytes, std::size_t{kSlots} * 50);
  EXPECT_GT(selector.memory_bytes(), empty_bytes);
  pair.insert(kSlots / 2, any_priority());
  expect_draws(pair, 3);
}

TEST_P(SelectorSuite, NothingIsDrawnFromAnEmptySelector) {
  const auto selector = GetParam().make();
  EXPECT_EQ(selector->size(), 0u);
  selector->draw({}, {});
  selector->update({}, {});
  Slot slot = kNoSlot;
  double probability = -1;
  EXPECT_EQ(selector->draw_distinct({&slot, 1}, {&probability, 1}), 0u);
  EXPECT_EQ(slot, kNoSlot);
}

TEST_P(SelectorSuite, NanIsRefused) {
  const auto selector = GetParam().make();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(selector->check_priority(nan).code(), StatusCode::kInvalidArgument);
  for (const double priority : GetParam().priorities) {
    EXPECT_TRUE(selector->check_priority(priority).ok()) << priority;
  }
}

TEST_P(SelectorSuite, ManyPrioritiesAreHeldIfEachOneIs) {
  const auto selector = GetParam().make();
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double odd : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity, kMax,
                           -kMax, -1.0, -0.0, 0.0, 3.5e38, 1e39}) {
    std::vector<double> priorities = GetParam().priorities;
    EXPECT_TRUE(selector->holds_all(priorities));
    priorities.push_back(odd);
    EXPECT_EQ(selector->holds_all(priorities), selector->check_priority(odd).ok()) << odd;
  }
}

TEST_P(SelectorSuite, MakeEmptyCopiesOnlyTheName) {
  Pair pair = make();
  for (int i = 0; i < 10; ++i) pair.insert(any_priority());
  Pair twin{pair.selector->make_empty(), {}};
  EXPECT_EQ(twin.selector->name(), GetParam().name);
  EXPECT_EQ(twin.selector->size(), 0u);
  EXPECT_EQ(pair.selector->size(), 10u);
  expect_distinct_draws(pair, 10);
  for (int i = 0; i < 10; ++i) twin.insert(any_priority());
  expect_draws(twin, 20);
  expect_distinct_draws(twin, 10);
}

TEST_P(SelectorSuite, TheSameSeedGivesTheSameRunAlsoAfterMakeEmpty) {
  std::optional<std::vector<Slot>> run;
  for (int repeat = 0; repeat < 2; ++repeat) {
    Pair pair = make();
    Random random(std::uint64_t{6});
    std::vector<Slot> drawn;
    for (int life = 0; life < 2; ++life) {
      for (int i = 0; i < 30; ++i) pair.insert(GetParam().priorities[random.below(5)]);
      std::vector<Slot> slots(20);
      std::vector<double> probabilities(20);
      pair.selector->draw(slots, probabilities);
      drawn.insert(drawn.end(), slots.begin(), slots.end());
      pair.selector->draw_distinct(slots, probabilities);
      drawn.insert(drawn.end(), slots.begin(), slots.end());
      pair = {pair.selector->make_empty(), {}};
    }
    if (run) {
      EXPECT_EQ(*run, drawn);
    }
    run = drawn;
  }
}

}  // namespace reverie::testing
