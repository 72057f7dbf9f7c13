// A block of RowDiff takes its bytes in one expansion.
//
// Tested in row_diff_test.cc.
#include "reverie/codec/row_diff.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "reverie/codec/row_diff_walk.h"

#define REVERIE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vbmi2,bmi,bmi2,popcnt")))

namespace reverie::row_diff {
namespace {

REVERIE_AVX512 const std::byte* apply(const RowDiff& diff, const std::byte* at,
                                      const std::byte* end, std::byte* row) {
  // The loads are masked, so nothing behind the bytes of this block is read.
  return walk(diff, at, end, row,
              [](std::byte* block, std::uint64_t mask, const std::byte* bytes, std::size_t count)
                  REVERIE_AVX512 {
                    const std::uint64_t some = ~std::uint64_t{0} >> (64 - (count ? count : 1));
                    const __m512i packed = _mm512_maskz_loadu_epi8(count ? some : 0, bytes);
                    const __m512i old = _mm512_loadu_si512(block);
                    _mm512_storeu_si512(block, _mm512_mask_expand_epi8(old, mask, packed));
                  });
}

}  // namespace

Apply avx512_apply() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2");
  return has ? &apply : nullptr;
}

}  // namespace reverie::row_diff

#else

namespace reverie::row_diff {
Apply avx512_apply() {
  return nullptr;
}
}  // namespace reverie::row_diff

#endif
