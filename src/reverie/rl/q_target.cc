// Tested in learning_rules_test.cc.
#include "reverie/rl/q_target.h"

#include <cmath>

#include "reverie/base/check.h"
#include "reverie/rl/td_target.h"

namespace reverie {

std::size_t greedy_action(std::span<const float> values) {
  REVERIE_CHECK(!values.empty());
  std::size_t best = 0;
  for (std::size_t a = 1; a < values.size() && !std::isnan(values[best]); ++a) {
    if (!(values[a] <= values[best])) best = a;
  }
  return best;
}

void double_q_targets(std::span<const float> rewards, std::span<const float> discounts,
                      std::span<const float> next_online_values,
                      std::span<const float> next_target_values, std::span<float> targets) {
  REVERIE_CHECK(rewards.size() == targets.size() && discounts.size() == targets.size());
  REVERIE_CHECK(next_online_values.size() == next_target_values.size());
  if (targets.empty()) {
    REVERIE_CHECK(next_online_values.empty());
    return;
  }
  const std::size_t action_count = next_online_values.size() / targets.size();
  REVERIE_CHECK(action_count >= 1 && action_count * targets.size() == next_online_values.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::size_t row = i * action_count;
    const std::size_t best = row + greedy_action(next_online_values.subspan(row, action_count));
    // A choice by NaN has no value.
    const float value =
        std::isnan(next_online_values[best]) ? next_online_values[best] : next_target_values[best];
    targets[i] = td_target(rewards[i], discounts[i], value);
  }
}

void q_targets(std::span<const float> rewards, std::span<const float> discounts,
               std::span<const float> next_values, std::span<float> targets) {
  double_q_targets(rewards, discounts, next_values, next_values, targets);
}

}  // namespace reverie
