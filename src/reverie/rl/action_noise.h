// Noise on continuous actions, for exploring and for smoothing targets.
//
//     Gaussian            a + hold(sigma n, noise_max), held within [low, high]
//     Ornstein-Uhlenbeck  x += theta (mean - x) dt + sigma sqrt(dt) n,
//                         which drifts back to its mean
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

// `actions`, `normals` and `noisy` hold rows of D dimensions, `low` and `high` a bound for each
// dimension. `noisy` may be `actions`. Thread-safe. INVALID_ARGUMENT for numbers out of range, or a
// bound low above its high. Requires spans that fit.
Status add_gaussian_noise(std::span<const float> actions, std::span<const float> normals,
                          const GaussianNoise& noise, std::span<const float> low,
                          std::span<const float> high, std::span<float> noisy);

struct OrnsteinUhlenbeckNoise {
  float theta = 0.15f;  // >= 0
  float sigma = 0.2f;   // >= 0
  float dt = 1e-2f;     // > 0
  float mean = 0;
};

// One step of each element of `state`, which begins at the mean or wherever the caller wants it.
// Thread-safe. INVALID_ARGUMENT for numbers out of range. Requires spans of one length.
Status ornstein_uhlenbeck_step(const OrnsteinUhlenbeckNoise& noise, std::span<const float> normals,
                               std::span<float> state);

}  // namespace reverie
