// Sums of discounted rewards over one window of steps, closed by a value estimate.
//
//     G = r_0 + d_0 (r_1 + d_1 (... (r_{T-1} + d_{T-1} v)))
//
// The discount d_t belongs to the step from state t to t+1: gamma as a rule, 0 where the
// episode terminated, so that nothing behind its end counts, and still gamma where a time limit
// merely cut it off, since a time limit is not a death. A window that is shorter than T steps
// is filled up by steps of reward 0 and discount 1, which leave the sum as it is.
//
//     r = 1 1 1, v = 10, gamma = 0.5       d = .5 .5 .5  ->  G = 1 + .5 + .25 + 1.25 = 3
//     terminated after the second step     d = .5  0 .5  ->  G = 1 + .5              = 1.5
//
// Source: Sutton & Barto, 2nd ed., equation 7.1.
#pragma once

#include <span>

namespace reverie {

// One window a return: `rewards` and `discounts` hold returns.size() rows of T steps each, in
// row-major order. Thread-safe.
//
// Requires rewards and discounts of one length, a multiple (T >= 1) of the length that
// `bootstrap` and `returns` share.
void n_step_returns(std::span<const float> rewards, std::span<const float> discounts,
                    std::span<const float> bootstrap, std::span<float> returns);

}  // namespace reverie
