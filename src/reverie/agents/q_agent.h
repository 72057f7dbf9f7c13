// QAgent: Q-learning with a network, for discrete actions: DQN and double DQN.
//
//     y = r + d max_a Q_target(s', a)                          DQN
//     y = r + d Q_target(s', argmax_a Q(s', a))                double DQN
//     loss = mean of w * Huber(Q(s, a) - y)                    priority = |Q(s, a) - y|
//
// r is the sum of up to n_step discounted rewards, d the discount of the value after them, w the
// importance weights. Networks: [0] Q, which actors follow greedily except with probability
// epsilon; [1] Q_target.
//
// Sources: Mnih et al. 2015; van Hasselt et al. 2016; Schaul et al. 2016. docs/algorithms/dqn.md
// lists the differences.
#pragma once

#include <memory>

#include "reverie/base/status.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/train_settings.h"

namespace reverie {

// INVALID_ARGUMENT for continuous actions, or networks that nn::Mlp refuses. Requires settings with
// a seed, from which the initial weights are drawn.
Result<std::unique_ptr<Agent>> make_q_agent(const AgentSpec& spec, const TrainSettings& settings,
                                            bool is_double);

}  // namespace reverie
