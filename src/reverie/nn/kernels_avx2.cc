// The kernels with AVX2 and FMA: vectors of 8 floats, 16 registers. cmake/library.cmake gives this
// source the options for them on x86-64; elsewhere nothing is compiled.
//
// Tested in kernels_test.cc.
#include "reverie/nn/kernels_table.h"

#if defined(__AVX2__) && defined(__FMA__)

namespace reverie::nn {
namespace {
constexpr std::size_t kLanes = 8;
constexpr std::size_t kTileRows = 6;
constexpr std::size_t kPackedRows = 0;
}  // namespace
}  // namespace reverie::nn

#include "reverie/nn/kernels_body.h"

namespace reverie::nn {
const Kernels* avx2_kernels() {
  static constexpr Kernels kTable = kernels_named("avx2");
  return &kTable;
}
}  // namespace reverie::nn

#else

namespace reverie::nn {
const Kernels* avx2_kernels() {
  return nullptr;
}
}  // namespace reverie::nn

#endif
