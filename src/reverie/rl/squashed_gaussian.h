// Actions from a normal distribution, squashed into (-1, 1) by tanh, and their log probabilities.
//
//     u = mean + exp(log_std) noise          a = tanh(u)
//     log pi(a) = sum over the action's dimensions of
//                 -noise^2 / 2 - log_std - log(2 pi) / 2 - log(1 - tanh(u)^2)
//
// The last term is computed as 2 (log 2 - u - softplus(-2 u)), exact even where tanh(u) is 1.
//
// Source: Haarnoja et al. 2018b, appendix C.
#pragma once

#include <cstddef>
#include <span>

namespace reverie {

// `mean`, `log_std`, `noise` and `actions` have a row of D dimensions for each of the B log
// probabilities, row-major. Thread-safe. Requires spans of matching sizes, D >= 1.
void squashed_gaussian(std::span<const float> mean, std::span<const float> log_std,
                       std::span<const float> noise, std::span<float> actions,
                       std::span<float> log_probabilities);

// The same density at given actions. An action beyond 1 - 1e-6 is clipped to it: the density at 1
// itself is unbounded.
void squashed_gaussian_log_probabilities(std::span<const float> mean,
                                         std::span<const float> log_std,
                                         std::span<const float> actions,
                                         std::span<float> log_probabilities);

// The gradient in mean and log_std, for fixed noise, of a loss of the actions and log probabilities
// from squashed_gaussian(): `action_gradient` is [B, D], `log_probability_gradient` [B].
void squashed_gaussian_gradient(std::span<const float> log_std, std::span<const float> noise,
                                std::span<const float> actions,
                                std::span<const float> action_gradient,
                                std::span<const float> log_probability_gradient,
                                std::span<float> mean_gradient, std::span<float> log_std_gradient);

}  // namespace reverie
