// Tested in learning_rules_test.cc.
#include "reverie/rl/td_target.h"

#include <cstddef>

#include "reverie/base/check.h"

namespace reverie {

void td_targets(std::span<const float> rewards, std::span<const float> discounts,
                std::span<const float> next_values, std::span<float> targets) {
  REVERIE_CHECK(rewards.size() == targets.size() && discounts.size() == targets.size());
  REVERIE_CHECK(next_values.size() == targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = td_target(rewards[i], discounts[i], next_values[i]);
  }
}

}  // namespace reverie
