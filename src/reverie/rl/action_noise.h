// Noise on continuous actions, for exploring and for smoothing targets.
//
//     Gaussian            a + clip(sigma n, noise_max), clipped to [low, high]
//     Ornstein-Uhlenbeck  x += theta (mean - x) dt + sigma sqrt(dt) n,
//                         which reverts to its mean
//
// The normal draws n come from the caller (base/normal.h), so the functions are pure.
//
// Sources: Fujimoto et al. 2018, equation 14 and section 5.3; Uhlenbeck & Ornstein 1930, as
// Lillicrap et al. 2016 use it.
#pragma once

#include <limits>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

struct GaussianNoise {
  float sigma = 0.1f;                                        // >= 0
  float noise_max = std::numeric_limits<float>::infinity();  // > 0; TD3 smooths targets with 0.5
};

// `actions`, `normals` and `noisy` have rows of D dimensions, `low` and `high` a bound for each
// dimension. `noisy` may be `actions`. Thread-safe. INVALID_ARGUMENT for options out of range, or
// low > high. Requires spans of matching sizes.
Status add_gaussian_noise(std::span<const float> actions, std::span<const float> normals,
                          const GaussianNoise& noise, std::span<const float> low,
                          std::span<const float> high, std::span<float> noisy);

struct OrnsteinUhlenbeckNoise {
  float theta = 0.15f;  // >= 0
  float sigma = 0.2f;   // >= 0
  float dt = 1e-2f;     // > 0
  float mean = 0;
};

// One step of each element of `state`, which the caller initialises, for example to the mean.
// Thread-safe. INVALID_ARGUMENT for options out of range. Requires spans of one length.
Status ornstein_uhlenbeck_step(const OrnsteinUhlenbeckNoise& noise, std::span<const float> normals,
                               std::span<float> state);

}  // namespace reverie
