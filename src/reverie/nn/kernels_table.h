// The kernels of each instruction set, for kernels.cc: null if not compiled.
#pragma once

#include "reverie/nn/kernels.h"

namespace reverie::nn {

const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

}  // namespace reverie::nn
