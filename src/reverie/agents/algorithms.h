// The algorithms by name, and a whole training of a native environment.
//
//     TrainPlan plan = plan_training(registry, "dqn", "CartPole-v1", {}, options).value();
//     std::unique_ptr<Trainer> trainer = open_training(std::move(plan)).value();
//     trainer->start();
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "reverie/agents/core_profile.h"
#include "reverie/base/options.h"
#include "reverie/base/status.h"
#include "reverie/learn/core_split.h"
#include "reverie/learn/remote_actor.h"
#include "reverie/learn/trainer.h"
#include "reverie/os/file_system.h"

namespace reverie {

enum class Algorithm : std::uint8_t { kDqn, kDdqn, kDdpg, kTd3, kSac };

// "dqn", "ddqn", "ddpg", "td3", "sac".
std::span<const std::string_view> algorithm_names();
std::string_view algorithm_name(Algorithm algorithm);
// NOT_FOUND, listing the names, for an unknown one.
Result<Algorithm> algorithm_named(std::string_view name);

// The defaults of the algorithm's sources and the usual baselines.
TrainSettings default_settings(Algorithm algorithm);

// Requires settings with a seed. INVALID_ARGUMENT for an action space that the algorithm does not
// support, naming those that do.
Result<std::unique_ptr<Agent>> make_agent(Algorithm algorithm, const AgentSpec& spec,
                                          const TrainSettings& settings);

struct TrainPlan {
  Algorithm algorithm = Algorithm::kDqn;
  TrainSettings settings;  // complete, with a seed
  AgentSpec spec;
  EnvMaker make_envs;
  std::string identity;              // "ddqn in CartPole-v1"
  std::vector<TableOptions> tables;  // that the store must have
};

// Where a training's environments come from.
struct EnvSource {
  std::string name;  // with its options; identifies checkpoints
  AgentSpec spec;    // of each environment
  EnvMaker make;
};

// `registry` outlives what is made. NOT_FOUND or INVALID_ARGUMENT for a name or option that does
// not exist, UNIMPLEMENTED for observations other than float32.
Result<EnvSource> native_env_source(const NativeRegistry& registry, std::string_view env_id,
                                    const Options& env_options);

// `options` name settings that differ from the defaults. A seed is drawn if none is given.
// NOT_FOUND or INVALID_ARGUMENT for an unknown name or invalid value, with the most similar names
// or the bound.
Result<TrainPlan> plan_training(EnvSource envs, std::string_view algorithm, const Options& options);
// The same for native environments; `env_options` are their options.
Result<TrainPlan> plan_training(const NativeRegistry& registry, std::string_view algorithm,
                                std::string_view env_id, const Options& env_options,
                                const Options& options);

// With its own store, in this process: such a training can be saved. With `resume`, a folder that
// Trainer::save() wrote to or one checkpoint in it, it continues from the newest there: NOT_FOUND,
// DATA_LOSS, or INVALID_ARGUMENT for another algorithm, environment or setting. Else errors as
// Trainer::open().
Result<std::unique_ptr<Trainer>> open_training(TrainPlan plan, const std::string& resume = {});
// The same with actors in other processes (served_actors.h), as many as kOutsideActorsMax.
inline constexpr std::size_t kOutsideActorsMax = 64;
Result<std::unique_ptr<Trainer>> open_served_training(TrainPlan plan,
                                                      const std::string& resume = {});
// An actor of such a training, which was planned with the same arguments. `run` and `end` as in
// RemoteActorParts.
Result<std::unique_ptr<RemoteActor>> open_remote_actor(TrainPlan plan, std::shared_ptr<Peer> peer,
                                                       std::string learner, std::uint64_t number,
                                                       std::uint64_t run = 0,
                                                       std::shared_ptr<Notice> end = nullptr);
// The same in a store of the caller's, which must have plan.tables.
Result<std::unique_ptr<Trainer>> open_training(TrainPlan plan,
                                               std::shared_ptr<ReplayService> service);

// Gives an unused trainer, which is not to be started, the policy and the evaluations of a training
// of the same algorithm and environment that was saved there, and may be running. NOT_FOUND,
// DATA_LOSS, or INVALID_ARGUMENT for another training.
Status load_policy(Trainer& trainer, const std::string& folder,
                   FileSystem& files = FileSystem::system());

// The throughput of each side of that training by number of cores, and the split that matches
// update_interval. It trains a temporary agent in a temporary store. Takes about a second; more on
// many cores.
struct CoreTuning {
  CoreProfile profile;
  CoreSplit split;
};
Result<CoreTuning> tune_cores(const TrainPlan& plan, const CoreProfileOptions& options);

}  // namespace reverie
