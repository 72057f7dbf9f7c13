// Tested in learning_rules_test.cc.
#include "reverie/rl/advantages.h"

#include "reverie/base/check.h"
#include "reverie/rl/td_target.h"

namespace reverie {

Status generalized_advantages(const Rollout& rollout, float lambda, std::span<float> advantages) {
  if (!(lambda >= 0.0f && lambda <= 1.0f)) {
    return invalid_argument("lambda is {}; it must be between 0 and 1 (0.95 is usual)", lambda);
  }
  const Rollout& t = rollout;
  REVERIE_CHECK(t.is_sound() && advantages.size() == t.rewards.size());
  for (std::size_t row = 0; row < advantages.size(); row += t.step_count) {
    float next = 0;
    for (std::size_t i = row + t.step_count; i-- > row;) {
      const float error = td_target(t.rewards[i], t.discounts[i], t.next_values[i]) - t.values[i];
      const float trace = t.is_end(i) ? 0.0f : t.discounts[i] * lambda;
      next = td_target(error, trace, next);
      advantages[i] = next;
    }
  }
  return {};
}

}  // namespace reverie
