// Tested in learning_rules_test.cc.
#include "reverie/rl/categorical_projection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reverie/base/check.h"

namespace reverie {

Status categorical_projection(std::span<const float> rewards, std::span<const float> discounts,
                              std::span<const float> next_probabilities, float value_min,
                              float value_max, std::span<float> projected) {
  if (!std::isfinite(value_min) || !std::isfinite(value_max) || !(value_min < value_max)) {
    return invalid_argument(
        "value_min is {} and value_max is {}; both must be finite, and value_min the lower one",
        value_min, value_max);
  }
  REVERIE_CHECK(rewards.size() == discounts.size());
  REVERIE_CHECK(next_probabilities.size() == projected.size());
  if (rewards.empty()) {
    REVERIE_CHECK(projected.empty());
    return {};
  }
  const std::size_t atom_count = projected.size() / rewards.size();
  REVERIE_CHECK(atom_count >= 2 && atom_count * rewards.size() == projected.size());
  const double last = static_cast<double>(atom_count - 1);
  const double spacing = (static_cast<double>(value_max) - value_min) / last;
  std::fill(projected.begin(), projected.end(), 0.0f);
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    const auto from = next_probabilities.subspan(i * atom_count, atom_count);
    const auto to = projected.subspan(i * atom_count, atom_count);
    for (std::size_t a = 0; a < atom_count; ++a) {
      const double atom = value_min + spacing * static_cast<double>(a);
      const double moved = rewards[i] + static_cast<double>(discounts[i]) * atom;
      if (std::isnan(moved)) {  // it has no place among the atoms, and must show
        std::fill(to.begin(), to.end(), std::numeric_limits<float>::quiet_NaN());
        break;
      }
      const double place = std::clamp((moved - value_min) / spacing, 0.0, last);
      const auto below = std::min(static_cast<std::size_t>(place), atom_count - 2);
      const double share = place - static_cast<double>(below);
      to[below] += static_cast<float>(from[a] * (1.0 - share));
      to[below + 1] += static_cast<float>(from[a] * share);
    }
  }
  return {};
}

}  // namespace reverie
