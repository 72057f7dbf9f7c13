// Tested in learning_rules_test.cc.
#include "reverie/rl/exploration.h"

#include <algorithm>
#include <cmath>

#include "reverie/base/check.h"
#include "reverie/rl/q_target.h"

namespace reverie {

Status check_schedule(const EpsilonSchedule& schedule) {
  const auto is_share = [](double value) { return value >= 0.0 && value <= 1.0; };
  if (!is_share(schedule.first) || !is_share(schedule.last)) {
    return invalid_argument("epsilon goes from {} to {}; both must be between 0 and 1",
                            schedule.first, schedule.last);
  }
  if (schedule.decay == Decay::kExponential && (schedule.first == 0.0 || schedule.last == 0.0)) {
    return invalid_argument(
        "epsilon goes from {} to {}; an exponential schedule neither begins nor ends at 0",
        schedule.first, schedule.last);
  }
  return {};
}

double epsilon_at(const EpsilonSchedule& schedule, std::uint64_t step) {
  if (step >= schedule.step_count) return schedule.last;
  const double share = static_cast<double>(step) / static_cast<double>(schedule.step_count);
  if (schedule.decay == Decay::kLinear) {
    return schedule.first + share * (schedule.last - schedule.first);
  }
  return schedule.first * std::pow(schedule.last / schedule.first, share);
}

double actor_epsilon(std::size_t actor, std::size_t actor_count, double base, double alpha) {
  REVERIE_CHECK(actor < actor_count);
  REVERIE_CHECK(base > 0.0 && base <= 1.0 && alpha >= 0.0);
  if (actor_count == 1) return base;
  const double place = static_cast<double>(actor) / static_cast<double>(actor_count - 1);
  return std::pow(base, 1.0 + alpha * place);
}

void epsilon_greedy(std::span<const float> values, double epsilon,
                    std::span<const double> explore_draws, std::span<const double> action_draws,
                    std::span<std::int32_t> actions) {
  REVERIE_CHECK(explore_draws.size() == actions.size() && action_draws.size() == actions.size());
  if (actions.empty()) {
    REVERIE_CHECK(values.empty());
    return;
  }
  const std::size_t action_count = values.size() / actions.size();
  REVERIE_CHECK(action_count >= 1 && action_count * actions.size() == values.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    std::size_t action = 0;
    if (explore_draws[i] < epsilon) {
      // A draw just below 1 may round up to the number of actions.
      action =
          std::min(static_cast<std::size_t>(action_draws[i] * static_cast<double>(action_count)),
                   action_count - 1);
    } else {
      action = greedy_action(values.subspan(i * action_count, action_count));
    }
    actions[i] = static_cast<std::int32_t>(action);
  }
}

}  // namespace reverie
