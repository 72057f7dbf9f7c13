// Vectors in the form of GCC and clang, and the last operations on a sum before it is stored: the
// kernels (kernels_body.h) are written with these. Everything here has internal linkage.
#pragma once

#include <cstddef>

#include "reverie/nn/kernels.h"
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_FMA)
#include <arm_neon.h>
#endif

namespace reverie::nn {
namespace {

// GCC's and clang's vectors: element-wise operators, comparisons that set all bits. They may be at
// any address of a float, and may alias floats.
template <std::size_t kWidth>
struct VectorType {
  using Floats [[gnu::vector_size(kWidth * sizeof(float)), gnu::may_alias]] = float;
  using Loose [[gnu::vector_size(kWidth * sizeof(float)), gnu::aligned(4), gnu::may_alias]] = float;
  using Integers [[gnu::vector_size(kWidth * sizeof(int)), gnu::may_alias]] = int;
};
template <std::size_t kWidth>
using Vector = typename VectorType<kWidth>::Floats;

#define REVERIE_INLINE [[gnu::always_inline]] inline

template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> load(const float* from) {
  return *reinterpret_cast<const typename VectorType<kWidth>::Loose*>(from);
}
template <std::size_t kWidth>
REVERIE_INLINE void store(float* to, Vector<kWidth> value) {
  *reinterpret_cast<typename VectorType<kWidth>::Loose*>(to) = value;
}
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> all(float value) {
  return value - Vector<kWidth>{};
}
// The float that has these bits, in all lanes: from a register for integers, where loads are short.
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> all_bits(int bits) {
  using Integers = typename VectorType<kWidth>::Integers;
  return reinterpret_cast<Vector<kWidth>>(bits - Integers{});
}

// a * b + sum, rounded once if the processor supports it: explicit, since compilers differ in which
// products and sums they fuse.
REVERIE_INLINE Vector<4> multiply_add(Vector<4> a, Vector<4> b, Vector<4> sum) {
#if defined(__FMA__)
  return _mm_fmadd_ps(a, b, sum);
#elif defined(__ARM_FEATURE_FMA)
  return vfmaq_f32(sum, a, b);
#else
  return sum + a * b;
#endif
}
#if defined(__FMA__)
REVERIE_INLINE Vector<8> multiply_add(Vector<8> a, Vector<8> b, Vector<8> sum) {
  return _mm256_fmadd_ps(a, b, sum);
}
#endif
#if defined(__AVX512F__)
REVERIE_INLINE Vector<16> multiply_add(Vector<16> a, Vector<16> b, Vector<16> sum) {
  return _mm512_fmadd_ps(a, b, sum);
}
#endif

// Shuffles within each quarter of four lanes, of a (0 to 3) and b (4 to 7).
template <int kI, int kJ, int kK, int kL>
REVERIE_INLINE Vector<4> shuffle_quarters(Vector<4> a, Vector<4> b) {
  return __builtin_shufflevector(a, b, kI, kJ, kK, kL);
}
// Where lane `lane` of quarter `quarter` is, in two vectors of `width` lanes.
constexpr int lane_at(int lane, int quarter, int width) {
  return lane < 4 ? lane + 4 * quarter : width + lane - 4 + 4 * quarter;
}
template <int kI, int kJ, int kK, int kL>
REVERIE_INLINE Vector<8> shuffle_quarters(Vector<8> a, Vector<8> b) {
  return __builtin_shufflevector(a, b, lane_at(kI, 0, 8), lane_at(kJ, 0, 8), lane_at(kK, 0, 8),
                                 lane_at(kL, 0, 8), lane_at(kI, 1, 8), lane_at(kJ, 1, 8),
                                 lane_at(kK, 1, 8), lane_at(kL, 1, 8));
}
template <int kI, int kJ, int kK, int kL>
REVERIE_INLINE Vector<16> shuffle_quarters(Vector<16> a, Vector<16> b) {
  return __builtin_shufflevector(
      a, b, lane_at(kI, 0, 16), lane_at(kJ, 0, 16), lane_at(kK, 0, 16), lane_at(kL, 0, 16),
      lane_at(kI, 1, 16), lane_at(kJ, 1, 16), lane_at(kK, 1, 16), lane_at(kL, 1, 16),
      lane_at(kI, 2, 16), lane_at(kJ, 2, 16), lane_at(kK, 2, 16), lane_at(kL, 2, 16),
      lane_at(kI, 3, 16), lane_at(kJ, 3, 16), lane_at(kK, 3, 16), lane_at(kL, 3, 16));
}

// Quarter q of `value` goes to to + 4 q stride.
REVERIE_INLINE void store_quarters(float* to, std::size_t, Vector<4> value) {
  store<4>(to, value);
}
REVERIE_INLINE void store_quarters(float* to, std::size_t stride, Vector<8> value) {
  store<4>(to, __builtin_shufflevector(value, value, 0, 1, 2, 3));
  store<4>(to + 4 * stride, __builtin_shufflevector(value, value, 4, 5, 6, 7));
}
REVERIE_INLINE void store_quarters(float* to, std::size_t stride, Vector<16> value) {
  store<4>(to, __builtin_shufflevector(value, value, 0, 1, 2, 3));
  store<4>(to + 4 * stride, __builtin_shufflevector(value, value, 4, 5, 6, 7));
  store<4>(to + 8 * stride, __builtin_shufflevector(value, value, 8, 9, 10, 11));
  store<4>(to + 12 * stride, __builtin_shufflevector(value, value, 12, 13, 14, 15));
}

// NaN stays NaN, else a broken network would look valid.
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> relu(Vector<kWidth> x) {
  return (x <= 0.0f) ? Vector<kWidth>{} : x;
}

// Relative error below 4e-7. Below 0.625 a polynomial in x^2, above 1 - 2 / (exp(2 |x|) + 1).
// Source of both polynomials: Cephes, tanhf.c and expf.c (Moshier).
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> tanh_of(Vector<kWidth> x) {
  using Floats = Vector<kWidth>;
  using Integers = typename VectorType<kWidth>::Integers;
  const Floats magnitude = (x < 0.0f) ? -x : x;
  const Floats squared = x * x;
  Floats series = all<kWidth>(-5.70498872745e-3f);
  series = series * squared + 2.06390887954e-2f;
  series = series * squared - 5.37397155531e-2f;
  series = series * squared + 1.33314422036e-1f;
  series = series * squared - 3.33332819422e-1f;
  const Floats near = series * squared * x + x;

  // exp(2 |x|) = 2^n exp(f). From |x| = 9 on the result is 1.
  const Floats y = 2.0f * ((magnitude > 9.0f) ? all<kWidth>(9.0f) : magnitude);
  const Floats scaled = y * 1.44269504088896341f + 0.5f;
  const Integers n = __builtin_convertvector(scaled, Integers);  // y >= 0: rounds down
  const Floats whole = __builtin_convertvector(n, Floats);
  const Floats f = (y - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Floats power = all<kWidth>(1.9875691500e-4f);
  power = power * f + 1.3981999507e-3f;
  power = power * f + 8.3334519073e-3f;
  power = power * f + 4.1665795894e-2f;
  power = power * f + 1.6666665459e-1f;
  power = power * f + 5.0000001201e-1f;
  power = power * (f * f) + f + 1.0f;
  const Floats exponential = power * reinterpret_cast<Floats>((n + 127) << 23);
  const Floats far = 1.0f - 2.0f / (exponential + 1.0f);
  const Floats signed_far = (x < 0.0f) ? -far : far;
  // x == x: NaN stays NaN.
  return (magnitude < 0.625f) ? near : ((x == x) ? signed_far : x);
}

// The last operation on a sum before it is stored.
enum class Finish { kNone, kRelu, kTanh, kReluDerivative, kTanhDerivative };

template <Finish kFinish, std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> finish(const Product& p, Vector<kWidth> value, std::size_t at) {
  if constexpr (kFinish == Finish::kRelu) return relu<kWidth>(value);
  if constexpr (kFinish == Finish::kTanh) return tanh_of<kWidth>(value);
  if constexpr (kFinish == Finish::kReluDerivative) {
    return (load<kWidth>(p.outputs + at) > 0.0f) ? value : Vector<kWidth>{};
  }
  if constexpr (kFinish == Finish::kTanhDerivative) {
    const Vector<kWidth> output = load<kWidth>(p.outputs + at);
    return value * (1.0f - output * output);
  }
  return value;
}

template <Finish kFinish, std::size_t kRows, std::size_t kVectors, std::size_t kWidth>
REVERIE_INLINE void store_tile(const Product& p, const Vector<kWidth> (&sums)[kRows][kVectors],
                               std::size_t row, std::size_t column) {
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = (row + r) * p.c_stride + column + v * kWidth;
      store<kWidth>(p.c + at, finish<kFinish, kWidth>(p, sums[r][v], at));
    }
  }
}

}  // namespace
}  // namespace reverie::nn
