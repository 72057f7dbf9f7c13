#include "reverie/nn/initializer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace reverie::nn {
namespace {

Mlp plain_mlp(std::vector<std::size_t> widths) {
  return Mlp::make({std::move(widths)}).value();
}

TEST(Initializer, UniformWeightsFillTheRangeOfTheirLayer) {
  const Mlp mlp = plain_mlp({25, 400, 2});
  Parameters parameters = mlp.make_parameters();
  Random random(std::uint64_t{47});
  initialize_uniform(mlp, random, parameters);
  const double bounds[] = {1.0 / 5, 1.0 / 20};
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (const Matrix& matrix :
         {mlp.weight(layer, parameters.span()), mlp.bias(layer, parameters.span())}) {
      double sum = 0;
      double squares = 0;
      for (std::size_t r = 0; r < matrix.rows; ++r) {
        for (std::size_t c = 0; c < matrix.columns; ++c) {
          ASSERT_LE(std::abs(matrix(r, c)), bounds[layer]);
          sum += matrix(r, c) / bounds[layer];
          squares += matrix(r, c) * matrix(r, c) / (bounds[layer] * bounds[layer]);
        }
      }
      const auto count = static_cast<double>(matrix.rows * matrix.columns);
      if (count < 100) continue;
      EXPECT_LT(std::abs(sum / count), 5 * std::sqrt(1.0 / 3 / count));  // 5 deviations of the mean
      EXPECT_NEAR(squares / count, 1.0 / 3, 5 * 0.3 / std::sqrt(count));
    }
  }
}

TEST(Initializer, OrthogonalWeightsAreOrthonormalTimesTheirGain) {
  const Mlp mlp = plain_mlp({8, 64, 64, 3});
  Parameters parameters = mlp.make_parameters();
  Random random(std::uint64_t{53});
  const double gains[] = {std::sqrt(2.0), 1.0, 0.01};
  ASSERT_TRUE(initialize_orthogonal(mlp, gains, random, parameters).ok());
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const Matrix weight = mlp.weight(layer, parameters.span());
    const bool rows_are_fewer = weight.rows <= weight.columns;
    const std::size_t count = std::min(weight.rows, weight.columns);
    const std::size_t width = std::max(weight.rows, weight.columns);
    const auto at = [&](std::size_t vector, std::size_t i) -> double {
      return rows_are_fewer ? weight(vector, i) : weight(i, vector);
    };
    const double square = gains[layer] * gains[layer];
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double sum = 0;
        for (std::size_t i = 0; i < width; ++i) sum += at(a, i) * at(b, i);
        ASSERT_NEAR(sum, a == b ? square : 0.0, 1e-6 * square);
      }
    }
    for (std::size_t c = 0; c < weight.columns; ++c) {
      EXPECT_EQ(mlp.bias(layer, parameters.span())(0, c), 0.0f);
    }
  }
}

// An element of a uniformly random rotation is positive as often as negative.
TEST(Initializer, OrthogonalMatricesFavourNoDirection) {
  const Mlp mlp = plain_mlp({2, 2});
  Parameters parameters = mlp.make_parameters();
  Random random(std::uint64_t{59});
  const double gain = 1;
  int positive = 0;
  int rotations = 0;
  constexpr int kDraws = 4'000;
  for (int i = 0; i < kDraws; ++i) {
    ASSERT_TRUE(initialize_orthogonal(mlp, {&gain, 1}, random, parameters).ok());
    const Matrix w = mlp.weight(0, parameters.span());
    positive += w(0, 0) > 0 ? 1 : 0;
    rotations += w(0, 0) * w(1, 1) - w(0, 1) * w(1, 0) > 0 ? 1 : 0;
  }
  const double deviation = std::sqrt(kDraws) / 2;
  EXPECT_NEAR(positive, kDraws / 2, 5 * deviation);
  EXPECT_NEAR(rotations, kDraws / 2, 5 * deviation);
}

TEST(Initializer, ASeedRepeatsTheWeights) {
  const Mlp mlp = plain_mlp({4, 10, 2});
  const double gains[] = {1.0, 1.0};
  for (const bool orthogonal : {false, true}) {
    Parameters first = mlp.make_parameters();
    Parameters second = mlp.make_parameters();
    for (Parameters* parameters : {&first, &second}) {
      Random random(std::uint64_t{61});
      if (orthogonal) {
        ASSERT_TRUE(initialize_orthogonal(mlp, gains, random, *parameters).ok());
      } else {
        initialize_uniform(mlp, random, *parameters);
      }
    }
    EXPECT_TRUE(std::equal(first.span().begin(), first.span().end(), second.span().begin()));
  }
}

TEST(Initializer, RefusesInvalidGains) {
  const Mlp mlp = plain_mlp({4, 10, 2});
  Parameters parameters = mlp.make_parameters();
  Random random(std::uint64_t{67});
  const double one[] = {1.0};
  EXPECT_EQ(initialize_orthogonal(mlp, one, random, parameters).message(),
            "gains has 1 entries; the network has 2 layers, give one for each");
  const double bad[] = {1.0, 0.0};
  EXPECT_EQ(initialize_orthogonal(mlp, bad, random, parameters).message(),
            "gains[1] is 0; it must be finite and above 0");
}

}  // namespace
}  // namespace reverie::nn
