// The kernels with AVX-512: vectors of 16 floats, 32 registers. cmake/library.cmake gives this
// source the options for them on x86-64; elsewhere nothing is compiled.
//
// Tested in kernels_test.cc.
#include "reverie/nn/kernels_table.h"

#if defined(__AVX512F__)

namespace reverie::nn {
namespace {
constexpr std::size_t kLanes = 16;
constexpr std::size_t kTileRows = 12;
constexpr std::size_t kPackedRows = 6;
}  // namespace
}  // namespace reverie::nn

#include "reverie/nn/kernels_body.h"

namespace reverie::nn {
const Kernels* avx512_kernels() {
  static constexpr Kernels kTable = kernels_named("avx512");
  return &kTable;
}
}  // namespace reverie::nn

#else

namespace reverie::nn {
const Kernels* avx512_kernels() {
  return nullptr;
}
}  // namespace reverie::nn

#endif
