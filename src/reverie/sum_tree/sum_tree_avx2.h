// The primitives of a SumTree with AVX2: a node of 16 f64 is four registers.
#pragma once

#include <immintrin.h>

#include "reverie/sum_tree/sum_tree_walk.h"

// Every processor with AVX2 has the other extensions too; avx2_kernels() still checks.
#define REVERIE_AVX2 __attribute__((target("avx2,bmi,lzcnt")))

namespace reverie::sum_tree {

// Indexed by the number of leading zeros of a comparison's mask, which has two bits per child in
// the order of the mass: the last child for which it is true, times `kSize`.
template <std::size_t kSize>
struct ChildTable {
  std::uint8_t children[33] = {};
  constexpr ChildTable() {
    for (std::size_t rank = 0; rank < kFanout; ++rank) {
      children[30 - 2 * rank] = static_cast<std::uint8_t>(child_at(rank) * kSize);
    }
  }
};
alignas(64) inline constexpr ChildTable<1> kChild;
alignas(64) inline constexpr ChildTable<sizeof(double)> kPlace;

// Children are summed along four lanes. The last lane that begins at or below the mass, and in it
// the last such step, is the child that contains the mass.
struct Avx2 {
  // base = 0, t0, t0 + t1, (t0 + t1) + t2 of the sums of the lanes: where each lane begins. Added
  // in this order, so that no lane begins below the end of the one before, not even by rounding.
  REVERIE_AVX2 static inline __m256d base_of(__m256d sum) {
    const __m256d pairs = _mm256_add_pd(sum, _mm256_permute_pd(sum, 0b0101));
    const __m256d first_pair = _mm256_permute2f128_pd(pairs, pairs, 0x08);  // 0 0 t0+t1 t0+t1
    const __m256d odd = _mm256_unpacklo_pd(_mm256_setzero_pd(), sum);       // 0 t0 0 t2
    return _mm256_add_pd(first_pair, odd);
  }

  REVERIE_AVX2 static inline double highest(__m256d v) {
    const __m128d high = _mm256_extractf128_pd(v, 1);
    return _mm_cvtsd_f64(_mm_unpackhi_pd(high, high));
  }

  // From the comparisons of the four steps: each fills 8 bytes a lane, of which 2 are blended into
  // one mask.
  REVERIE_AVX2 static inline unsigned leading_zeros(__m256d c0, __m256d c1, __m256d c2,
                                                    __m256d c3) {
    const __m256 even = _mm256_blend_ps(_mm256_castpd_ps(c0), _mm256_castpd_ps(c2), 0xAA);
    const __m256 odd = _mm256_blend_ps(_mm256_castpd_ps(c1), _mm256_castpd_ps(c3), 0xAA);
    const __m256i all =
        _mm256_blend_epi16(_mm256_castps_si256(even), _mm256_castps_si256(odd), 0xAA);
    return _lzcnt_u32(static_cast<unsigned>(_mm256_movemask_epi8(all)));
  }

  REVERIE_AVX2 static inline __m256d at_most(const double* sums, __m256d mass) {
    return _mm256_cmp_pd(mass, _mm256_load_pd(sums), _CMP_GE_OQ);
  }

  REVERIE_AVX2 static inline std::size_t step(const double* node, double* mass) {
    const __m256d x = _mm256_broadcast_sd(mass);
    const std::size_t place = kPlace.children[leading_zeros(
        at_most(node, x), at_most(node + 4, x), at_most(node + 8, x), at_most(node + 12, x))];
    *mass = _mm256_cvtsd_f64(x) - *at(node, place);
    return place;
  }

  REVERIE_AVX2 static inline __m256d load(const float* weights) {
    return _mm256_cvtps_pd(_mm_load_ps(weights));
  }
  REVERIE_AVX2 static inline __m256d load(const double* sums) { return _mm256_load_pd(sums); }

  REVERIE_AVX2 static inline std::size_t last_step(const float* weights, double mass) {
    const __m256d first = load(weights);
    const __m256d second = _mm256_add_pd(first, load(weights + 4));
    const __m256d v2 = load(weights + 8);
    const __m256d third = _mm256_add_pd(second, v2);
    const __m256d sum = _mm256_add_pd(second, _mm256_add_pd(v2, load(weights + 12)));
    // The rest of the mass at the start of each lane; negative in the lanes beyond.
    const __m256d rest = _mm256_sub_pd(_mm256_set1_pd(mass), base_of(sum));
    return kChild.children[leading_zeros(_mm256_cmp_pd(rest, _mm256_setzero_pd(), _CMP_GE_OQ),
                                         _mm256_cmp_pd(rest, first, _CMP_GE_OQ),
                                         _mm256_cmp_pd(rest, second, _CMP_GE_OQ),
                                         _mm256_cmp_pd(rest, third, _CMP_GE_OQ))];
  }

