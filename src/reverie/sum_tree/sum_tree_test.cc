#include "reverie/sum_tree/sum_tree.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

std::string name_of(SumTree::Kernel kernel) {
  switch (kernel) {
    case SumTree::Kernel::kBest:
      return "Best";
    case SumTree::Kernel::kAvx2:
      return "Avx2";
    case SumTree::Kernel::kPortable:
      return "Portable";
  }
  return "";
}

// The tests run for the best kernel of this processor and for the simpler ones.
class SumTreeTest : public ::testing::TestWithParam<SumTree::Kernel> {
 protected:
  SumTree tree_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Kernels, SumTreeTest,
                         ::testing::Values(SumTree::Kernel::kBest, SumTree::Kernel::kAvx2,
                                           SumTree::Kernel::kPortable),
                         [](const auto& kernel) { return name_of(kernel.param); });

// The model keeps all slots in the tree's order, and searches them from the left.
class Scan {
 public:
  explicit Scan(std::size_t slot_count) : weights_(slot_count), order_(slot_count) {
    std::iota(order_.begin(), order_.end(), Slot{0});
    std::sort(order_.begin(), order_.end(),
              [](Slot a, Slot b) { return SumTree::order_of(a) < SumTree::order_of(b); });
  }
  float& weight(Slot slot) { return weights_[slot]; }
  double total() const {
    double sum = 0;
    for (const float weight : weights_) sum += static_cast<double>(weight);
    return sum;
  }
  Slot find(double mass) const {
    double below = 0;
    for (const Slot slot : order_) {
      below += static_cast<double>(weights_[slot]);
      if (below > mass) return slot;
    }
    return kNoSlot;
  }

 private:
  std::vector<float> weights_;
  std::vector<Slot> order_;
};

std::pair<Slot, float> find_one(SumTree& tree, double mass) {
  Slot slot = kNoSlot;
  float weight = -1;
  tree.find({&mass, 1}, {&slot, 1}, {&weight, 1});
  return {slot, weight};
}

// Compares draws with the exact distribution: by how many standard deviations chi-square exceeds
// its mean. Slots with an expected count below 20 are combined.
double chi_square_excess(const std::vector<std::uint32_t>& counts,
                         const std::vector<double>& probabilities, double draw_count) {
  double chi_square = 0;
  double degrees = -1;
  double rare_count = 0;
  double rare_expected = 0;
  const auto add = [&](double count, double expected) {
    chi_square += (count - expected) * (count - expected) / expected;
    degrees += 1;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * draw_count;
    if (expected >= 20) {
      add(counts[i], expected);
    } else {
      rare_count += counts[i];
      rare_expected += expected;
    }
  }
  if (rare_expected > 0) add(rare_count, rare_expected);
  return (chi_square - degrees) / std::sqrt(2 * degrees);
}

TEST_P(SumTreeTest, AgreesWithALinearScan) {
  constexpr std::size_t kSlots = 10'000;  // three segments, and a level on top
  Random random(std::uint64_t{7});
  Scan scan(kSlots);
  tree_.reach(kSlots - 1);
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 40; ++i) {
      const auto slot = static_cast<Slot>(random.below(kSlots));
      scan.weight(slot) = static_cast<float>(random.below(9));  // whole numbers: sums are exact
      tree_.set(slot, scan.weight(slot));
    }
    ASSERT_EQ(tree_.total(), scan.total()) << "round " << round;
    if (tree_.total() == 0) continue;
    for (int i = 0; i < 5; ++i) {
      const double mass =
          static_cast<double>(random.below(static_cast<std::uint64_t>(tree_.total()))) +
          random.uniform();
      const auto [slot, weight] = find_one(tree_, mass);
      ASSERT_EQ(slot, scan.find(mass)) << "mass " << mass << " of " << tree_.total();
      ASSERT_EQ(weight, scan.weight(slot));
    }
  }
}

