// Tested in learning_rules_test.cc.
#include "reverie/rl/clipped_double_q.h"

#include <cmath>
#include <cstddef>

#include "reverie/base/check.h"
#include "reverie/rl/td_target.h"

namespace reverie {
namespace {

// NaN wins: a broken critic must show.
float lower_of(float a, float b) {
  return a < b || std::isnan(a) ? a : b;
}

}  // namespace

void clipped_double_q_targets(std::span<const float> rewards, std::span<const float> discounts,
                              std::span<const float> first_values,
                              std::span<const float> second_values, std::span<float> targets) {
  REVERIE_CHECK(rewards.size() == targets.size() && discounts.size() == targets.size());
  REVERIE_CHECK(first_values.size() == targets.size());
  REVERIE_CHECK(second_values.size() == targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = td_target(rewards[i], discounts[i], lower_of(first_values[i], second_values[i]));
  }
}

void soft_double_q_targets(std::span<const float> rewards, std::span<const float> discounts,
                           std::span<const float> first_values,
                           std::span<const float> second_values,
                           std::span<const float> log_probabilities, float temperature,
                           std::span<float> targets) {
  REVERIE_CHECK(rewards.size() == targets.size() && discounts.size() == targets.size());
  REVERIE_CHECK(first_values.size() == targets.size());
  REVERIE_CHECK(second_values.size() == targets.size());
  REVERIE_CHECK(log_probabilities.size() == targets.size());
  REVERIE_CHECK(temperature >= 0.0f);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const float value =
        lower_of(first_values[i], second_values[i]) - temperature * log_probabilities[i];
    targets[i] = td_target(rewards[i], discounts[i], value);
  }
}

}  // namespace reverie
