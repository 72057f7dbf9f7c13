// Runs episodes of a policy without exploration, apart from any training.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/learn/actor_envs.h"
#include "reverie/learn/agent.h"

namespace reverie {

struct EvaluateOptions {
  std::size_t episode_count = 20;
  // An episode that has not ended after this many steps counts with its return so far.
  std::size_t step_count_max = 100'000;
  // Called after each step of all environments; true ends the evaluation with CANCELLED.
  std::function<bool()> interrupted = {};
};

// The returns of episode_count episodes, each the first of a separate environment, so that short
// episodes are not over-represented. INVALID_ARGUMENT for a count out of range, or a reward or
// observation that is not finite; else the environments' error.
Result<std::vector<double>> evaluate(const EnvMaker& make_envs, const Agent& agent,
                                     const nn::Parameters& weights, std::uint64_t seed,
                                     const EvaluateOptions& options);

}  // namespace reverie
