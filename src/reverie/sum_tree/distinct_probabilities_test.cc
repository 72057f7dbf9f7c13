#include "reverie/sum_tree/distinct_probabilities.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

// The model enumerates every sequence of draws.
struct Enumeration {
  std::vector<double> shares;
  std::size_t count;
  // For each set (a bit per item): its probability, and its probability if item i is drawn first.
  std::map<unsigned, double> of_set;
  std::map<unsigned, std::vector<double>> given_first;

  Enumeration(std::vector<double> weights, std::size_t n) : shares(std::move(weights)), count(n) {
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= total;
    for (std::size_t first = 0; first < shares.size(); ++first) {
      draw(1u << first, first, 1, 1, 1 - shares[first]);
    }
    for (auto& [set, by_first] : given_first) {
      for (std::size_t i = 0; i < shares.size(); ++i) of_set[set] += shares[i] * by_first[i];
    }
  }
  void draw(unsigned set, std::size_t first, std::size_t drawn, double probability, double left) {
    if (drawn == count) {
      auto& by_first = given_first[set];
      by_first.resize(shares.size());
      by_first[first] += probability;
      return;
    }
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if ((set >> i & 1) != 0) continue;
      draw(set | 1u << i, first, drawn + 1, probability * shares[i] / left, left - shares[i]);
    }
  }
  double q(unsigned set, std::size_t i) { return of_set[set] / given_first[set][i]; }
  double inclusion(std::size_t i) {
    double sum = 0;
    for (const auto& [set, probability] : of_set) sum += (set >> i & 1) != 0 ? probability : 0;
    return sum;
  }
};

// The probabilities reported for a set, item by item.
std::vector<double> told(const Enumeration& model, unsigned set) {
  std::vector<double> probabilities;
  for (std::size_t i = 0; i < model.shares.size(); ++i) {
    if ((set >> i & 1) != 0) probabilities.push_back(model.shares[i]);
  }
  to_inclusion(probabilities, model.shares.size(), nullptr);
  return probabilities;
}

const std::vector<std::vector<double>> kTables = {
    {1, 2, 3, 4, 5, 8}, {1, 1, 1, 1, 1, 1, 1}, {1e-4, 1, 1, 1, 1, 1e3}, {0.3, 0.3, 0.9, 27, 81}};

TEST(DistinctProbabilities, MatchAnEnumerationOfAllDraws) {
  for (const auto& weights : kTables) {
    for (std::size_t n = 1; n <= weights.size(); ++n) {
      Enumeration model(weights, n);
      for (const auto& [set, probability] : model.of_set) {
        const std::vector<double> probabilities = told(model, set);
        std::size_t place = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          if ((set >> i & 1) == 0) continue;
          const double expected = model.q(set, i) / static_cast<double>(n);
          ASSERT_NEAR(probabilities[place++], expected, 1e-5 * expected)
              << "item " << i << " of " << weights.size() << ", " << n << " drawn, set " << set;
        }
      }
    }
  }
}

TEST(DistinctProbabilities, MakeWeightedBatchSumsUnbiased) {
  for (const auto& weights : kTables) {
    for (std::size_t n = 1; n <= weights.size(); ++n) {
      Enumeration model(weights, n);
      std::vector<double> mean(weights.size());
      for (const auto& [set, probability] : model.of_set) {
        const std::vector<double> probabilities = told(model, set);
        std::size_t place = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          if ((set >> i & 1) == 0) continue;
          mean[i] += probability / (static_cast<double>(n) * probabilities[place++]);
        }
      }
      for (const double each : mean) ASSERT_NEAR(each, 1, 1e-4) << n << " drawn";
    }
  }
}

