// Draws from the standard normal distribution: Marsaglia's polar method over a Random.
//
// The same seed gives the same draws on one machine; the last bit may differ between C libraries.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "reverie/base/random.h"

namespace reverie {

// Two independent draws. About 40 ns.
struct NormalPair {
  double first;
  double second;
};
inline NormalPair normal_pair(Random& random) {
  for (;;) {
    const double x = 2.0 * random.uniform() - 1.0;
    const double y = 2.0 * random.uniform() - 1.0;
    const double square = x * x + y * y;
    if (square >= 1.0 || square == 0.0) continue;
    const double scale = std::sqrt(-2.0 * std::log(square) / square);
    return {x * scale, y * scale};
  }
}

// Fills `out`; an odd length drops the last half of a pair.
template <typename Float>
void fill_normal(Random& random, std::span<Float> out) {
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const NormalPair pair = normal_pair(random);
    out[i] = static_cast<Float>(pair.first);
    if (i + 1 < out.size()) out[i + 1] = static_cast<Float>(pair.second);
  }
}

}  // namespace reverie
