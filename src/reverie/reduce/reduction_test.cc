#include "reverie/reduce/reduction.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

template <typename T>
std::vector<T> combined(ReduceOp op, DType dtype, std::vector<T> a, const std::vector<T>& b) {
  combine(op, dtype, reinterpret_cast<std::byte*>(a.data()),
          reinterpret_cast<const std::byte*>(b.data()), a.size());
  return a;
}

TEST(Reduction, CombinesElementByElement) {
  const std::vector<float> a = {1, -2, 3};
  const std::vector<float> b = {5, 7, -11};
  EXPECT_EQ(combined(ReduceOp::kSum, DType::kFloat32, a, b), (std::vector<float>{6, 5, -8}));
  EXPECT_EQ(combined(ReduceOp::kProduct, DType::kFloat32, a, b), (std::vector<float>{5, -14, -33}));
  EXPECT_EQ(combined(ReduceOp::kMin, DType::kFloat32, a, b), (std::vector<float>{1, -2, -11}));
  EXPECT_EQ(combined(ReduceOp::kMax, DType::kFloat32, a, b), (std::vector<float>{5, 7, 3}));
  EXPECT_EQ(combined<std::int8_t>(ReduceOp::kSum, DType::kInt8, {127, -1}, {1, -2}),
            (std::vector<std::int8_t>{-128, -3}));
  EXPECT_EQ(combined<std::uint64_t>(ReduceOp::kMax, DType::kUInt64, {1, ~std::uint64_t{0}}, {2, 0}),
            (std::vector<std::uint64_t>{2, ~std::uint64_t{0}}));
  EXPECT_EQ(combined<std::uint8_t>(ReduceOp::kProduct, DType::kBool, {0, 1, 1}, {1, 1, 0}),
            (std::vector<std::uint8_t>{0, 1, 0}));
}

template <typename T>
void expect_scaled(DType dtype, const std::vector<T>& values, const std::vector<T>& tripled) {
  std::vector<T> scaled(values.size());
  const auto* const from = reinterpret_cast<const std::byte*>(values.data());
  auto* const to = reinterpret_cast<std::byte*>(scaled.data());
  scale(dtype, to, from, values.size(), 3);
  EXPECT_EQ(scaled, tripled);
  add_scaled(dtype, to, from, values.size(), 2);
  std::vector<T> five(values.size());
  scale(dtype, reinterpret_cast<std::byte*>(five.data()), from, values.size(), 5);
  EXPECT_EQ(scaled, five);
  std::memcpy(to, from, values.size() * sizeof(T));
  scale(dtype, to, to, values.size(), 3);
  EXPECT_EQ(scaled, tripled);
}

TEST(Reduction, ScalesByACount) {
  expect_scaled<float>(DType::kFloat32, {1, -2.5, 0}, {3, -7.5, 0});
  expect_scaled<double>(DType::kFloat64, {1e300, 4}, {3e300, 12});
  expect_scaled<std::int8_t>(DType::kInt8, {50, -1}, {-106, -3});  // it wraps around
  expect_scaled<std::uint64_t>(DType::kUInt64, {~std::uint64_t{0}}, {~std::uint64_t{0} - 2});
  expect_scaled<std::complex<float>>(DType::kComplex64, {{1, -2}}, {{3, -6}});
}

TEST(Reduction, ScaledHalvesAreAddedToFloats) {
  for (const auto& [dtype, one, minus_two] : {std::tuple(DType::kFloat16, 0x3c00, 0xc000),
                                              std::tuple(DType::kBFloat16, 0x3f80, 0xc000)}) {
    const std::uint16_t halves[] = {static_cast<std::uint16_t>(one),
                                    static_cast<std::uint16_t>(minus_two)};
    std::vector<float> sums = {100'000, 0.125};
    add_scaled(dtype, reinterpret_cast<std::byte*>(sums.data()),
               reinterpret_cast<const std::byte*>(halves), 2, 3);
    EXPECT_EQ(sums, (std::vector<float>{100'003, -5.875})) << dtype_name(dtype);
  }
}

TEST(Reduction, NanIsPropagated) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    for (const float value : combined<float>(op, DType::kFloat32, {nan, 1}, {1, nan})) {
      EXPECT_TRUE(std::isnan(value)) << reduce_op_name(op);
    }
  }
}

TEST(Reduction, AMeanDividesBothPartsOfComplexNumbers) {
  std::vector<double> values = {2, 4, 6, 8};
  finish_mean(DType::kComplex128, reinterpret_cast<std::byte*>(values.data()), 2, 2.0);
  EXPECT_EQ(values, (std::vector<double>{1, 2, 3, 4}));
}

// All 65,536 halves survive conversion; numbers between two halves are rounded to the nearer one.
TEST(Reduction, HalfPrecisionIsWidenedExactlyAndNarrowedToTheNearest) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    float previous = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      float wide = 0;
      widen(dtype, reinterpret_cast<const std::byte*>(&half), reinterpret_cast<std::byte*>(&wide),
            1);
      std::uint16_t back = 0;
      narrow(dtype, reinterpret_cast<const std::byte*>(&wide), reinterpret_cast<std::byte*>(&back),
             1);
      if (std::isnan(wide)) {
        float again = 0;
        widen(dtype, reinterpret_cast<const std::byte*>(&back),
              reinterpret_cast<std::byte*>(&again), 1);
        ASSERT_TRUE(std::isnan(again)) << bits;
        continue;
      }
      ASSERT_EQ(back, half) << dtype_name(dtype) << " " << wide;
      if (bits > 0 && bits < 0x7c00) {
        const float middle = (previous + wide) / 2;
        const float above = std::nextafter(middle, wide);
        std::uint16_t rounded = 0;
        narrow(dtype, reinterpret_cast<const std::byte*>(&above),
               reinterpret_cast<std::byte*>(&rounded), 1);
        ASSERT_EQ(rounded, half) << dtype_name(dtype) << " " << above;
        narrow(dtype, reinterpret_cast<const std::byte*>(&middle),
               reinterpret_cast<std::byte*>(&rounded), 1);
        ASSERT_EQ(rounded % 2, 0) << "a tie goes to the even one, " << middle;
      }
      previous = wide;
    }
  }
}

TEST(Reduction, OperationsThatATypeLacksAreRefused) {
  EXPECT_TRUE(check_reducible(ReduceOp::kMean, DType::kBFloat16).ok());
  EXPECT_TRUE(check_reducible(ReduceOp::kMax, DType::kBool).ok());
  for (const auto& [op, dtype] :
       {std::pair(ReduceOp::kMean, DType::kInt32), std::pair(ReduceOp::kSum, DType::kBool),
        std::pair(ReduceOp::kMin, DType::kComplex64), std::pair(ReduceOp::kSum, DType::kString),
        std::pair(ReduceOp::kSum, DType::kFloat8E5M2)}) {
    const Status status = check_reducible(op, dtype);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(dtype_name(dtype)), std::string::npos) << status.to_string();
  }
}

TEST(Reduction, OperationNamesSurviveARoundTrip) {
  for (const char* name : {"sum", "mean", "min", "max", "product"}) {
    ASSERT_TRUE(reduce_op_from_name(name).has_value());
    EXPECT_EQ(reduce_op_name(*reduce_op_from_name(name)), name);
  }
  EXPECT_FALSE(reduce_op_from_name("median").has_value());
}

}  // namespace
}  // namespace reverie
