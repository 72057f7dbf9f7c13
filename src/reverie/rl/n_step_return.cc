#include "reverie/rl/n_step_return.h"

#include <cstddef>

#include "reverie/base/check.h"

namespace reverie {

void n_step_returns(std::span<const float> rewards, std::span<const float> discounts,
                    std::span<const float> bootstrap, std::span<float> returns) {
  REVERIE_CHECK(bootstrap.size() == returns.size());
  REVERIE_CHECK(rewards.size() == discounts.size());
  if (returns.empty()) {
    REVERIE_CHECK(rewards.empty());
    return;
  }
  const std::size_t step_count = rewards.size() / returns.size();
  REVERIE_CHECK(step_count >= 1 && step_count * returns.size() == rewards.size());
  for (std::size_t window = 0; window < returns.size(); ++window) {
    const auto window_rewards = rewards.subspan(window * step_count, step_count);
    const auto window_discounts = discounts.subspan(window * step_count, step_count);
    float sum = bootstrap[window];
    for (std::size_t t = step_count; t-- > 0;) {
      // An infinite or NaN estimate behind a terminal step must not leak through 0 * inf.
      sum = window_discounts[t] == 0.0f ? window_rewards[t]
                                        : window_rewards[t] + window_discounts[t] * sum;
    }
    returns[window] = sum;
  }
}

}  // namespace reverie
