#include "reverie/sum_tree/priority_power.h"

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reverie/base/check.h"

namespace reverie {
namespace {

constexpr std::size_t kWidth = 4;
using Reals = double __attribute__((vector_size(kWidth * sizeof(double))));
using Bits = std::uint64_t __attribute__((vector_size(kWidth * sizeof(double))));

constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcd;  // sqrt(1/2), as bits
constexpr std::uint64_t kExponentBias = 1024;
constexpr double kIntegers = 0x1p52;   // added to a small integer's bits it is that integer
constexpr double kRounder = 0x1.8p52;  // added and taken away again it rounds to integers
constexpr double kTwoOverLn2 = 2.8853900817779268;
constexpr double kLn2 = 0.69314718055994531;

// Four powers. p = m 2^k with m in [sqrt(1/2), sqrt(2)); log2(m) by the series of artanh, 2^y by
// that of exp, both far below the rounding of f32. No branch and no table: four at a time.
[[gnu::always_inline]] inline void power_four(double exponent, const double* priorities,
                                              float* weights) {
  Reals p;
  std::memcpy(&p, priorities, sizeof(p));
  const Bits is_zero = (Bits)(p == 0.0);
  const Bits is_tiny = (Bits)(p < DBL_MIN);
  Bits bits = (Bits)p;
  bits = (is_tiny & (Bits)(Reals{} + DBL_MIN)) | (~is_tiny & bits);
  const Bits biased = (bits - kRootHalf + (kExponentBias << 52)) >> 52;  // k + 1024
  const Reals k = (Reals)(biased | (Bits)(Reals{} + kIntegers)) -
                  (kIntegers + static_cast<double>(kExponentBias));
  const Reals m = (Reals)(bits - ((biased - kExponentBias) << 52));
  const Reals s = (m - 1.0) / (m + 1.0);
  const Reals z = s * s;
  const Reals series =
      ((((z * (1.0 / 11) + 1.0 / 9) * z + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3) * z + 1.0;
  Reals y = (k + s * series * kTwoOverLn2) * exponent;
  const Bits too_low = (Bits)(y < -126.0);
  const Bits too_high = (Bits)(y > 127.99999991);  // of which f32 has no power of 2
  y = (Reals)((too_low & (Bits)(Reals{} - 126.0)) | (too_high & (Bits)(Reals{} + 127.99999991)) |
              (~(too_low | too_high) & (Bits)y));
  const Reals rounded = y + kRounder;
  const Reals g = (y - (rounded - kRounder)) * kLn2;
  const Reals power =
      ((((((g * (1.0 / 5040) + 1.0 / 720) * g + 1.0 / 120) * g + 1.0 / 24) * g + 1.0 / 6) * g +
        0.5) *
           g +
       1.0) *
          g +
      1.0;
  const Reals weight = (Reals)(~is_zero & ((Bits)power + ((Bits)rounded << 52)));
  for (std::size_t i = 0; i < kWidth; ++i) weights[i] = static_cast<float>(weight[i]);
}

[[gnu::always_inline]] inline void power_all(double exponent, const double* priorities,
                                             std::size_t count, float* weights) {
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) power_four(exponent, priorities + i, weights + i);
  if (i == count) return;
  double some_priorities[kWidth] = {};
  float some_weights[kWidth];
  std::copy(priorities + i, priorities + count, some_priorities);
  power_four(exponent, some_priorities, some_weights);
  std::copy_n(some_weights, count - i, weights + i);
}

void power_portable(double exponent, const double* priorities, std::size_t count, float* weights) {
  power_all(exponent, priorities, count, weights);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void power_avx2(double exponent, const double* priorities,
                                                std::size_t count, float* weights) {
  power_all(exponent, priorities, count, weights);
}
#endif

auto best_power() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return power_avx2;
#endif
  return power_portable;
}

}  // namespace

void priority_power(double exponent, std::span<const double> priorities, std::span<float> weights) {
  REVERIE_CHECK(priorities.size() == weights.size());
  if (exponent == 1.0) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double priority = priorities[i];
      const double positive = std::min<double>(std::max<double>(priority, FLT_MIN), FLT_MAX);
      weights[i] = static_cast<float>(priority == 0 ? 0 : positive);
    }
    return;
  }
  static const auto power = best_power();
  power(exponent, priorities.data(), priorities.size(), weights.data());
}

}  // namespace reverie
