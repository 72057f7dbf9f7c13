// Targets from the lower of two critics.
//
//     TD3   y = r + d min(Q1(s', a'), Q2(s', a'))
//     SAC   y = r + d (min(Q1(s', a'), Q2(s', a')) - temperature log pi(a' | s'))
//
// Sources: Fujimoto et al. 2018, equation 10; Haarnoja et al. 2018b, equations 3 and 5.
#pragma once

#include <span>

namespace reverie {

// All spans of one length B. Thread-safe.
void clipped_double_q_targets(std::span<const float> rewards, std::span<const float> discounts,
                              std::span<const float> first_values,
                              std::span<const float> second_values, std::span<float> targets);

// Also requires a temperature >= 0. With an infinite one no target is finite, unless its discount
// is 0.
void soft_double_q_targets(std::span<const float> rewards, std::span<const float> discounts,
                           std::span<const float> first_values,
                           std::span<const float> second_values,
                           std::span<const float> log_probabilities, float temperature,
                           std::span<float> targets);

}  // namespace reverie
