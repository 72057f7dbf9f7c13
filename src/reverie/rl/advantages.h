// Generalised advantage estimates: a mean of n-step advantages, weighted by powers of lambda.
//
//     delta_t = r_t + d_t V(s_{t+1}) - V(s_t)
//     A_t     = delta_t + d_t lambda A_{t+1}             without the second term at an end
//
// lambda = 0 is the one-step error, lambda = 1 the discounted sum of rewards less the value.
// A_t + V(s_t) is the target of the value.
//
// Source: Schulman et al. 2016, equation 16.
#pragma once

#include <span>

#include "reverie/base/status.h"
#include "reverie/rl/rollout.h"

namespace reverie {

// Thread-safe. INVALID_ARGUMENT unless lambda is in [0, 1]. Requires a sound rollout, and
// `advantages` of as many elements.
Status generalized_advantages(const Rollout& rollout, float lambda, std::span<float> advantages);

}  // namespace reverie
