// Products whose left side is mostly zero, as the outputs of a ReLU and the gradients before it
// are: each of its rows becomes a list of the terms that are not 0, and only these are multiplied.
//
//     a, a row     0  .3  0  0  .7  0  .1  0        a panel of b, copied to be contiguous
//     its terms    (row 1, .3) (row 4, .7) (row 6, .1)  ->  c += .3 b[1] + .7 b[4] + .1 b[6]
//
// The sums equal those of the dense product, term by term in the order of the depth: 0 times a
// finite number changes no sum. If b is not finite, the dense product is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reverie/nn/kernels_vectors_body.h"

namespace reverie::nn {
namespace {

// The value's bits, and below them the byte offset of its row in the panel: one load for both.
using Term = std::uint64_t;

constexpr std::size_t kPanelDepth = 64;
// The terms of one row of a panel, plus room for whole-vector writes past their end.
constexpr std::size_t kTermsMax = kPanelDepth + kLanes;
// Columns of a panel: 16 KiB of it, half a first-level cache, with AVX-512 and AVX2.
constexpr std::size_t kTermVectors = kLanes == 16 ? 4 : 8;
constexpr std::size_t kPanelStride = kTermVectors * kLanes;

#if defined(__AVX512F__)
constexpr bool kListsFast = true;  // with an instruction, not number by number
#else
constexpr bool kListsFast = false;
#endif

constexpr Term term_of(std::uint32_t value_bits, std::size_t depth) {
  return (Term{value_bits} << 32) | (depth * kPanelStride * sizeof(float));
}

// Lists the numbers that are not 0, of `count`, and returns how many: an even number, by adding a
// term of 0 if necessary. NaN is not 0. Requires count <= kPanelDepth and room for kTermsMax.
REVERIE_INLINE std::size_t list_terms(const float* from, std::size_t count, Term* terms) {
  std::size_t found = 0;
  std::size_t k = 0;
#if defined(__AVX512F__)
  constexpr auto kStep = static_cast<long long>(term_of(0, 1));
  const __m512i places =
      _mm512_set_epi64(7 * kStep, 6 * kStep, 5 * kStep, 4 * kStep, 3 * kStep, 2 * kStep, kStep, 0);
  for (; k + 8 <= count; k += 8) {
    const __m512i bits = _mm512_maskz_cvtepu32_epi64(
        0xff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k)));
    // All bits but the sign's: -0 is 0.
    const __mmask8 is_term = _mm512_test_epi64_mask(bits, _mm512_set1_epi64(0x7fffffff));
    const __m512i begin = _mm512_set1_epi64(static_cast<long long>(term_of(0, k)));
    const __m512i whole =
        _mm512_or_si512(_mm512_maskz_slli_epi64(0xff, bits, 32), _mm512_add_epi64(places, begin));
    _mm512_storeu_si512(terms + found, _mm512_maskz_compress_epi64(is_term, whole));
    found += static_cast<std::size_t>(__builtin_popcount(is_term));
  }
#endif
  for (; k < count; ++k) {
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, from + k, sizeof(bits));
    terms[found] = term_of(bits, k);
    found +=
        (bits & 0x7fffffffu) != 0 ? 1 : 0;  // without a branch, which would be wrong half the time
  }
  if (found % 2 != 0) terms[found++] = term_of(0, 0);
  return found;
}

// Copies a panel of the right side, kPanelStride columns from `column` on. False if it contains a
// number that is not finite.
REVERIE_INLINE bool copy_panel(const Product& p, std::size_t column, std::size_t begin,
                               std::size_t end, float* panel) {
  Vector<kLanes> zeros{};  // NaN if one is not finite
  for (std::size_t k = begin; k < end; ++k) {
    const float* const from = p.b + k * p.b_stride + column;
    float* const to = panel + (k - begin) * kPanelStride;
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kTermVectors; ++v) {
      const Vector<kLanes> values = load<kLanes>(from + v * kLanes);
      zeros += values * 0.0f;
      store<kLanes>(to + v * kLanes, values);
    }
  }
  bool is_finite = true;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    is_finite = is_finite && zeros[lane] == 0.0f;
  }
  return is_finite;
}

// One row of the result, in a panel's columns: its previous value, or its bias, plus the terms.
template <Finish kFinish>
void add_terms(const Product& p, std::size_t row, std::size_t column, bool is_first,
               const float* panel, const Term* terms, std::size_t count) {
  Vector<kLanes> sums[1][kTermVectors];
  const float* const before = is_first ? p.bias : p.c + row * p.c_stride;
#pragma GCC unroll 8
  for (std::size_t v = 0; v < kTermVectors; ++v) {
    sums[0][v] = before != nullptr ? load<kLanes>(before + column + v * kLanes) : Vector<kLanes>{};
  }
  for (std::size_t i = 0; i < count; i += 2) {
#pragma GCC unroll 2
    for (std::size_t j = 0; j < 2; ++j) {
      const Term term = terms[i + j];
      const char* const at =
          reinterpret_cast<const char*>(panel) + static_cast<std::uint32_t>(term);
      const float* const b = reinterpret_cast<const float*>(at);
      const Vector<kLanes> value = all_bits<kLanes>(static_cast<int>(term >> 32));
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kTermVectors; ++v) {
        sums[0][v] = multiply_add(value, load<kLanes>(b + v * kLanes), sums[0][v]);
      }
    }
  }
  store_tile<kFinish, 1, kTermVectors, kLanes>(p, sums, row, column);
}

}  // namespace
}  // namespace reverie::nn
