// The actors and learners of a training: environments, policies, streams into one replay table, and
// the learners that draw from it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/learn/actor_loop.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/learner_loop.h"
#include "reverie/learn/return_log.h"
#include "reverie/learn/train_settings.h"

namespace reverie {

// The table that a training samples from. Requires settings with a seed.
TableOptions training_table(const TrainSettings& settings);

// A seed for one of a training's generators, independent of the others'.
enum class SeedUse : std::uint64_t {
  kTable = 1,
  kChunks,
  kEnvironments,
  kExploration,
  kLearner,
  kWeights,
  kEvaluation,
};
std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t index = 0);

// At least one of each.
struct Loops {
  std::vector<std::unique_ptr<ActorLoop>> actors;
  std::vector<std::unique_ptr<LearnerLoop>> learners;

  // Replay buffers of the table: each actor's, then those for actors in other processes.
  std::vector<std::shared_ptr<ReplayBuffer>> replays;
  std::size_t outside_begin() const { return actors.size(); }
  std::vector<ReplayBuffer*> buffers() const;
};

// Makes max(1, actors) actors and the learners of the settings, on a store with the table of
// training_table(), and `outside_count` further buffers. The settings, which have a seed, the agent
// and the log outlive them. INVALID_ARGUMENT for environments that the agent cannot act in; else
// the environments' error.
Result<Loops> open_loops(const TrainSettings& settings, const Agent& agent,
                         const EnvMaker& make_envs, const std::shared_ptr<ReplayService>& service,
                         ReturnLog& log, std::size_t outside_count = 0);

}  // namespace reverie
