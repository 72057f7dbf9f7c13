// The distribution of a return, discounted, shifted by a reward, and projected onto its support.
//
//     support    z_0 = value_min ... z_{A-1} = value_max, evenly spaced
//     moved      r + d z_i, clipped to [value_min, value_max]
//     projected  the probability of each moved atom, shared by its two neighbours on the support in
//                proportion to how near they are
//
//     z = 0 1 2, p = (0, 1, 0), r = 0.25, d = 1    ->    0.75 at 1, 0.25 at 2
//
// Source: Bellemare et al. 2017, algorithm 1.
#pragma once

#include <span>

#include "reverie/base/status.h"

namespace reverie {

// `next_probabilities` and `projected` have a row of A probabilities for each of the B rewards,
// row-major. Sums of rows are preserved up to rounding. Thread-safe.
//
// INVALID_ARGUMENT unless value_min < value_max, both finite. Requires rewards and discounts of one
// length B, and rows of B A values, A >= 2.
Status categorical_projection(std::span<const float> rewards, std::span<const float> discounts,
                              std::span<const float> next_probabilities, float value_min,
                              float value_max, std::span<float> projected);

}  // namespace reverie
