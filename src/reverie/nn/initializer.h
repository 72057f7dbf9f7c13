// Initial weights, drawn from a seed.
//
// Two initialisers that users know from PyTorch: the default of its Linear, and orthogonal matrices
// with biases of 0. The distributions are PyTorch's, the bits are not: the generators differ.
#pragma once

#include <span>

#include "reverie/base/random.h"
#include "reverie/base/status.h"
#include "reverie/nn/mlp.h"

namespace reverie::nn {

// Weights and biases uniform in [-1/sqrt(in), 1/sqrt(in)]; in: the layer's number of inputs.
//
// Source: torch.nn.Linear.reset_parameters; the weights follow He et al. 2015 with a = sqrt(5).
void initialize_uniform(const Mlp& mlp, Random& random, Parameters& parameters);

// Weights with orthonormal rows or columns, whichever are fewer, times the layer's gain; biases 0.
// Each orthogonal matrix is equally likely. Usual gains: sqrt(2) for layers followed by ReLU; for
// outputs 1 for values, 0.01 for policies.
//
// INVALID_ARGUMENT unless there is one positive, finite gain per layer. O(in out min(in, out)).
//
// Source: Saxe et al. 2014, section 3, as in torch.nn.init.orthogonal_.
Status initialize_orthogonal(const Mlp& mlp, std::span<const double> gains, Random& random,
                             Parameters& parameters);

}  // namespace reverie::nn
