// Where kernels.cc finds the kernels of each instruction set: null for one that was not compiled.
#pragma once

#include "reverie/nn/kernels.h"

namespace reverie::nn {

const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

}  // namespace reverie::nn
