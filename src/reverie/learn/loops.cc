// Tested in tests/integration/training_test.cc.
#include "reverie/learn/loops.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace reverie {
namespace {

constexpr const char* kTable = "replay";

// With fewer learners the locks of one table cost less than several tables.
constexpr std::uint64_t kManyLearners = 3;
// Few enough learners are then at the same table at the same time.
constexpr std::uint64_t kShardsPerLearner = 4;
constexpr std::uint64_t kShardsMost = 64;
// A batch is to be drawn from many more transitions than it has.
constexpr std::uint64_t kShardCapacityMin = 1024;

TransitionOptions transition_options(const TrainSettings& settings) {
  TransitionOptions options;
  options.capacity = settings.capacity;
  options.env_count = static_cast<std::uint32_t>(settings.envs_per_actor);
  options.n_step = static_cast<std::uint32_t>(settings.n_step);
  options.gamma = settings.gamma;
  return options;
}

Result<std::shared_ptr<ReplayBuffer>> open_replay(const TrainSettings& settings,
                                                  const AgentSpec& spec,
                                                  const std::shared_ptr<ReplayService>& service) {
  const TensorSpec obs{"", DType::kFloat32, {static_cast<std::int64_t>(spec.obs_width)}};
  TensorSpec action{"", DType::kInt64, {}};
  if (!spec.is_discrete()) {
    action = {"", DType::kFloat32, {static_cast<std::int64_t>(spec.action_width)}};
  }
  REVERIE_ASSIGN_OR_RETURN(const std::vector<TableOptions> tables, training_tables(settings));
  REVERIE_ASSIGN_OR_RETURN(
      std::unique_ptr<ReplayBuffer> replay,
      ReplayBuffer::open(service, tables, transition_options(settings), {obs}, {action},
                         derived_seed(*settings.seed, SeedUse::kChunks)));
  return std::shared_ptr<ReplayBuffer>(std::move(replay));
}

}  // namespace

std::size_t replay_shard_count(const TrainSettings& settings) {
  if (settings.replay_shards > 0) return static_cast<std::size_t>(settings.replay_shards);
  if (settings.learners < kManyLearners || settings.weights_over_buffer) return 1;
  const std::uint64_t wanted = std::bit_ceil(settings.learners * kShardsPerLearner);
  const std::uint64_t most =
      std::bit_floor(std::max<std::uint64_t>(settings.capacity / kShardCapacityMin, 1));
  const std::uint64_t least = std::bit_ceil(settings.capacity / ReplayShards::kCapacityMax + 1);
  const std::uint64_t count = std::max(std::min({wanted, most, kShardsMost}), least);
  // So many transitions only one table can hold, which has no tickets with the number of a shard.
  return count <= ReplayShards::kShardsMax ? static_cast<std::size_t>(count) : 1;
}

Result<std::vector<TableOptions>> training_tables(const TrainSettings& settings) {
  TableOptions table = ReplayBuffer::table_options(transition_options(settings), kTable);
  table.sampler =
      settings.prioritized
          ? ComponentSpec{"Prioritized", {{"priority_exponent", settings.priority_exponent}}}
          : ComponentSpec{"Uniform", {}};
  const std::uint64_t seed = derived_seed(*settings.seed, SeedUse::kTable);
  table.sampler.options["seed"] = static_cast<std::int64_t>(seed >> 1);
  return ReplayShards::split(table, replay_shard_count(settings));
}

std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t index) {
  const std::uint64_t which = (static_cast<std::uint64_t>(use) << 48) | index;
  return mix64(mix64(seed) ^ mix64(which));
}

void Loops::add_replays(std::size_t count, std::uint64_t seed) {
  for (std::size_t i = replays.size(); i < count; ++i) {
    replays.push_back(replays.front()->beside(derived_seed(seed, SeedUse::kChunks, i)));
  }
}

std::vector<ReplayBuffer*> Loops::buffers() const {
  std::vector<ReplayBuffer*> all;
  for (const auto& replay : replays) all.push_back(replay.get());
  return all;
}

Result<Loops> open_loops(const TrainSettings& settings, const Agent& agent,
                         const EnvMaker& make_envs, const std::shared_ptr<ReplayService>& service,
                         ReturnLog& log, std::size_t outside_count) {
  const std::uint64_t seed = *settings.seed;
  Loops loops;
  REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<ReplayBuffer> replay,
                           open_replay(settings, agent.spec(), service));
  const std::size_t actor_count = std::max<std::size_t>(settings.actors, 1);
  // Each actor has its own streams, so that none waits for another's.
  loops.replays.push_back(replay);
  loops.add_replays(actor_count + outside_count, seed);
  for (std::size_t actor = 0; actor < actor_count; ++actor) {
    REVERIE_ASSIGN_OR_RETURN(
        std::unique_ptr<ActorEnvs> envs,
        make_envs(settings.envs_per_actor, derived_seed(seed, SeedUse::kEnvironments, actor)));
    if (envs->spec() != agent.spec()) {
      return invalid_argument("{} is not an environment that the agent was made for", envs->id());
    }
    loops.actors.push_back(
        std::make_unique<ActorLoop>(std::move(envs), agent.make_policy(settings.envs_per_actor),
                                    std::make_unique<ReplaySink>(loops.replays[actor]), log,
                                    derived_seed(seed, SeedUse::kExploration, actor)));
  }
  for (std::size_t learner = 0; learner < settings.learners; ++learner) {
    loops.learners.push_back(std::make_unique<LearnerLoop>(
        settings, agent, replay, derived_seed(seed, SeedUse::kLearner, learner)));
  }
  return loops;
}

}  // namespace reverie
