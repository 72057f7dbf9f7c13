// Computes weights from priorities, for the prioritised selector.
#pragma once

#include <span>

namespace reverie {

// weights[i] = priorities[i]^exponent, correct to 1e-7 of itself, but at least FLT_MIN and at most
// FLT_MAX; 0 for priority 0, whatever the exponent. About 3 ns each in batches, where pow takes 16:
// a table computes weights under its lock. Requires exponent >= 0 and priorities >= 0, all finite;
// spans of one size.
void priority_power(double exponent, std::span<const double> priorities, std::span<float> weights);

}  // namespace reverie
