// DeterministicAgent: a deterministic policy, and critics that evaluate its actions: DDPG and TD3.
//
//     a' = clip(pi_target(s') + clip(noise))         DDPG: without noise
//     y  = r + d min over critics Q_target(s', a')   DDPG: one critic
//     critics   mean of w * Huber(Q(s, a) - y)       priority = mean over critics of |Q(s, a) - y|
//     policy    - mean of Q_1(s, pi(s))              TD3: every policy_delay steps, targets too
//
// Networks: [0] policy, [1..n] critics, then their targets in the same order. Inside, all actions
// are in [-1, 1]; they are scaled to the environment's range.
//
// Sources: Lillicrap et al. 2016; Fujimoto et al. 2018. docs/algorithms/ddpg.md and td3.md list the
// differences.
#pragma once

#include <cstdint>
#include <memory>

#include "reverie/base/status.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/train_settings.h"

namespace reverie {

enum class DeterministicKind : std::uint8_t { kDdpg, kTd3 };

// INVALID_ARGUMENT for discrete or unbounded actions, or networks that nn::Mlp refuses. Requires
// settings with a seed.
Result<std::unique_ptr<Agent>> make_deterministic_agent(const AgentSpec& spec,
                                                        const TrainSettings& settings,
                                                        DeterministicKind kind);

}  // namespace reverie
