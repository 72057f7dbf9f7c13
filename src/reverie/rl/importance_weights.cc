#include "reverie/rl/importance_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace reverie {
namespace {

// The C library's pow is a call an item. These two are the same in double lanes without a
// branch or a conversion that baseline x86-64 lacks, so the compiler can vectorise the loop
// below; where the processor has wider lanes, a clone for them is chosen when the library loads.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define REVERIE_WIDE_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define REVERIE_WIDE_CLONES
#endif
// GCC must be told that no code traps a comparison with NaN; clang assumes so.
#if defined(__clang__)
#define REVERIE_NO_TRAPS
#else
#define REVERIE_NO_TRAPS __attribute__((optimize("no-trapping-math")))
#endif

// Stands for smaller probabilities: with it no quotient overflows. Two floats never divide to less.
constexpr double kLeast = 0x1p-1000;

// The built-in below stands for std::bit_cast, which GCC will not inline into a function with
// options of its own.

// Adding this to an integer below 2^51 puts that integer into the low bits of the double.
constexpr double kIntegerShift = 0x1.8p52;

// Requires a normal x > 0. Absolute error below 1e-10.
[[gnu::always_inline]] inline double log2_of(double x) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  // Halves the interval around 1: the mantissa m lies in [sqrt(1/2), sqrt(2)).
  constexpr std::uint64_t kRootHalf = __builtin_bit_cast(std::uint64_t, 0x1.6a09e667f3bcdp-1);
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x) - kRootHalf;
  // As a signed exponent it would need an arithmetic shift of 64 bits: bias it first.
  const std::uint64_t biased = (bits + (std::uint64_t{1024} << 52)) >> 52;
  const double exponent =
      __builtin_bit_cast(double, biased | __builtin_bit_cast(std::uint64_t, 0x1p52)) -
      (0x1p52 + 1024.0);
  const double m = __builtin_bit_cast(double, (bits & kMantissa) + kRootHalf);
  // log2(m) = 2/ln(2) atanh(s), the series to s^11: the next term is below 3e-11.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  const double series =
      1.0 + s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9 + s2 * (1.0 / 11)))));
  return exponent + 2.8853900817779268 * s * series;
}

// Requires |y| <= 1000. Relative error below 1e-9.
[[gnu::always_inline]] inline double exp2_of(double y) {
  const double shifted = y + kIntegerShift;
  const double f = (y - (shifted - kIntegerShift)) * 0.6931471805599453;  // |f| <= ln(2) / 2
  const double power =
      1.0 +
      f * (1.0 + f * (1.0 / 2 +
                      f * (1.0 / 6 +
                           f * (1.0 / 24 + f * (1.0 / 120 +
                                                f * (1.0 / 720 + f * (1.0 / 5040 + f / 40320)))))));
  // The integer stands in the low bits of `shifted`; as an exponent it scales by adding.
  return __builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, power) +
                                        (__builtin_bit_cast(std::uint64_t, shifted) << 52));
}

// By value: a reference, as std::max has it, keeps the compiler from vectorising.
[[gnu::always_inline]] inline double higher_of(double a, double b) {
  return a > b ? a : b;
}
[[gnu::always_inline]] inline double lower_of(double a, double b) {
  return a < b ? a : b;
}

REVERIE_WIDE_CLONES REVERIE_NO_TRAPS void weigh(const double* probabilities, std::size_t count,
                                                double unit, double beta, float* weights) {
  // 2^127 is the largest power of two in a float, and 2^-126 the smallest normal one.
  constexpr double kHighest = 127.0;
  constexpr double kLowest = -126.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double y = -beta * log2_of(higher_of(probabilities[i], kLeast) * unit);
    weights[i] = static_cast<float>(exp2_of(lower_of(higher_of(y, kLowest), kHighest)));
  }
}

}  // namespace

Status importance_weights_over(std::span<const double> probabilities, double least, double beta,
                               std::span<float> weights) {
  if (!(beta >= 0.0) || !std::isfinite(beta)) {
    return invalid_argument("beta is {}; it must be finite and >= 0 (0.4 to 1 is usual)", beta);
  }
  REVERIE_CHECK(probabilities.size() == weights.size());
  if (probabilities.empty()) return {};
  // Over the largest weight N cancels: w_i / w_max = (p_min / p_i)^beta, which cannot overflow.
  const double smallest = *std::min_element(probabilities.begin(), probabilities.end());
  weigh(probabilities.data(), probabilities.size(),
        1.0 / std::max(kLeast, std::min(least, smallest)), beta, weights.data());
  return {};
}

Status importance_weights(std::span<const double> probabilities, std::size_t item_count,
                          double beta, WeightScale scale, std::span<float> weights) {
  if (item_count == 0) return invalid_argument("item_count is 0; it must be at least 1");
  if (scale == WeightScale::kBatchMaximum) {
    return importance_weights_over(probabilities, 1.0, beta, weights);
  }
  if (!(beta >= 0.0) || !std::isfinite(beta)) {
    return invalid_argument("beta is {}; it must be finite and >= 0 (0.4 to 1 is usual)", beta);
  }
  REVERIE_CHECK(probabilities.size() == weights.size());
  if (probabilities.empty()) return {};
  weigh(probabilities.data(), probabilities.size(), static_cast<double>(item_count), beta,
        weights.data());
  return {};
}

}  // namespace reverie
