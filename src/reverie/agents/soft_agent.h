// SoftAgent: soft actor-critic, a stochastic policy that is rewarded for its entropy.
//
//     (a', log pi') ~ pi(s')        y = r + d (min of Q_target(s', a') - temperature log pi')
//     critics       mean of w * Huber(Q(s, a) - y)       priority = mean of both |Q(s, a) - y|
//     policy        mean of temperature log pi(a|s) - min of Q(s, a),   a ~ pi(s)
//     temperature   - log(temperature) mean of (log pi(a|s) + target_entropy)
//     the policy and the temperature every policy_delay steps
//
// The policy gives a mean and a log standard deviation for each element of the action, which a tanh
// squashes. Networks: [0] policy, [1] [2] critics, [3] the temperature's logarithm, [4] [5] the
// critics' targets.
//
// Source: Haarnoja et al. 2018b. docs/algorithms/sac.md lists the differences.
#pragma once

#include <memory>

#include "reverie/base/status.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/train_settings.h"

namespace reverie {

// INVALID_ARGUMENT for discrete or unbounded actions, or networks that nn::Mlp refuses. Requires
// settings with a seed.
Result<std::unique_ptr<Agent>> make_soft_agent(const AgentSpec& spec,
                                               const TrainSettings& settings);

}  // namespace reverie
