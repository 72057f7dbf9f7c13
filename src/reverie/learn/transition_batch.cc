// Tested in src/reverie/agents/q_agent_test.cc and src/reverie/agents/continuous_agents_test.cc.
#include "reverie/learn/transition_batch.h"

namespace reverie {

TransitionBatch::TransitionBatch(const AgentSpec& spec, std::size_t size)
    : obs_width_(spec.obs_width),
      obs_(size * spec.obs_width),
      next_obs_(size * spec.obs_width),
      actions_(spec.is_discrete() ? size : 0),
      continuous_actions_(size * spec.action_width),
      rewards_(size),
      discounts_(size),
      weights_(size, 1.0f),
      terminated_(size),
      tickets_(size) {}

nn::ConstMatrix TransitionBatch::continuous_actions() const {
  const std::size_t width = continuous_actions_.size() / size();
  return {continuous_actions_.data(), size(), width, width};
}

ReplayBufferTargets TransitionBatch::targets() {
  const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
  obs_place_[0] = bytes(obs_);
  next_obs_place_[0] = bytes(next_obs_);
  action_place_[0] = actions_.empty() ? bytes(continuous_actions_) : bytes(actions_);
  ReplayBufferTargets targets;
  targets.transitions.obs = obs_place_;
  targets.transitions.next_obs = next_obs_place_;
  targets.transitions.action = action_place_;
  targets.transitions.reward = rewards_.data();
  targets.transitions.discount = discounts_.data();
  targets.transitions.terminated = terminated_.data();
  targets.tickets = tickets_.data();
  targets.weights = weights_.data();
  return targets;
}

}  // namespace reverie
