// Tested in learning_rules_test.cc.
#include "reverie/rl/squashed_gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reverie/base/check.h"

namespace reverie {
namespace {

constexpr double kHalfLogTwoPi = 0.91893853320467274178;

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// One dimension's share of the log probability.
double log_density(double noise, double log_std, double u) {
  const double squash = 2.0 * (std::numbers::ln2 - u - softplus(-2.0 * u));
  return -0.5 * noise * noise - log_std - kHalfLogTwoPi - squash;
}

// D, for rows of D elements each.
std::size_t width_of(std::size_t element_count, std::size_t row_count) {
  if (row_count == 0) {
    REVERIE_CHECK(element_count == 0);
    return 1;
  }
  REVERIE_CHECK(element_count >= row_count && element_count % row_count == 0);
  return element_count / row_count;
}

}  // namespace

void squashed_gaussian(std::span<const float> mean, std::span<const float> log_std,
                       std::span<const float> noise, std::span<float> actions,
                       std::span<float> log_probabilities) {
  REVERIE_CHECK(mean.size() == actions.size() && log_std.size() == actions.size());
  REVERIE_CHECK(noise.size() == actions.size());
  const std::size_t width = width_of(actions.size(), log_probabilities.size());
  for (std::size_t row = 0; row < log_probabilities.size(); ++row) {
    double sum = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      const double u = mean[i] + std::exp(static_cast<double>(log_std[i])) * noise[i];
      actions[i] = static_cast<float>(std::tanh(u));
      sum += log_density(noise[i], log_std[i], u);
    }
    log_probabilities[row] = static_cast<float>(sum);
  }
}

void squashed_gaussian_log_probabilities(std::span<const float> mean,
                                         std::span<const float> log_std,
                                         std::span<const float> actions,
                                         std::span<float> log_probabilities) {
  constexpr double kActionMax = 1.0 - 1e-6;
  REVERIE_CHECK(mean.size() == actions.size() && log_std.size() == actions.size());
  const std::size_t width = width_of(actions.size(), log_probabilities.size());
  for (std::size_t row = 0; row < log_probabilities.size(); ++row) {
    double sum = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      const double u =
          std::atanh(std::clamp(static_cast<double>(actions[i]), -kActionMax, kActionMax));
      const double noise = (u - mean[i]) * std::exp(-static_cast<double>(log_std[i]));
      sum += log_density(noise, log_std[i], u);
    }
    log_probabilities[row] = static_cast<float>(sum);
  }
}

void squashed_gaussian_gradient(std::span<const float> log_std, std::span<const float> noise,
                                std::span<const float> actions,
                                std::span<const float> action_gradient,
                                std::span<const float> log_probability_gradient,
                                std::span<float> mean_gradient, std::span<float> log_std_gradient) {
  REVERIE_CHECK(log_std.size() == actions.size() && noise.size() == actions.size());
  REVERIE_CHECK(action_gradient.size() == actions.size());
  REVERIE_CHECK(mean_gradient.size() == actions.size());
  REVERIE_CHECK(log_std_gradient.size() == actions.size());
  const std::size_t width = width_of(actions.size(), log_probability_gradient.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const float log_probability = log_probability_gradient[i / width];
    // da/du = 1 - a^2, and with the noise held d(log pi)/du = 2 a.
    const float gradient =
        action_gradient[i] * (1.0f - actions[i] * actions[i]) + log_probability * 2.0f * actions[i];
    mean_gradient[i] = gradient;
    log_std_gradient[i] = gradient * std::exp(log_std[i]) * noise[i] - log_probability;
  }
}

}  // namespace reverie
