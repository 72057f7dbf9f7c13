// A SumTree with AVX2.
//
// Tested in sum_tree_test.cc.
#include "reverie/sum_tree/sum_tree_nodes.h"

#if defined(__x86_64__)

#include "reverie/sum_tree/sum_tree_avx2.h"

namespace reverie::sum_tree {
namespace {

[[gnu::flatten]] REVERIE_AVX2 void find(const Tree& tree, const double* masses, std::size_t count,
                                        Slot* slots, float* weights) {
  find_all<Avx2>(tree, masses, count, slots, weights);
}

[[gnu::flatten]] REVERIE_AVX2 void draw(const Tree& tree, RandomLanes& random, std::size_t count,
                                        Slot* slots, double* probabilities) {
  draw_all<Avx2>(tree, random, count, slots, probabilities);
}

[[gnu::flatten]] REVERIE_AVX2 void refresh(Tree& tree, const std::uint32_t* groups,
                                           std::size_t count) {
  refresh_all<Avx2>(tree, groups, count);
}

}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kKernels = {"avx2", find, draw, refresh};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") ? &kKernels : nullptr;
}

}  // namespace reverie::sum_tree

#else

namespace reverie::sum_tree {

const Kernels* avx2_kernels() {
  return nullptr;
}

}  // namespace reverie::sum_tree

#endif
