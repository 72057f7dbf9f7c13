// Tested in learning_rules_test.cc.
#include "reverie/rl/v_trace.h"

#include <algorithm>

#include "reverie/base/check.h"
#include "reverie/rl/td_target.h"

namespace reverie {

Status v_trace(const Rollout& rollout, std::span<const float> ratios, const VTraceOptions& options,
               std::span<float> targets, std::span<float> advantages) {
  if (!(options.lambda >= 0.0f && options.lambda <= 1.0f)) {
    return invalid_argument("lambda is {}; it must be between 0 and 1", options.lambda);
  }
  if (!(options.rho_max > 0.0f) || !(options.advantage_rho_max > 0.0f)) {
    return invalid_argument("rho_max is {} and advantage_rho_max is {}; both must be above 0",
                            options.rho_max, options.advantage_rho_max);
  }
  const Rollout& t = rollout;
  REVERIE_CHECK(t.is_sound() && ratios.size() == t.rewards.size());
  REVERIE_CHECK(targets.size() == ratios.size() && advantages.size() == ratios.size());
  for (std::size_t row = 0; row < targets.size(); row += t.step_count) {
    float correction = 0;                                // v_{t+1} - V(s_{t+1})
    float next = t.next_values[row + t.step_count - 1];  // q_{t+1}
    for (std::size_t i = row + t.step_count; i-- > row;) {
      if (t.is_end(i)) {
        correction = 0;
        next = t.next_values[i];
      }
      // NaN is passed on: the bounds must not hide it.
      const float rho = std::min(ratios[i], options.rho_max);
      const float error = td_target(t.rewards[i], t.discounts[i], t.next_values[i]) - t.values[i];
      const float trace = t.discounts[i] * options.lambda * std::min(ratios[i], 1.0f);
      advantages[i] = std::min(ratios[i], options.advantage_rho_max) *
                      (td_target(t.rewards[i], t.discounts[i], next) - t.values[i]);
      correction = td_target(rho * error, trace, correction);
      targets[i] = t.values[i] + correction;
      next = t.values[i] + options.lambda * correction;
    }
  }
  return {};
}

}  // namespace reverie
