// Targets of Q-learning over a few discrete actions.
//
//     Q-learning          y = r + d max_a Q(s', a)
//     double Q-learning   y = r + d Q_target(s', argmax_a Q_online(s', a))
//
// The largest of several noisy values is too large on average. If one network chooses the action
// and another evaluates it, the noise of the choice does not count as value.
//
// Sources: Watkins & Dayan 1992; van Hasselt et al. 2016, equation 4. Among equal values the first
// wins.
#pragma once

#include <cstddef>
#include <span>

namespace reverie {

// `next_values` has a row of A action values for each target, row-major. Thread-safe. Require
// rewards, discounts and targets of one length B, and rows of B A values, A >= 1.
void q_targets(std::span<const float> rewards, std::span<const float> discounts,
               std::span<const float> next_values, std::span<float> targets);

void double_q_targets(std::span<const float> rewards, std::span<const float> discounts,
                      std::span<const float> next_online_values,
                      std::span<const float> next_target_values, std::span<float> targets);

// The index of the largest value, the first among equals; of the first NaN if there is one, so that
// a broken network shows. Requires at least one value.
std::size_t greedy_action(std::span<const float> values);

}  // namespace reverie
