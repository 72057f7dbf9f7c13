// The primitives of a SumTree with AVX-512, where they save something over the AVX2 ones.
//
// Tested in sum_tree_test.cc.
#include "reverie/sum_tree/sum_tree_nodes.h"

#if defined(__x86_64__)

#include "reverie/sum_tree/sum_tree_avx2.h"

#define REVERIE_AVX512 \
  __attribute__((target("avx2,bmi,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")))

namespace reverie::sum_tree {
namespace {

// By the number of children that begin at or below the mass: the place of the last of them.
struct CountTable {
  std::uint8_t places[kFanout + 1] = {};
  constexpr CountTable() {
    for (std::size_t rank = 0; rank < kFanout; ++rank) {
      places[rank + 1] = static_cast<std::uint8_t>(child_at(rank) * sizeof(double));
    }
  }
};
alignas(64) constexpr CountTable kCounted;

// A node is two registers, and a comparison gives its bits at once: the running sums do not fall
// along the mass, so their number tells the child. The rest is as with AVX2: wider sums take more
// shuffles than they save additions.
struct Avx512 : Avx2 {
  // The children that begin at or below the mass.
  REVERIE_AVX512 static inline unsigned count(__m512d x, __m512d low, __m512d high) {
    const __mmask8 in_low = _mm512_cmp_pd_mask(x, low, _CMP_GE_OQ);
    const __mmask8 in_high = _mm512_cmp_pd_mask(x, high, _CMP_GE_OQ);
    return static_cast<unsigned>(_mm_popcnt_u32(_cvtmask16_u32(_mm512_kunpackb(in_high, in_low))));
  }

  REVERIE_AVX512 static inline std::size_t step(const double* node, double* mass) {
    const __m512d x = _mm512_set1_pd(*mass);
    const std::size_t place =
        kCounted.places[count(x, _mm512_load_pd(node), _mm512_load_pd(node + 8))];
    *mass = _mm512_cvtsd_f64(x) - *at(node, place);
    return place;
  }

  REVERIE_AVX512 static inline void fill(RandomLanes& random, double scale, double* out,
                                         std::size_t count) {
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
      const __m256i result = _mm256_add_epi64(_mm256_rol_epi64(_mm256_add_epi64(s0, s3), 23), s0);
      const __m256i t = _mm256_slli_epi64(s1, 17);
      s2 = _mm256_xor_si256(s2, s0);
      s3 = _mm256_xor_si256(s3, s1);
      s1 = _mm256_xor_si256(s1, s2);
      s0 = _mm256_xor_si256(s0, s3);
      s2 = _mm256_xor_si256(s2, t);
      s3 = _mm256_rol_epi64(s3, 45);
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

[[gnu::flatten]] REVERIE_AVX512 void find(const Tree& tree, const double* masses, std::size_t count,
                                          Slot* slots, float* weights) {
  find_all<Avx512>(tree, masses, count, slots, weights);
}

[[gnu::flatten]] REVERIE_AVX512 void draw(const Tree& tree, RandomLanes& random, std::size_t count,
                                          Slot* slots, double* probabilities) {
  draw_all<Avx512>(tree, random, count, slots, probabilities);
}

[[gnu::flatten]] REVERIE_AVX512 void refresh(Tree& tree, const std::uint32_t* groups,
                                             std::size_t count) {
  refresh_all<Avx512>(tree, groups, count);
}

}  // namespace

const Kernels* avx512_kernels() {
  static constexpr Kernels kKernels = {"avx512", find, draw, refresh};
  const bool has_all = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("popcnt");
  return has_all && avx2_kernels() != nullptr ? &kKernels : nullptr;
}

}  // namespace reverie::sum_tree

#else

namespace reverie::sum_tree {

const Kernels* avx512_kernels() {
  return nullptr;
}

}  // namespace reverie::sum_tree

#endif
