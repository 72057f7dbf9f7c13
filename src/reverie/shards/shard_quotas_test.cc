#include "reverie/shards/shard_quotas.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

using Counts = std::vector<std::size_t>;
using Open = std::vector<std::uint8_t>;

TEST(ShardQuotas, EvenSharesDifferByAtMostOneAndEvenOut) {
  ShardQuotas quotas(3, ShardSampling::kEven);
  Counts total(3);
  for (int request = 0; request < 300; ++request) {
    Counts out(3);
    quotas.split(64, Open{1, 1, 1}, out);
    ASSERT_EQ(out[0] + out[1] + out[2], 64u);
    for (std::size_t s = 0; s < 3; ++s) {
      ASSERT_NEAR(static_cast<double>(out[s]), 64.0 / 3, 1.0) << "request " << request;
      total[s] += out[s];
    }
  }
  for (const std::size_t count : total) EXPECT_NEAR(static_cast<double>(count), 6'400, 1.5);
}

TEST(ShardQuotas, SingleSamplesRotateOverTheShards) {
  ShardQuotas quotas(4, ShardSampling::kEven);
  Counts total(4);
  for (int request = 0; request < 40; ++request) {
    Counts out(4);
    quotas.split(1, Open{1, 1, 1, 1}, out);
    for (std::size_t s = 0; s < 4; ++s) total[s] += out[s];
  }
  EXPECT_EQ(total, (Counts{10, 10, 10, 10}));
}

TEST(ShardQuotas, AClosedShardGetsNothingAndItsShareGoesToTheOthers) {
  ShardQuotas quotas(3, ShardSampling::kEven);
  Counts out(3);
  quotas.split(10, Open{1, 0, 1}, out);
  EXPECT_EQ(out, (Counts{5, 0, 5}));
}

TEST(ShardQuotas, SamplesAreSplitInProportionToTheMass) {
  ShardQuotas quotas(3, ShardSampling::kMass);
  quotas.note_draw(0, 2.0, 0.02);  // a mass of 100
  quotas.note_draw(1, 30.0, 0.1);  // 300
  quotas.note_draw(2, 6.0, 0.01);  // 600
  Counts out(3);
  quotas.split(1'000, Open{1, 1, 1}, out);
  EXPECT_EQ(out, (Counts{100, 300, 600}));
}

TEST(ShardQuotas, AReportedMassIsUsedUnlessItIsInvalid) {
  ShardQuotas quotas(2, ShardSampling::kMass);
  quotas.note_mass(0, 100.0);
  quotas.note_mass(1, 300.0);
  for (const double none : {0.0, -1.0, std::nan(""), HUGE_VAL}) quotas.note_mass(1, none);
  EXPECT_EQ(quotas.mass(1), 300.0);
  Counts out(2);
  quotas.split(400, Open{1, 1}, out);
  EXPECT_EQ(out, (Counts{100, 300}));
}

TEST(ShardQuotas, AShardWithHardlyAnyMassIsStillSampled) {
  ShardQuotas quotas(2, ShardSampling::kMass);
  quotas.note_draw(0, 1.0, 1e-9);
  quotas.note_draw(1, 1.0, 1.0);
  std::size_t seen = 0;
  for (int request = 0; request < 100; ++request) {
    Counts out(2);
    quotas.split(64, Open{1, 1}, out);
    seen += out[1];
  }
  EXPECT_NEAR(static_cast<double>(seen), 6'400 * ShardQuotas::kLeastPart / 2, 3);
}

TEST(ShardQuotas, AnUnknownMassCountsAsTheMeanOfTheOthers) {
  ShardQuotas quotas(3, ShardSampling::kMass);
  quotas.note_draw(0, 1.0, 0.01);
  quotas.note_draw(1, 1.0, 1.0 / 300);
  Counts out(3);
  quotas.split(600, Open{1, 1, 1}, out);
  EXPECT_EQ(out, (Counts{100, 300, 200}));
}

TEST(ShardQuotas, ThePartOfAShardIsMeasuredFromReceivedSamples) {
  ShardQuotas quotas(2, ShardSampling::kEven);
  quotas.note_batch(Counts{3, 1});
  EXPECT_DOUBLE_EQ(quotas.part(0), 0.75);
  EXPECT_DOUBLE_EQ(quotas.part(1), 0.25);
  for (int i = 0; i < 1'000; ++i) quotas.note_batch(Counts{0, 64});
  EXPECT_LT(quotas.part(0), 1e-6) << "a shard that gives no more is forgotten";
  quotas.note_batch(Counts{1, 63});
  EXPECT_GT(quotas.part(0), 0);
}

// Estimates a sum over all items with the weights 1 / (N q p). Shards differ in size and
// priorities, and one shard gives only half of its part.
TEST(ShardQuotas, WeightsByTheMeasuredPartKeepAMeanUnbiased) {
  const std::vector<std::vector<double>> priorities = {{1, 2, 3}, {10, 20}, {0.5, 0.5, 4, 5}};
  double items = 0;
  double truth = 0;
  std::vector<double> masses;
  for (const auto& shard : priorities) {
    masses.push_back(0);
    for (const double x : shard) {
      masses.back() += x;
      truth += std::sqrt(x);  // any function of the priority
      ++items;
    }
  }
  for (const ShardSampling sampling : {ShardSampling::kEven, ShardSampling::kMass}) {
    ShardQuotas quotas(3, sampling);
    for (std::size_t s = 0; s < 3; ++s) quotas.note_draw(s, masses[s], 1.0);
    double estimate = 0;
    double draws = 0;
    for (int batch = 0; batch < 2'000; ++batch) {
      Counts counts(3);
      quotas.split(96, Open{1, 1, 1}, counts);
      counts[1] /= 2;  // the slow shard
      quotas.note_batch(counts);
      if (batch < 500) continue;  // until the parts are stable
      for (std::size_t s = 0; s < 3; ++s) {
        const auto n = static_cast<double>(counts[s]);
        draws += n;
        // The exact expectation over the shard's draws.
        for (const double x : priorities[s]) {
          const double p = x / masses[s];
          estimate += n * p * std::sqrt(x) / (items * quotas.part(s) * p);
        }
      }
    }
    EXPECT_NEAR(estimate / draws, truth / items, 1e-3 * truth / items);
  }
}

}  // namespace
}  // namespace reverie
