#include "reverie/rl/importance_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

std::vector<float> weights_of(const std::vector<double>& probabilities, std::size_t item_count,
                              double beta, WeightScale scale) {
  std::vector<float> weights(probabilities.size(), -1.0f);
  EXPECT_TRUE(importance_weights(probabilities, item_count, beta, scale, weights).ok());
  return weights;
}

// Worked by hand: N = 4, so N p = 2, 1, 1/2.
TEST(ImportanceWeights, MatchATableWorkedByHand) {
  const std::vector<double> probabilities = {0.5, 0.25, 0.125};
  EXPECT_EQ(weights_of(probabilities, 4, 1.0, WeightScale::kNone),
            (std::vector<float>{0.5f, 1.0f, 2.0f}));
  EXPECT_EQ(weights_of(probabilities, 4, 1.0, WeightScale::kBatchMaximum),
            (std::vector<float>{0.25f, 0.5f, 1.0f}));
  EXPECT_EQ(weights_of(probabilities, 4, 2.0, WeightScale::kNone),
            (std::vector<float>{0.25f, 1.0f, 4.0f}));
  EXPECT_EQ(weights_of(probabilities, 4, 0.0, WeightScale::kNone),
            (std::vector<float>{1.0f, 1.0f, 1.0f}));
  const std::vector<float> roots = weights_of({0.0625, 0.25}, 1, 0.5, WeightScale::kNone);
  EXPECT_FLOAT_EQ(roots[0], 4.0f);
  EXPECT_FLOAT_EQ(roots[1], 2.0f);
}

TEST(ImportanceWeights, AgreeWithThePowerOfTheCLibrary) {
  Random random(std::uint64_t{11});
  for (const double beta : {0.0, 0.1, 0.4, 0.5, 0.77, 1.0, 1.5}) {
    std::vector<double> probabilities(1'001);  // not a multiple of the vector width
    for (double& p : probabilities) p = std::exp2(-40.0 * random.uniform());
    const std::vector<float> weights = weights_of(probabilities, 50'000, beta, WeightScale::kNone);
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
      const double expected = std::pow(1.0 / (50'000 * probabilities[i]), beta);
      ASSERT_NEAR(weights[i] / expected, 1.0, 2e-7) << "p " << probabilities[i] << " beta " << beta;
    }
  }
}

// The sum over a distribution of p_i w_i f_i at beta = 1 is the plain mean of f.
TEST(ImportanceWeights, UndoTheBiasOfTheDrawAtBetaOne) {
  Random random(std::uint64_t{12});
  std::vector<double> probabilities(1'000);
  std::vector<double> values(1'000);
  double total = 0;
  for (double& p : probabilities) total += (p = 0.001 + random.uniform());
  for (double& p : probabilities) p /= total;
  random.uniform(values);
  const std::vector<float> weights = weights_of(probabilities, 1'000, 1.0, WeightScale::kNone);
  double drawn = 0;
  double plain = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    drawn += probabilities[i] * static_cast<double>(weights[i]) * values[i];
    plain += values[i] / 1'000;
  }
  EXPECT_NEAR(drawn, plain, 1e-6);
}

TEST(ImportanceWeights, OverTheBatchMaximumNeverExceedOneAndReachIt) {
  Random random(std::uint64_t{13});
  std::vector<double> probabilities(256);
  for (double& p : probabilities) p = std::exp2(-60.0 * random.uniform());
  const std::vector<float> weights = weights_of(probabilities, 9, 0.6, WeightScale::kBatchMaximum);
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, weight);
  EXPECT_FLOAT_EQ(largest, 1.0f);
  const std::vector<float> plain = weights_of(probabilities, 9, 0.6, WeightScale::kNone);
  for (std::size_t i = 1; i < weights.size(); ++i) {
    EXPECT_NEAR(weights[i] / weights[0], plain[i] / plain[0], 1e-5 * plain[i] / plain[0]);
  }
}

TEST(ImportanceWeights, StayFiniteAtTheEndsOfTheRange) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  for (const WeightScale scale : {WeightScale::kNone, WeightScale::kBatchMaximum}) {
    for (const float weight : weights_of({tiny, 1e-300, 1e-30, 1.0}, 1, 1.0, scale)) {
      EXPECT_TRUE(std::isfinite(weight));
      EXPECT_GT(weight, 0.0f);
      if (scale == WeightScale::kBatchMaximum) {
        EXPECT_LE(weight, 1.0f);
      }
    }
  }
  EXPECT_GT(weights_of({1e-300}, 1, 1.0, WeightScale::kNone)[0], 1e38f);
}

TEST(ImportanceWeights, RefuseABetaThatIsNegativeOrNotFinite) {
  const std::vector<double> probabilities = {0.5};
  std::vector<float> weights(1);
  for (const double beta :
       {-0.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Status status = importance_weights(probabilities, 2, beta, WeightScale::kNone, weights);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("beta"), std::string::npos);
  }
  EXPECT_EQ(importance_weights(probabilities, 0, 0.5, WeightScale::kNone, weights).code(),
            StatusCode::kInvalidArgument);
}

TEST(ImportanceWeights, AcceptAnEmptyBatch) {
  EXPECT_TRUE(importance_weights({}, 5, 0.5, WeightScale::kBatchMaximum, {}).ok());
}

}  // namespace
}  // namespace reverie
