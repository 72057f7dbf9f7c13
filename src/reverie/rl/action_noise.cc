// Tested in learning_rules_test.cc.
#include "reverie/rl/action_noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "reverie/base/check.h"

namespace reverie {

Status add_gaussian_noise(std::span<const float> actions, std::span<const float> normals,
                          const GaussianNoise& noise, std::span<const float> low,
                          std::span<const float> high, std::span<float> noisy) {
  if (!(noise.sigma >= 0.0f) || !std::isfinite(noise.sigma)) {
    return invalid_argument("sigma is {}; it must be finite and at least 0", noise.sigma);
  }
  if (!(noise.noise_max > 0.0f)) {
    return invalid_argument("noise_max is {}; it must be above 0", noise.noise_max);
  }
  REVERIE_CHECK(normals.size() == actions.size() && noisy.size() == actions.size());
  REVERIE_CHECK(low.size() == high.size() && !low.empty() && actions.size() % low.size() == 0);
  for (std::size_t d = 0; d < low.size(); ++d) {
    if (!(low[d] <= high[d])) {
      return invalid_argument("low[{}] is {} and high[{}] is {}; low must not be above high", d,
                              low[d], d, high[d]);
    }
  }
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const std::size_t d = i % low.size();
    const float added = std::clamp(noise.sigma * normals[i], -noise.noise_max, noise.noise_max);
    noisy[i] = std::clamp(actions[i] + added, low[d], high[d]);
  }
  return {};
}

Status ornstein_uhlenbeck_step(const OrnsteinUhlenbeckNoise& noise, std::span<const float> normals,
                               std::span<float> state) {
  const auto is_share = [](float value) { return value >= 0.0f && std::isfinite(value); };
  if (!is_share(noise.theta) || !is_share(noise.sigma)) {
    return invalid_argument("theta is {} and sigma is {}; both must be finite and at least 0",
                            noise.theta, noise.sigma);
  }
  if (!(noise.dt > 0.0f) || !std::isfinite(noise.dt) || !std::isfinite(noise.mean)) {
    return invalid_argument("dt is {} and mean is {}; both must be finite, and dt above 0",
                            noise.dt, noise.mean);
  }
  REVERIE_CHECK(normals.size() == state.size());
  const float pull = noise.theta * noise.dt;
  const float spread = noise.sigma * std::sqrt(noise.dt);
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] += pull * (noise.mean - state[i]) + spread * normals[i];
  }
  return {};
}

}  // namespace reverie
