// Rollout: rows of consecutive steps, the input of V-trace and generalised advantages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace reverie {

// B rows of T steps each, row-major; all spans have B T elements.
//
// A row may span the ends of episodes. `discounts` is 0 where one terminated. `next_values` is the
// value of the observation that the step led to: the next step's value inside an episode, and at an
// end the value of the last observation, which belongs to no step. `ends` is 1 if the step was its
// episode's last, terminated or cut off, so that nothing carries over to the next episode; empty:
// no ends.
struct Rollout {
  std::span<const float> rewards;
  std::span<const float> discounts;
  std::span<const float> values;
  std::span<const float> next_values;
  std::span<const std::uint8_t> ends;
  std::size_t step_count = 0;  // T

  bool is_end(std::size_t index) const { return !ends.empty() && ends[index] != 0; }
  // Whether all sizes match and T >= 1.
  bool is_sound() const {
    const std::size_t size = rewards.size();
    return step_count >= 1 && size % step_count == 0 && discounts.size() == size &&
           values.size() == size && next_values.size() == size &&
           (ends.empty() || ends.size() == size);
  }
};

}  // namespace reverie