TEST_P(SumTreeTest, ABatchFindsTheSameAsSingleLookups) {
  constexpr std::size_t kSlots = 70'000;  // two levels on top
  Random random(std::uint64_t{8});
  tree_.reach(kSlots - 1);
  for (Slot slot = 0; slot < kSlots; ++slot) {
    if (random.below(3) > 0) tree_.set(slot, static_cast<float>(random.uniform() + 1e-6));
  }
  for (const std::size_t batch : {0, 1, 3, 63, 64, 65, 1000}) {
    std::vector<double> masses(batch);
    for (double& mass : masses) mass = random.uniform() * tree_.total();
    std::vector<Slot> slots(batch);
    std::vector<float> weights(batch);
    tree_.find(masses, slots, weights);
    for (std::size_t i = 0; i < batch; ++i) {
      ASSERT_EQ(find_one(tree_, masses[i]), std::pair(slots[i], weights[i])) << "of " << batch;
    }
  }
}

TEST_P(SumTreeTest, TheLastWeightOfARepeatedSlotInABatchWins) {
  tree_.reach(10'000);
  const std::vector<Slot> slots = {3, 9'000, 3, 4, 3};
  const std::vector<float> weights = {1, 2, 4, 8, 16};
  tree_.update(slots, weights);
  EXPECT_EQ(tree_.weight(3), 16);
  EXPECT_EQ(tree_.total(), 26);
}

TEST_P(SumTreeTest, BatchesOfAnySizeGiveTheSameTree) {
  constexpr std::size_t kSlots = 100'000;
  Random random(std::uint64_t{9});
  SumTree one_by_one(GetParam());
  tree_.reach(kSlots - 1);
  one_by_one.reach(kSlots - 1);
  for (const std::size_t batch : {1, 1023, 1024, 1025, 5000}) {
    std::vector<Slot> slots(batch);
    std::vector<float> weights(batch);
    for (std::size_t i = 0; i < batch; ++i) {
      slots[i] = static_cast<Slot>(random.below(kSlots));
      weights[i] = static_cast<float>(random.uniform());
    }
    tree_.update(slots, weights);
    for (std::size_t i = 0; i < batch; ++i) {
      one_by_one.set(slots[i], weights[i]);
      if (i % 100 == 0) one_by_one.total();  // refreshes the sums in between
    }
    ASSERT_EQ(tree_.total(), one_by_one.total()) << "batch of " << batch;
    for (int i = 0; i < 100; ++i) {
      const double mass = random.uniform() * tree_.total();
      ASSERT_EQ(find_one(tree_, mass), find_one(one_by_one, mass));
    }
  }
}

TEST_P(SumTreeTest, GrowsAndKeepsItsSums) {
  Random random(std::uint64_t{10});
  double sum = 0;
  Slot reached = 0;
  // Grows through one segment, one level (16), two levels (256) and into the third, with and
  // without a refresh between two segments.
  for (Slot slot = 0; slot < 300 * 4096; slot += 1 + static_cast<Slot>(random.below(3000))) {
    tree_.reach(slot);
    ASSERT_GT(tree_.capacity(), slot);
    ASSERT_EQ(tree_.weight(slot), 0);
    tree_.set(slot, 3);
    sum += 3;
    reached = slot;
    if (random.below(4) == 0) {
      ASSERT_EQ(tree_.total(), sum) << "slot " << slot;
    }
    if (random.below(16) == 0) {
      ASSERT_EQ(find_one(tree_, tree_.total() - 1).second, 3);
    }
  }
  ASSERT_EQ(tree_.total(), sum);
  EXPECT_GT(reached, 256u * 4096u);
}

TEST_P(SumTreeTest, TheSumsDependOnlyOnTheWeightsHoweverManyUpdates) {
  constexpr std::size_t kSlots = 5'000;
  Random random(std::uint64_t{11});
  tree_.reach(kSlots - 1);
  std::vector<float> weights(kSlots);
  const auto any_weight = [&] {
    return static_cast<float>(std::pow(10.0, -30 + 60 * random.uniform()));
  };
  for (int i = 0; i < 1'000'000; ++i) {
    const auto slot = static_cast<Slot>(random.below(kSlots));
    tree_.set(slot, any_weight());
  }
  for (Slot slot = 0; slot < kSlots; ++slot) {
    weights[slot] = static_cast<float>(random.uniform() * 1e-30 + 1e-32);
    tree_.set(slot, weights[slot]);
  }
  SumTree fresh(GetParam());
  fresh.reach(kSlots - 1);
  for (Slot slot = 0; slot < kSlots; ++slot) fresh.set(slot, weights[slot]);
  EXPECT_EQ(tree_.total(), fresh.total());  // equal bits
  for (int i = 0; i < 1000; ++i) {
    const double mass = random.uniform() * tree_.total();
    ASSERT_EQ(find_one(tree_, mass), find_one(fresh, mass));
  }
}

TEST_P(SumTreeTest, ASlotOfWeightZeroIsNeverDrawnWhateverTheOthersWeigh) {
  // A few changing weights of all magnitudes among zeros: only slots with weight are drawn.
  constexpr std::size_t kSlots = 9'000;
  constexpr std::size_t kBatch = 1'000;
  Random random(std::uint64_t{12});
  RandomLanes lanes(random);
  tree_.reach(kSlots - 1);
  std::vector<Slot> slots(kBatch);
  std::vector<double> probabilities(kBatch);
  for (int round = 0; round < 10'000; ++round) {
    for (int i = 0; i < 3; ++i) {
      const auto slot = static_cast<Slot>(random.below(kSlots));
      const double magnitude = -37 + 75 * random.uniform();
      tree_.set(slot, random.below(2) == 0 ? 0 : static_cast<float>(std::pow(10.0, magnitude)));
    }
    tree_.set(static_cast<Slot>(random.below(kSlots)), 1);
    if (round % 100 == 0) {
      for (Slot slot = 0; slot < kSlots; ++slot) tree_.set(slot, 0);
      tree_.set(static_cast<Slot>(random.below(kSlots)), FLT_MIN);
      tree_.set(static_cast<Slot>(random.below(kSlots)), FLT_MAX);
    }
    tree_.draw(lanes, slots, probabilities);
    for (std::size_t i = 0; i < kBatch; ++i) {
      ASSERT_GT(tree_.weight(slots[i]), 0) << "round " << round;
      ASSERT_EQ(probabilities[i], static_cast<double>(tree_.weight(slots[i])) / tree_.total());
    }
  }
}

TEST_P(SumTreeTest, AMassAtTheVeryEndFindsASlotWithNonzeroWeight) {
  Random random(std::uint64_t{13});
  constexpr std::size_t kSlots = 20'000;
  tree_.reach(kSlots - 1);
  for (int round = 0; round < 2'000; ++round) {
    for (int i = 0; i < 4; ++i) {
      const double magnitude = -30 + 60 * random.uniform();
      tree_.set(static_cast<Slot>(random.below(kSlots)),
                static_cast<float>(std::pow(10.0, magnitude)));
      tree_.set(static_cast<Slot>(random.below(kSlots)), 0);
    }
    double mass = tree_.total();
    for (int i = 0; i < 4; ++i) {
      mass = std::nextafter(mass, 0.0);
      const auto [slot, weight] = find_one(tree_, mass);
      ASSERT_GT(weight, 0);
      ASSERT_EQ(weight, tree_.weight(slot));
    }
  }
}

TEST_P(SumTreeTest, TenMillionDrawsFollowTheWeights) {
  constexpr std::size_t kSlots = 20'000;
  constexpr std::size_t kBatch = 1'000;
  constexpr int kBatches = 10'000;
  Random random(std::uint64_t{14});
  RandomLanes lanes(random);
  tree_.reach(kSlots - 1);
  double total = 0;
  for (Slot slot = 0; slot < kSlots; ++slot) {
    // A tenth of the weights is 0; the others span four orders of magnitude.
    const double weight = random.below(10) == 0 ? 0 : std::pow(10.0, -4 * random.uniform());
    tree_.set(slot, static_cast<float>(weight));
    total += static_cast<double>(static_cast<float>(weight));
  }
  std::vector<double> expected(kSlots);
  for (Slot slot = 0; slot < kSlots; ++slot) {
    expected[slot] = static_cast<double>(tree_.weight(slot)) / total;
  }
  std::vector<std::uint32_t> counts(kSlots);
  std::vector<Slot> slots(kBatch);
  std::vector<double> probabilities(kBatch);
  for (int batch = 0; batch < kBatches; ++batch) {
    tree_.draw(lanes, slots, probabilities);
    for (const Slot slot : slots) ++counts[slot];
  }
  EXPECT_LT(std::abs(chi_square_excess(counts, expected, kBatch * kBatches)), 4);
}

TEST(SumTree, TheChiSquareTestDetectsAnErrorOfOnePercent) {
  // Tests the test: it must notice draws from weights that are off by one percent.
  constexpr std::size_t kSlots = 1'000;
  Random random(std::uint64_t{15});
  RandomLanes lanes(random);
  SumTree tree;
  tree.reach(kSlots - 1);
  for (Slot slot = 0; slot < kSlots; ++slot) tree.set(slot, slot % 2 == 0 ? 1.0f : 1.01f);
  const std::vector<double> expected(kSlots, 1.0 / kSlots);
  std::vector<std::uint32_t> counts(kSlots);
  std::vector<Slot> slots(1'000'000);
  std::vector<double> probabilities(slots.size());
  for (int batch = 0; batch < 10; ++batch) {
    tree.draw(lanes, slots, probabilities);
    for (const Slot slot : slots) ++counts[slot];
  }
  EXPECT_GT(chi_square_excess(counts, expected, 1e7), 4);
}

TEST_P(SumTreeTest, DrawsTheSameAsThePortableKernel) {
  constexpr std::size_t kSlots = 80'000;
  SumTree& best = tree_;
  SumTree portable(SumTree::Kernel::kPortable);
  Random random(std::uint64_t{16});
  best.reach(kSlots - 1);
  portable.reach(kSlots - 1);
  for (Slot slot = 0; slot < kSlots; ++slot) {
    const auto weight = static_cast<float>(std::pow(10.0, -12 + 24 * random.uniform()));
    best.set(slot, weight);
    portable.set(slot, weight);
  }
  EXPECT_STREQ(portable.kernel_name(), "portable");
  ASSERT_EQ(best.total(), portable.total());
  Random seeds_a(std::uint64_t{17});
  Random seeds_b(std::uint64_t{17});
  RandomLanes lanes_a(seeds_a);
  RandomLanes lanes_b(seeds_b);
  for (const std::size_t batch : {1, 2, 5, 64, 1000, 100'000}) {
    std::vector<Slot> slots_a(batch);
    std::vector<Slot> slots_b(batch);
    std::vector<double> probabilities_a(batch);
    std::vector<double> probabilities_b(batch);
    best.draw(lanes_a, slots_a, probabilities_a);
    portable.draw(lanes_b, slots_b, probabilities_b);
    ASSERT_EQ(slots_a, slots_b);
    ASSERT_EQ(probabilities_a, probabilities_b);
  }
}

TEST(SumTree, OrderOfGivesEachSlotItsOwnPlace) {
  std::vector<std::uint32_t> orders;
  for (Slot slot = 0; slot < 65'536; ++slot) orders.push_back(SumTree::order_of(slot));
  std::sort(orders.begin(), orders.end());
  for (Slot slot = 0; slot < 65'536; ++slot) ASSERT_EQ(orders[slot], slot);
}

TEST(SumTree, ASlotCostsAboutFiveBytes) {
  SumTree tree;
  tree.reach(1'000'000 - 1);
  EXPECT_LT(tree.memory_bytes(), 5'200'000u);
}

}  // namespace
}  // namespace reverie
