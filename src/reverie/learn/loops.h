// The actors and learners of a training: environments, policies, streams into one replay, and the
// learners that draw from it.
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

// The tables that a training samples from: replay_shard_count() of them. Requires settings with a
// seed.
Result<std::vector<TableOptions>> training_tables(const TrainSettings& settings);

// The setting, or what it is if that is 0: one table for few learners, else several for each, as
// long as none gets too few transitions.
std::size_t replay_shard_count(const TrainSettings& settings);

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

  // Buffers of one replay: each actor's, then those for actors in other processes.
  std::vector<std::shared_ptr<ReplayBuffer>> replays;
  std::size_t outside_begin() const { return actors.size(); }
  // Until there are `count`.
  void add_replays(std::size_t count, std::uint64_t seed);
  std::vector<ReplayBuffer*> buffers() const;
};

// Makes max(1, actors) actors and the learners of the settings, on a store with the tables of
// training_tables(), and `outside_count` further buffers. The settings, which have a seed, the
// agent and the log outlive them. INVALID_ARGUMENT for environments that the agent cannot act in;
// else the environments' error.
Result<Loops> open_loops(const TrainSettings& settings, const Agent& agent,
                         const EnvMaker& make_envs, const std::shared_ptr<ReplayService>& service,
                         ReturnLog& log, std::size_t outside_count = 0);

}  // namespace reverie
