// Sums of discounted rewards over one window of steps, closed by a value estimate.
//
//     G = r_0 + d_0 (r_1 + d_1 (... (r_{T-1} + d_{T-1} v)))
//
// The discount d_t belongs to the step from state t to t+1: usually gamma, 0 if the episode
// terminated, so that nothing after its end counts, and still gamma if only a time limit cut it
// off, since a time limit is not a death. A window shorter than T steps is filled up with steps of
// reward 0 and discount 1, which do not change the sum.
//
//     r = 1 1 1, v = 10, gamma = 0.5       d = .5 .5 .5  ->  G = 1 + .5 + .25 + 1.25 = 3
//     terminated after the second step     d = .5  0 .5  ->  G = 1 + .5              = 1.5
//
// Source: Sutton & Barto, 2nd ed., equation 7.1.
#pragma once

#include <span>

namespace reverie {

// One window per return: `rewards` and `discounts` have returns.size() rows of T steps each,
// row-major. Thread-safe.
//
// Requires rewards and discounts of one length, a multiple (T >= 1) of the length that
// `bootstrap` and `returns` share.
void n_step_returns(std::span<const float> rewards, std::span<const float> discounts,
                    std::span<const float> bootstrap, std::span<float> returns);

}  // namespace reverie
