#include "reverie/nn/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie::nn {
namespace {

class KernelsTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Kernels& kernels() { return *runnable_kernels()[GetParam()]; }

  std::vector<float> draws(std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(2 * random_.uniform() - 1);
    return values;
  }

  Random random_{std::uint64_t{29}};
};

std::string name_of(const ::testing::TestParamInfo<std::size_t>& info) {
  return runnable_kernels()[info.param]->name;
}
INSTANTIATE_TEST_SUITE_P(Sets, KernelsTest,
                         ::testing::Range(std::size_t{0}, runnable_kernels().size()), name_of);

// The model computes the definition with sums in double precision.
double product_at(const Product& p, std::size_t r, std::size_t c) {
  double sum = p.bias != nullptr ? p.bias[c] : 0.0;
  for (std::size_t k = 0; k < p.depth; ++k) {
    sum += static_cast<double>(p.a[r * p.a_row + k * p.a_depth]) * p.b[k * p.b_stride + c];
  }
  if (p.activation == Activation::kNone) return sum;
  if (p.outputs == nullptr) {
    return p.activation == Activation::kRelu ? std::max(sum, 0.0) : std::tanh(sum);
  }
  const double y = p.outputs[r * p.c_stride + c];
  return sum * (p.activation == Activation::kTanh ? 1 - y * y : (y > 0 ? 1.0 : 0.0));
}

// Every number of rows up to two tiles and a remainder, with columns of all vector widths.
TEST_P(KernelsTest, AProductMatchesTheDefinitionForEveryShape) {
  for (std::size_t rows = 1; rows <= 27; ++rows) {
    const std::size_t columns = kPad * (1 + random_.below(40));
    const std::size_t depth = 1 + random_.below(70);
    const std::size_t c_stride = columns + random_.below(9);
    const std::vector<float> a = draws(rows * depth);
    const std::vector<float> b = draws(depth * columns);
    const std::vector<float> bias = draws(columns);
    const std::vector<float> outputs = draws(rows * c_stride);
    for (const bool is_transposed : {false, true}) {
      for (const Activation activation :
           {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
        for (const bool is_derivative : {false, true}) {
          std::vector<float> c(rows * c_stride, -7.0f);
          Product p;
          p.a = a.data();
          p.a_row = is_transposed ? 1 : depth;
          p.a_depth = is_transposed ? rows : 1;
          p.b = b.data();
          p.b_stride = columns;
          p.c = c.data();
          p.c_stride = c_stride;
          p.rows = rows;
          p.columns = columns;
          p.depth = depth;
          p.bias = is_derivative ? nullptr : bias.data();
          p.activation = activation;
          p.outputs = is_derivative ? outputs.data() : nullptr;
          kernels().multiply(p);
          for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t i = 0; i < c_stride; ++i) {
              const double expected = i < columns ? product_at(p, r, i) : -7.0;
              ASSERT_NEAR(c[r * c_stride + i], expected, 2e-5)
                  << rows << "x" << columns << "x" << depth << " at " << r << ", " << i;
            }
          }
        }
      }
    }
  }
}

// Many rows use another algorithm, over panels of the depth, which must add in the same order.
TEST_P(KernelsTest, AProductOfManyRowsEqualsTheProductsOfItsRowsBitForBit) {
  for (const std::size_t depth : {1, 63, 64, 65, 200}) {
    const std::size_t rows = 96 + random_.below(12);
    const std::size_t columns = kPad * (30 + random_.below(20));
    const std::vector<float> a = draws(rows * depth);
    const std::vector<float> b = draws(depth * columns);
    const std::vector<float> bias = draws(columns);
    for (const bool is_transposed : {false, true}) {
      std::vector<float> whole(rows * columns);
      std::vector<float> parts(rows * columns);
      Product p;
      p.a = a.data();
      p.a_row = is_transposed ? 1 : depth;
      p.a_depth = is_transposed ? rows : 1;
      p.b = b.data();
      p.c = whole.data();
      p.rows = rows;
      p.b_stride = p.c_stride = p.columns = columns;
      p.depth = depth;
      p.bias = bias.data();
      p.activation = Activation::kRelu;
      kernels().multiply(p);
      for (std::size_t row = 0; row < rows; row += p.rows) {
        p.rows = std::min<std::size_t>(rows - row, 7);
        p.a = a.data() + row * p.a_row;
        p.c = parts.data() + row * columns;
        kernels().multiply(p);
      }
      ASSERT_EQ(whole, parts) << rows << "x" << columns << "x" << depth;
    }
  }
}

