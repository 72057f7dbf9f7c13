// One-step targets: the reward plus the discounted value of the next state.
//
//     y = r + d v'
//
// The discount d is gamma, or 0 where the episode terminated; see n_step_return.h. With returns
// over n steps instead of r, and the product of their discounts instead of d, these are n-step
// targets. In every rule of this folder a discount of 0 cuts off everything after it, NaN and
// infinity included: values of a state after the end are meaningless.
//
// Source: Sutton & Barto, 2nd ed., equation 6.2.
#pragma once

#include <span>

namespace reverie {

// All spans of one length B. Thread-safe.
void td_targets(std::span<const float> rewards, std::span<const float> discounts,
                std::span<const float> next_values, std::span<float> targets);

// r + d v, and only r if d is 0.
inline float td_target(float reward, float discount, float next_value) {
  return discount == 0.0f ? reward : reward + discount * next_value;
}

}  // namespace reverie