TEST(DistinctProbabilities, AreUniformForEqualItems) {
  for (const std::size_t n : {1, 4, 7, 8}) {
    std::vector<double> probabilities(n);  // of consecutive draws: 1/8, 1/7, ...
    for (std::size_t i = 0; i < n; ++i) probabilities[i] = 1.0 / static_cast<double>(8 - i);
    to_single_draw(probabilities);
    for (const double share : probabilities) ASSERT_NEAR(share, 0.125, 1e-12);
    to_inclusion(probabilities, 8, nullptr);
    for (const double each : probabilities) ASSERT_NEAR(each, 0.125, 1e-12);  // (n / 8) / n
  }
}

// With many items, the mean of q over batches approximates the probability to be in a batch.
TEST(DistinctProbabilities, HoldForBatchesOfHundreds) {
  constexpr std::size_t kItems = 1000, kDrawn = 300;
  std::mt19937_64 rng(7);
  std::vector<double> weights(kItems);
  for (std::size_t i = 0; i < kItems; ++i) weights[i] = 0.01 + static_cast<double>(i % 100);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double mean = 0;  // of the estimated number of items, which is known exactly
  constexpr int kBatches = 200;
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<std::pair<double, std::size_t>> arrivals(kItems);
    std::exponential_distribution<double> unit;
    for (std::size_t i = 0; i < kItems; ++i) arrivals[i] = {unit(rng) / weights[i], i};
    std::partial_sort(arrivals.begin(), arrivals.begin() + kDrawn, arrivals.end());
    std::vector<double> shares;
    for (std::size_t k = 0; k < kDrawn; ++k) shares.push_back(weights[arrivals[k].second] / total);
    to_inclusion(shares, kItems, nullptr);
    // Only heavy items, because the estimate from light ones has an unbounded variance.
    double sum = 0;
    for (std::size_t k = 0; k < kDrawn; ++k) {
      if (weights[arrivals[k].second] > 20) sum += 1 / (shares[k] * kDrawn);
    }
    mean += sum / kBatches;
  }
  EXPECT_NEAR(mean, 790, 12);  // 79 of each hundred items weigh 21.01 or more
}

TEST(DistinctProbabilities, OfItemsWithZeroWeightAreUniform) {
  // Two items with weight, and two of three without.
  std::vector<double> probabilities = {0.75, 1.0, 1.0 / 3, 1.0 / 2};
  to_single_draw(probabilities);
  EXPECT_EQ(probabilities, (std::vector<double>{0.75, 0.25, 0, 0}));
  to_inclusion(probabilities, 5, nullptr);
  EXPECT_NEAR(probabilities[0], 1.0 / 4, 1e-12);
  EXPECT_NEAR(probabilities[1], 1.0 / 4, 1e-12);
  EXPECT_NEAR(probabilities[2], 2.0 / 3 / 4, 1e-12);
  EXPECT_NEAR(probabilities[3], 2.0 / 3 / 4, 1e-12);
}

TEST(DistinctProbabilities, OfADeterministicOrderAreEqual) {
  std::vector<double> probabilities = {1, 1, 1};
  to_single_draw(probabilities);
  to_inclusion(probabilities, 10, nullptr);
  for (const double each : probabilities) EXPECT_NEAR(each, 1.0 / 3, 1e-12);
}

TEST(DistinctProbabilities, IncludeTheValueForTheLeastOfTheTable) {
  std::vector<double> probabilities = {0.4, 0.2, 0.1};
  std::vector<double> with_least = probabilities;
  double least = 0.1;
  to_inclusion(with_least, 9, &least);
  to_inclusion(probabilities, 9, nullptr);
  EXPECT_EQ(with_least, probabilities);
  EXPECT_NEAR(least, probabilities[2], 1e-6);
  double smaller = 0.05;
  std::vector<double> equal = {0.1, 0.1};
  to_inclusion(equal, 9, &smaller);
  EXPECT_NEAR(equal[0], 0.1, 1e-6);
  EXPECT_LT(smaller, 0.06);
  EXPECT_GT(smaller, 0.045);
}

}  // namespace
}  // namespace reverie