// Many zeros on the left use a third algorithm, over lists of nonzeros; few rows never do.
TEST_P(KernelsTest, AProductWithZerosEqualsTheProductsOfItsRowsBitForBit) {
  for (const double share : {0.0, 0.02, 0.3, 0.6, 0.9}) {
    for (const std::size_t depth : {32, 60, 64, 200}) {
      const std::size_t rows = 4 * (4 + random_.below(60));
      const std::size_t columns = 64 + kPad * random_.below(50);
      std::vector<float> a = draws(rows * depth);
      for (float& value : a) value = random_.uniform() < share ? value : 0.0f * value;
      const std::vector<float> b = draws(depth * columns);
      const std::vector<float> bias = draws(columns);
      const std::vector<float> outputs = draws(rows * columns);
      for (const bool is_transposed : {false, true}) {
        for (const bool is_derivative : {false, true}) {
          std::vector<float> whole(rows * columns, -7.0f);
          std::vector<float> parts(rows * columns);
          Product p;
          p.a = a.data();
          p.a_row = is_transposed ? 1 : depth;
          p.a_depth = is_transposed ? rows : 1;
          p.b = b.data();
          p.c = whole.data();
          p.rows = rows;
          p.b_stride = p.c_stride = p.columns = columns;
          p.depth = depth;
          p.bias = is_derivative ? nullptr : bias.data();
          p.activation = Activation::kRelu;
          p.outputs = is_derivative ? outputs.data() : nullptr;
          kernels().multiply(p);
          for (std::size_t row = 0; row < rows; row += p.rows) {
            p.rows = std::min<std::size_t>(rows - row, 7);
            p.a = a.data() + row * p.a_row;
            p.c = parts.data() + row * columns;
            if (is_derivative) p.outputs = outputs.data() + row * columns;
            kernels().multiply(p);
          }
          ASSERT_EQ(whole, parts) << rows << "x" << columns << "x" << depth << ", " << share;
        }
      }
    }
  }
}

TEST_P(KernelsTest, ZeroTimesANonFiniteNumberIsNan) {
  constexpr std::size_t kRows = 32;
  constexpr std::size_t kDepth = 96;
  constexpr std::size_t kColumns = 128;
  const std::vector<float> a(kRows * kDepth);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::size_t depth : {std::size_t{3}, std::size_t{70}}) {
      std::vector<float> b(kDepth * kColumns, 1.0f);
      b[depth * kColumns + 5] = bad;
      std::vector<float> c(kRows * kColumns, -7.0f);
      Product p;
      p.a = a.data();
      p.a_row = kDepth;
      p.b = b.data();
      p.c = c.data();
      p.rows = kRows;
      p.b_stride = p.c_stride = p.columns = kColumns;
      p.depth = kDepth;
      kernels().multiply(p);
      for (std::size_t i = 0; i < c.size(); ++i) {
        ASSERT_EQ(std::isnan(c[i]), i % kColumns == 5) << i;
        if (i % kColumns != 5) {
          ASSERT_EQ(c[i], 0.0f) << i;
        }
      }
    }
  }
}

TEST_P(KernelsTest, TanhAgreesWithTheCLibraryEverywhere) {
  std::vector<float> inputs;
  for (int i = -4'000; i < 4'000; ++i) inputs.push_back(static_cast<float>(i) * 0.005f);
  for (const float x : {0.0f, -0.0f, 1e-30f, 1e-5f, 0.62499f, 0.62501f, 8.99f, 9.01f, 88.0f, 1e30f,
                        -1e30f, std::numeric_limits<float>::infinity()}) {
    inputs.push_back(x);
  }
  inputs.resize(inputs.size() / kPad * kPad);
  std::vector<float> outputs(inputs.size());
  const float one = 1.0f;
  Product p;
  p.a = &one;
  p.b = inputs.data();
  p.c = outputs.data();
  p.rows = p.depth = 1;
  p.b_stride = p.c_stride = p.columns = inputs.size();
  p.activation = Activation::kTanh;
  kernels().multiply(p);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double expected = std::tanh(static_cast<double>(inputs[i]));
    ASSERT_NEAR(outputs[i], expected, 4e-7 * std::abs(expected)) << "at " << inputs[i];
  }
}

TEST_P(KernelsTest, NanIsPropagated) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> b(kPad * 9, nan);
  const float one = 1.0f;
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
    std::vector<float> c(b.size());
    Product p;
    p.a = &one;
    p.b = b.data();
    p.c = c.data();
    p.rows = p.depth = 1;
    p.b_stride = p.c_stride = p.columns = b.size();
    p.activation = activation;
    kernels().multiply(p);
    for (const float value : c) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(activation);
  }
}

TEST_P(KernelsTest, TransposesMatricesAndSumsRows) {
  constexpr std::size_t kRows = 12;
  constexpr std::size_t kColumns = 28;
  constexpr std::size_t kStride = 31;
  const std::vector<float> from = draws(kRows * kStride);
  std::vector<float> to(kColumns * kRows);
  kernels().transpose(from.data(), kStride, kRows, kColumns, to.data(), kRows);
  std::vector<float> sums(kColumns);
  kernels().sum_rows(from.data(), kStride, kRows, kColumns, sums.data());
  for (std::size_t c = 0; c < kColumns; ++c) {
    double sum = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(to[c * kRows + r], from[r * kStride + c]);
      sum += from[r * kStride + c];
    }
    EXPECT_NEAR(sums[c], sum, 1e-5);
  }
}

TEST_P(KernelsTest, ParameterPassesMatchTheDefinitions) {
  constexpr std::size_t kCount = 77;  // not a multiple of the vector width
  const std::vector<float> source = draws(kCount);
  std::vector<float> target = draws(kCount);
  const std::vector<float> before = target;
  kernels().approach(target.data(), source.data(), kCount, 0.25f);
  double squares = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(target[i], 0.75 * before[i] + 0.25 * source[i], 1e-6);
    squares += static_cast<double>(source[i]) * source[i];
  }
  EXPECT_NEAR(kernels().sum_of_squares(source.data(), kCount), squares, 1e-12 * squares);
}

}  // namespace
}  // namespace reverie::nn
