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

#include "reverie/base/options.h"
#include "reverie/base/status.h"
#include "reverie/learn/core_profile.h"
#include "reverie/learn/core_split.h"
#include "reverie/learn/remote_actor.h"
#include "reverie/learn/trainer.h"

namespace reverie {

enum class Algorithm : std::uint8_t { kDqn, kDdqn, kDdpg, kTd3, kSac };

// "dqn", "ddqn", "ddpg", "td3", "sac".
std::span<const std::string_view> algorithm_names();
std::string_view algorithm_name(Algorithm algorithm);
// NOT_FOUND, with the names, for another one.
Result<Algorithm> algorithm_named(std::string_view name);

// What the algorithm's sources and the usual baselines begin with.
TrainSettings default_settings(Algorithm algorithm);

// Requires settings with a seed. INVALID_ARGUMENT for an action space that the algorithm does not
// serve, saying which ones do.
Result<std::unique_ptr<Agent>> make_agent(Algorithm algorithm, const AgentSpec& spec,
                                          const TrainSettings& settings);

struct TrainPlan {
  Algorithm algorithm = Algorithm::kDqn;
  TrainSettings settings;  // whole, with a seed
  AgentSpec spec;
  EnvMaker make_envs;
  std::string identity;  // "ddqn in CartPole-v1"
  TableOptions table;    // that the store must have
};

// Where a training's environments come from.
struct EnvSource {
  std::string name;  // with its options: what a checkpoint is known by
  AgentSpec spec;    // of each of them
  EnvMaker make;
};

// `registry` outlives what is made. NOT_FOUND or INVALID_ARGUMENT for a name or option that does
// not exist, UNIMPLEMENTED for observations other than float32.
Result<EnvSource> native_env_source(const NativeRegistry& registry, std::string_view env_id,
                                    const Options& env_options);

// `options` name settings that differ from the default ones. A seed is drawn where none is given.
// NOT_FOUND or INVALID_ARGUMENT for a name or value that does not exist, with the nearest names or
// the bound.
Result<TrainPlan> plan_training(EnvSource envs, std::string_view algorithm, const Options& options);
// The same of native environments; `env_options` are theirs.
Result<TrainPlan> plan_training(const NativeRegistry& registry, std::string_view algorithm,
                                std::string_view env_id, const Options& env_options,
                                const Options& options);

// With a store of its own, in this process: such a training can be saved. With `resume`, a folder
// that Trainer::save() wrote to or one checkpoint of it, it goes on from the newest there:
// NOT_FOUND, DATA_LOSS, or INVALID_ARGUMENT for one of another algorithm, environment or setting.
// Else what Trainer::open() says.
Result<std::unique_ptr<Trainer>> open_training(TrainPlan plan, const std::string& resume = {});
// The same with actors in other processes (served_actors.h), as many as kOutsideActorsMax.
inline constexpr std::size_t kOutsideActorsMax = 64;
Result<std::unique_ptr<Trainer>> open_served_training(TrainPlan plan,
                                                      const std::string& resume = {});
// An actor of such a training, which was planned with the same arguments.
Result<std::unique_ptr<RemoteActor>> open_remote_actor(TrainPlan plan, std::shared_ptr<Peer> peer,
                                                       std::string learner, std::uint64_t number);
// The same in a store of the caller's that has plan.table.
Result<std::unique_ptr<Trainer>> open_training(TrainPlan plan,
                                               std::shared_ptr<ReplayService> service);

// What a number of cores gives on each side of that training, and the split of them that fits
// update_interval. Trains an agent that is thrown away, in a store that is filled. A second or so;
// longer on many cores.
struct CoreTuning {
  CoreProfile profile;
  CoreSplit split;
};
Result<CoreTuning> tune_cores(const TrainPlan& plan, const std::shared_ptr<ReplayService>& service,
                              const CoreProfileOptions& options);

}  // namespace reverie