  // The exclusive running sums of 16 numbers, and their sum.
  struct Running {
    __m256d below[kLanes];
    double total;
  };
  REVERIE_AVX2 static inline Running run(const double* sums) {
    const __m256d first = load(sums);
    const __m256d second = _mm256_add_pd(first, load(sums + 4));
    const __m256d v2 = load(sums + 8);
    const __m256d sum = _mm256_add_pd(second, _mm256_add_pd(v2, load(sums + 12)));
    const __m256d base = base_of(sum);
    return {{base, _mm256_add_pd(base, first), _mm256_add_pd(base, second),
             _mm256_add_pd(base, _mm256_add_pd(second, v2))},
            highest(_mm256_add_pd(base, sum))};
  }

  REVERIE_AVX2 static inline void store(const Running& running, double* below) {
    for (std::size_t step = 0; step < kLanes; ++step) {
      _mm256_store_pd(below + step * kLanes, running.below[step]);
    }
  }

  REVERIE_AVX2 static inline double fold(const double* sums, double* below) {
    const Running running = run(sums);
    store(running, below);
    return running.total;
  }

  REVERIE_AVX2 static inline std::size_t scan_step(const double* sums, double* mass) {
    const Running running = run(sums);
    const __m256d x = _mm256_broadcast_sd(mass);
    const auto at_most = [x](__m256d below)
                             REVERIE_AVX2 { return _mm256_cmp_pd(x, below, _CMP_GE_OQ); };
    const std::size_t place =
        kPlace.children[leading_zeros(at_most(running.below[0]), at_most(running.below[1]),
                                      at_most(running.below[2]), at_most(running.below[3]))];
    // Through memory: which of the 16 numbers it is comes from the comparison.
    alignas(32) double below[kFanout];
    store(running, below);
    *mass = _mm256_cvtsd_f64(x) - *at(below, place);
    return place;
  }

  template <typename T>
  REVERIE_AVX2 static inline double add_up(const T* values) {
    const __m256d sum = _mm256_add_pd(_mm256_add_pd(load(values), load(values + 4)),
                                      _mm256_add_pd(load(values + 8), load(values + 12)));
    return highest(_mm256_add_pd(base_of(sum), sum));
  }

  template <int kBits>
  REVERIE_AVX2 static inline __m256i rotl(__m256i x) {
    return _mm256_or_si256(_mm256_slli_epi64(x, kBits), _mm256_srli_epi64(x, 64 - kBits));
  }

  REVERIE_AVX2 static inline void fill(RandomLanes& random, double scale, double* out,
                                       std::size_t count) {
    static_assert(RandomLanes::kLanes == 4);
    const auto word = [&random](std::size_t w) {
      return reinterpret_cast<__m256i*>(random.words()[w]);
    };
    __m256i s0 = _mm256_loadu_si256(word(0));
    __m256i s1 = _mm256_loadu_si256(word(1));
    __m256i s2 = _mm256_loadu_si256(word(2));
    __m256i s3 = _mm256_loadu_si256(word(3));
    const __m256i one_to_two = _mm256_set1_epi64x(0x3ff0000000000000);
    const __m256d scales = _mm256_set1_pd(scale);
    for (std::size_t i = 0; i < count; i += RandomLanes::kLanes) {
      const __m256i result = _mm256_add_epi64(rotl<23>(_mm256_add_epi64(s0, s3)), s0);
      const __m256i t = _mm256_slli_epi64(s1, 17);
      s2 = _mm256_xor_si256(s2, s0);
      s3 = _mm256_xor_si256(s3, s1);
      s1 = _mm256_xor_si256(s1, s2);
      s0 = _mm256_xor_si256(s0, s3);
      s2 = _mm256_xor_si256(s2, t);
      s3 = rotl<45>(s3);
      const __m256i bits = _mm256_or_si256(_mm256_srli_epi64(result, 12), one_to_two);
      const __m256d unit = _mm256_sub_pd(_mm256_castsi256_pd(bits), _mm256_set1_pd(1.0));
      _mm256_store_pd(out + i, _mm256_mul_pd(unit, scales));
    }
    _mm256_storeu_si256(word(0), s0);
    _mm256_storeu_si256(word(1), s1);
    _mm256_storeu_si256(word(2), s2);
    _mm256_storeu_si256(word(3), s3);
  }
};

}  // namespace reverie::sum_tree
