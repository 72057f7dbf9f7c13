// V-trace: value targets and policy advantages from steps that an older policy took.
//
//     rho_t = min(rho_max, pi(a|s) / mu(a|s))        c_t = lambda min(1, pi(a|s) / mu(a|s))
//     delta_t = rho_t (r_t + d_t V(s_{t+1}) - V(s_t))
//     v_t - V(s_t) = delta_t + d_t c_t (v_{t+1} - V(s_{t+1}))      without this term at an end
//     A_t = min(advantage_rho_max, ratio) (r_t + d_t q_{t+1} - V(s_t))
//
// with q_{t+1} = lambda v_{t+1} + (1 - lambda) V(s_{t+1}), and V(s_{t+1}) at the end of a row or an
// episode. With ratios of 1 and lambda = 1 the targets are n-step returns.
//
// Source: Espeholt et al. 2018, equation 1 and section 4.2; lambda as in rlax, remark 2 there.
#pragma once

#include <span>

#include "reverie/base/status.h"
#include "reverie/rl/rollout.h"

namespace reverie {

struct VTraceOptions {
  float lambda = 1;             // in [0, 1]
  float rho_max = 1;            // > 0; determines what the values converge to
  float advantage_rho_max = 1;  // > 0
};

// `ratios` are pi(a|s) / mu(a|s), each >= 0. Thread-safe. INVALID_ARGUMENT for options out of
// range. Requires a sound rollout, and other spans of the same size.
Status v_trace(const Rollout& rollout, std::span<const float> ratios, const VTraceOptions& options,
               std::span<float> targets, std::span<float> advantages);

}  // namespace reverie
