// The primitives of a SumTree with AVX2: a node of 16 f64 is four registers.
#include "reverie/replay/sum_tree_nodes.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "reverie/replay/sum_tree_walk.h"

#define REVERIE_AVX2 __attribute__((target("avx2,popcnt")))

namespace reverie::sum_tree {
namespace {

// By twice the number of children that are at or below the mass: where the last of them lies.
constexpr std::uint8_t kChildByCount[2 * kFanout + 1] = {0,  0, 0,  0, 4, 0,  8, 0, 12, 0, 1,
                                                         0,  5, 0,  9, 0, 13, 0, 2, 0,  6, 0,
                                                         10, 0, 14, 0, 3, 0,  7, 0, 11, 0, 15};

struct Avx2 {
  // Exclusive running sums along four lanes, from four vectors that each hold one child a lane.
  struct Sums {
    __m256d below[4];
    __m256d last;  // the inclusive ones of vector 3: its highest lane is the sum of all
  };

  REVERIE_AVX2 static inline Sums run(__m256d v0, __m256d v1, __m256d v2, __m256d v3) {
    const __m256d s1 = _mm256_add_pd(v0, v1);
    const __m256d s2 = _mm256_add_pd(s1, v2);
    const __m256d s3 = _mm256_add_pd(s2, v3);  // t0 t1 t2 t3: what each lane sums to
    // base = 0, t0, t0 + t1, (t0 + t1) + t2: added in this order, so that no lane starts below
    // the end of the one before, not even by rounding.
    const __m256d swapped = _mm256_permute_pd(s3, 0b0101);
    const __m256d pairs = _mm256_add_pd(s3, swapped);
    const __m256d low_pair = _mm256_permute2f128_pd(pairs, pairs, 0x08);  // 0 0 t0+t1 t0+t1
    const __m256d odd = _mm256_unpacklo_pd(_mm256_setzero_pd(), s3);      // 0 t0 0 t2
    const __m256d base = _mm256_add_pd(low_pair, odd);
    return {{base, _mm256_add_pd(base, v0), _mm256_add_pd(base, s1), _mm256_add_pd(base, s2)},
            _mm256_add_pd(base, s3)};
  }

  REVERIE_AVX2 static inline std::size_t pick(const __m256d* below, __m256d mass) {
    const __m256d c0 = _mm256_cmp_pd(below[0], mass, _CMP_LE_OQ);
    const __m256d c1 = _mm256_cmp_pd(below[1], mass, _CMP_LE_OQ);
    const __m256d c2 = _mm256_cmp_pd(below[2], mass, _CMP_LE_OQ);
    const __m256d c3 = _mm256_cmp_pd(below[3], mass, _CMP_LE_OQ);
    // A comparison fills 8 bytes of a lane; two bytes of each are enough to count.
    const __m256 c01 = _mm256_blend_ps(_mm256_castpd_ps(c0), _mm256_castpd_ps(c1), 0xAA);
    const __m256 c23 = _mm256_blend_ps(_mm256_castpd_ps(c2), _mm256_castpd_ps(c3), 0xAA);
    const __m256i all =
        _mm256_blend_epi16(_mm256_castps_si256(c01), _mm256_castps_si256(c23), 0xAA);
    return kChildByCount[_mm_popcnt_u32(static_cast<unsigned>(_mm256_movemask_epi8(all)))];
  }

  REVERIE_AVX2 static inline double top_lane(__m256d v) {
    const __m128d high = _mm256_extractf128_pd(v, 1);
    return _mm_cvtsd_f64(_mm_unpackhi_pd(high, high));
  }

  REVERIE_AVX2 static inline Sums run(const float* weights) {
    return run(_mm256_cvtps_pd(_mm_load_ps(weights)), _mm256_cvtps_pd(_mm_load_ps(weights + 4)),
               _mm256_cvtps_pd(_mm_load_ps(weights + 8)),
               _mm256_cvtps_pd(_mm_load_ps(weights + 12)));
  }

  REVERIE_AVX2 static inline std::size_t pick(const double* below, double mass) {
    const __m256d nodes[4] = {_mm256_load_pd(below), _mm256_load_pd(below + 4),
                              _mm256_load_pd(below + 8), _mm256_load_pd(below + 12)};
    return pick(nodes, _mm256_set1_pd(mass));
  }

  REVERIE_AVX2 static inline std::size_t pick_weight(const float* weights, double mass) {
    const Sums sums = run(weights);
    return pick(sums.below, _mm256_set1_pd(mass));
  }

  REVERIE_AVX2 static inline double fold(const double* sums, double* below) {
    const Sums made = run(_mm256_load_pd(sums), _mm256_load_pd(sums + 4), _mm256_load_pd(sums + 8),
                          _mm256_load_pd(sums + 12));
    _mm256_store_pd(below, made.below[0]);
    _mm256_store_pd(below + 4, made.below[1]);
    _mm256_store_pd(below + 8, made.below[2]);
    _mm256_store_pd(below + 12, made.below[3]);
    return top_lane(made.last);
  }

  REVERIE_AVX2 static inline double add_up(const float* weights) {
    return top_lane(run(weights).last);
  }
};

[[gnu::flatten]] REVERIE_AVX2 void find(const Tree& tree, const double* masses, std::size_t count,
                                        Slot* slots, float* weights) {
  find_all<Avx2>(tree, masses, count, slots, weights);
}

[[gnu::flatten]] REVERIE_AVX2 void update(Tree& tree, const Slot* slots, const float* weights,
                                          std::size_t count) {
  update_all<Avx2>(tree, slots, weights, count);
}

[[gnu::flatten]] REVERIE_AVX2 double fold(const double* sums, double* below) {
  return Avx2::fold(sums, below);
}

}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kKernels = {"avx2", find, update, fold};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") ? &kKernels : nullptr;
}

}  // namespace reverie::sum_tree

#else

namespace reverie::sum_tree {

const Kernels* avx2_kernels() {
  return nullptr;
}

}  // namespace reverie::sum_tree

#endif
