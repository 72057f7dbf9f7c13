#include "reverie/nn/kernels.h"

#include <array>

#include "reverie/nn/kernels_table.h"

namespace reverie::nn {
namespace {

struct Runnable {
  std::array<const Kernels*, 3> tables = {};
  std::size_t count = 0;

  Runnable() {
    add(portable_kernels(), true);
#if defined(__x86_64__)
    add(avx2_kernels(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    add(avx512_kernels(), __builtin_cpu_supports("avx512f"));
#endif
  }
  void add(const Kernels* kernels, bool is_supported) {
    if (kernels != nullptr && is_supported) tables[count++] = kernels;
  }
};

const Runnable& runnable() {
  static const Runnable found;
  return found;
}

}  // namespace

std::span<const Kernels* const> runnable_kernels() {
  return {runnable().tables.data(), runnable().count};
}

const Kernels& kernels() {
  static const Kernels& best = *runnable_kernels().back();
  return best;
}

}  // namespace reverie::nn
