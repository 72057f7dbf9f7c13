// Tested in tests/integration/training_test.cc.
#include "reverie/learn/evaluate.h"

#include <algorithm>

namespace reverie {

Result<std::vector<double>> evaluate(const EnvMaker& make_envs, const Agent& agent,
                                     const nn::Parameters& weights, std::uint64_t seed,
                                     const EvaluateOptions& options) {
  constexpr std::size_t kEpisodesMax = std::size_t{1} << 16;
  const std::size_t count = options.episode_count;
  if (count < 1 || count > kEpisodesMax) {
    return invalid_argument("episodes is {}; it must be an integer from 1 to {}", count,
                            kEpisodesMax);
  }
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<ActorEnvs> envs, make_envs(count, seed));
  if (envs->spec() != agent.spec()) {
    return invalid_argument(
        "{} has {} numbers an observation and {} discrete actions ({} continuous); the policy was "
        "trained for {} and {} ({})",
        envs->id(), envs->spec().obs_width, envs->spec().action_count, envs->spec().action_width,
        agent.spec().obs_width, agent.spec().action_count, agent.spec().action_width);
  }
  const std::unique_ptr<Policy> policy = agent.make_policy(count);
  std::vector<std::byte> actions(count * agent.spec().action_bytes());
  std::vector<double> returns(count);
  std::vector<bool> is_over(count);
  REVERIE_RETURN_IF_ERROR(envs->reset());
  const std::size_t width = agent.spec().obs_width;
  REVERIE_RETURN_IF_ERROR(check_finite(*envs, {envs->rows().obs, count * width}));
  std::size_t left = count;
  for (std::size_t step = 0; left > 0 && step < options.step_count_max; ++step) {
    if (options.interrupted && options.interrupted()) {
      return cancelled("the evaluation was interrupted");
    }
    const EnvRows& rows = envs->rows();
    policy->act_greedily(weights, {rows.obs, count, width, width}, actions);
    REVERIE_RETURN_IF_ERROR(envs->step(actions));
    REVERIE_RETURN_IF_ERROR(check_finite(*envs, {rows.obs, count * width}));
    for (std::size_t env = 0; env < count; ++env) {
      if (is_over[env]) continue;
      returns[env] += static_cast<double>(rows.rewards[env]);
      if (rows.terminated[env] == 0 && rows.truncated[env] == 0) continue;
      is_over[env] = true;
      --left;
    }
  }
  return returns;
}

}  // namespace reverie
