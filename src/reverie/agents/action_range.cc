// Tested in continuous_agents_test.cc.
#include "reverie/agents/action_range.h"

#include <cmath>

namespace reverie {

Result<ActionRange> ActionRange::make(const AgentSpec& spec, std::string_view algorithm) {
  if (spec.is_discrete()) {
    return invalid_argument(
        "{} gives actions as numbers, but the environment has {} discrete ones; use dqn or ddqn",
        algorithm, spec.action_count);
  }
  ActionRange range;
  for (std::size_t i = 0; i < spec.action_width; ++i) {
    const float low = i < spec.action_low.size() ? spec.action_low[i] : -1.0f;
    const float high = i < spec.action_high.size() ? spec.action_high[i] : 1.0f;
    // Bounds of the largest floats are finite, while their difference is not.
    const float half_range = (high - low) / 2;
    if (!std::isfinite(half_range) || !(half_range > 0)) {
      return invalid_argument(
          "element {} of the environment's actions is from {} to {}; {} needs finite bounds, the "
          "low one below the high one, and a finite difference",
          i, low, high, algorithm);
    }
    range.middle_.push_back(low + half_range);
    range.half_range_.push_back(half_range);
  }
  return range;
}

void ActionRange::to_env(std::span<const float> from, std::span<std::byte> to) const {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t element = i % width();
    const float value = middle_[element] + half_range_[element] * from[i];
    std::memcpy(to.data() + i * sizeof(value), &value, sizeof(value));
  }
}

void ActionRange::from_env(nn::ConstMatrix from, std::span<float> to) const {
  for (std::size_t row = 0; row < from.rows; ++row) {
    for (std::size_t i = 0; i < width(); ++i) {
      const float value = (from(row, i) - middle_[i]) / half_range_[i];
      to[row * width() + i] = std::clamp(value, -1.0f, 1.0f);
    }
  }
}

}  // namespace reverie
