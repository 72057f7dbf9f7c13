// The kernels with what every processor of the architecture has: SSE2 on x86-64, NEON on ARM.
//
// Tested in kernels_test.cc.
#include <cstddef>

namespace reverie::nn {
namespace {
constexpr std::size_t kLanes = 4;
#if defined(__aarch64__)
constexpr std::size_t kTileRows = 12;  // of 32 registers
#else
constexpr std::size_t kTileRows = 6;  // of 16 registers
#endif
constexpr std::size_t kPackedRows = 0;
}  // namespace
}  // namespace reverie::nn

#include "reverie/nn/kernels_body.h"
#include "reverie/nn/kernels_table.h"

namespace reverie::nn {

const Kernels* portable_kernels() {
  static constexpr Kernels kTable = kernels_named("portable");
  return &kTable;
}

}  // namespace reverie::nn
