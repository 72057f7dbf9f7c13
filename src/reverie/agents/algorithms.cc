// Tested in tests/integration/training_test.cc and continuous_agents_test.cc.
#include "reverie/agents/algorithms.h"

#include <array>
#include <limits>
#include <utility>
#include <variant>

#include "reverie/agents/deterministic_agent.h"
#include "reverie/agents/q_agent.h"
#include "reverie/agents/soft_agent.h"
#include "reverie/base/format.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/manifest.h"
#include "reverie/replay/local_service.h"

namespace reverie {
namespace {

// In the order of Algorithm.
constexpr std::array<std::string_view, 5> kNames{"dqn", "ddqn", "ddpg", "td3", "sac"};

}  // namespace

std::span<const std::string_view> algorithm_names() {
  return kNames;
}

std::string_view algorithm_name(Algorithm algorithm) {
  return kNames[static_cast<std::size_t>(algorithm)];
}

Result<Algorithm> algorithm_named(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Algorithm>(i);
    known += (known.empty() ? "" : ", ") + std::string(kNames[i]);
  }
  return not_found("there is no algorithm '{}'; there are: {}", name, known);
}

TrainSettings default_settings(Algorithm algorithm) {
  TrainSettings settings;
  if (algorithm == Algorithm::kDqn || algorithm == Algorithm::kDdqn) return settings;
  settings.batch_size = 256;
  settings.learning_rate = 1e-3;
  settings.gradient_norm_max = 0;
  settings.huber_delta = std::numeric_limits<double>::infinity();
  settings.tau = 0.005;
  if (algorithm == Algorithm::kTd3) {
    settings.policy_delay = 2;
    settings.target_noise = 0.2;
  }
  if (algorithm == Algorithm::kSac) {
    settings.learning_rate = 3e-4;
    settings.policy_learning_rate = 3e-4;
  }
  return settings;
}

Result<std::unique_ptr<Agent>> make_agent(Algorithm algorithm, const AgentSpec& spec,
                                          const TrainSettings& settings) {
  switch (algorithm) {
    case Algorithm::kDqn:
      return make_q_agent(spec, settings, /*is_double=*/false);
    case Algorithm::kDdqn:
      return make_q_agent(spec, settings, /*is_double=*/true);
    case Algorithm::kDdpg:
      return make_deterministic_agent(spec, settings, DeterministicKind::kDdpg);
    case Algorithm::kTd3:
      return make_deterministic_agent(spec, settings, DeterministicKind::kTd3);
    case Algorithm::kSac:
      return make_soft_agent(spec, settings);
  }
  return internal_error("algorithm {} is unknown", static_cast<int>(algorithm));
}

Result<EnvSource> native_env_source(const NativeRegistry& registry, std::string_view env_id,
                                    const Options& env_options) {
  EnvSource source;
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<NativeBatch> envs,
                           registry.make(env_id, env_options, 0));
  REVERIE_ASSIGN_OR_RETURN(source.spec, agent_spec(envs->spec()));
  source.name = env_id;
  for (const auto& [name, value] : env_options) {
    source.name += format(" {}=", name);
    source.name += std::visit([](const auto& field) { return format("{}", field); }, value);
  }
  source.make = native_env_maker(registry, std::string(env_id), env_options);
  return source;
}

Result<TrainPlan> plan_training(EnvSource envs, std::string_view algorithm,
                                const Options& options) {
  TrainPlan plan;
  REVERIE_ASSIGN_OR_RETURN(plan.algorithm, algorithm_named(algorithm));
  REVERIE_ASSIGN_OR_RETURN(plan.settings, read_settings(options, default_settings(plan.algorithm)));
  // 63 bits, so that read_settings() accepts it.
  if (!plan.settings.seed) plan.settings.seed = random_seed() >> 1;
  plan.spec = std::move(envs.spec);
  plan.make_envs = std::move(envs.make);
  plan.identity = format("{} in {}", algorithm, envs.name);
  REVERIE_ASSIGN_OR_RETURN(plan.tables, training_tables(plan.settings));
  // Fails now if the algorithm does not support the environment.
  REVERIE_RETURN_IF_ERROR(make_agent(plan.algorithm, plan.spec, plan.settings).status());
  return plan;
}

Result<TrainPlan> plan_training(const NativeRegistry& registry, std::string_view algorithm,
                                std::string_view env_id, const Options& env_options,
                                const Options& options) {
  // A wrong name or setting is reported before a wrong environment.
  REVERIE_ASSIGN_OR_RETURN(const Algorithm known, algorithm_named(algorithm));
  REVERIE_RETURN_IF_ERROR(read_settings(options, default_settings(known)).status());
  REVERIE_ASSIGN_OR_RETURN(EnvSource envs, native_env_source(registry, env_id, env_options));
  return plan_training(std::move(envs), algorithm, options);
}

namespace {

Result<TrainerParts> trainer_parts(TrainPlan plan) {
  TrainerParts parts;
  REVERIE_ASSIGN_OR_RETURN(parts.agent, make_agent(plan.algorithm, plan.spec, plan.settings));
  parts.settings = std::move(plan.settings);
  parts.make_envs = std::move(plan.make_envs);
  parts.identity = std::move(plan.identity);
  return parts;
}

Result<std::unique_ptr<Trainer>> open_with_store(TrainPlan plan, const std::string& resume,
                                                 std::size_t outside_actors_max) {
  std::vector<TableOptions> tables = plan.tables;
  REVERIE_ASSIGN_OR_RETURN(TrainerParts parts, trainer_parts(std::move(plan)));
  parts.outside_actors_max = outside_actors_max;
  REVERIE_ASSIGN_OR_RETURN(parts.store, LocalService::open(std::move(tables), {}));
  parts.service = parts.store;
  if (resume.empty()) return Trainer::open(std::move(parts));
  FileSystem& files = FileSystem::system();
  std::string folder;
  REVERIE_ASSIGN_OR_RETURN(checkpoint::LoadedCheckpoint loaded,
                           checkpoint::read_newest(files, resume, [&](const std::string& newest) {
                             folder = newest;
                             return checkpoint::read_checkpoint(files, newest);
                           }));
  parts.resume = &loaded;
  Result<std::unique_ptr<Trainer>> trainer = Trainer::open(std::move(parts));
  if (!trainer.ok()) return trainer.status().with_context(format("checkpoint '{}'", folder));
  return trainer;
}

}  // namespace

Result<std::unique_ptr<Trainer>> open_training(TrainPlan plan,
                                               std::shared_ptr<ReplayService> service) {
  REVERIE_ASSIGN_OR_RETURN(TrainerParts parts, trainer_parts(std::move(plan)));
  parts.service = std::move(service);
  return Trainer::open(std::move(parts));
}

Result<std::unique_ptr<Trainer>> open_training(TrainPlan plan, const std::string& resume) {
  return open_with_store(std::move(plan), resume, 0);
}

Result<std::unique_ptr<Trainer>> open_served_training(TrainPlan plan, const std::string& resume) {
  return open_with_store(std::move(plan), resume, kOutsideActorsMax);
}

Status load_policy(Trainer& trainer, const std::string& folder, FileSystem& files) {
  std::string newest;
  REVERIE_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                           checkpoint::read_newest(files, folder, [&](const std::string& found) {
                             newest = found;
                             return checkpoint::read_manifest(
                                 files, join_path(found, checkpoint::kManifestName));
                           }));
  return trainer.load_policy(manifest.payload).with_context(format("checkpoint '{}'", newest));
}

Result<std::unique_ptr<RemoteActor>> open_remote_actor(TrainPlan plan, std::shared_ptr<Peer> peer,
                                                       std::string learner, std::uint64_t number,
                                                       std::uint64_t run,
                                                       std::shared_ptr<Notice> end) {
  RemoteActorParts parts;
  REVERIE_ASSIGN_OR_RETURN(parts.agent, make_agent(plan.algorithm, plan.spec, plan.settings));
  parts.peer = std::move(peer);
  parts.learner = std::move(learner);
  parts.number = number;
  parts.run = run;
  parts.end = std::move(end);
  parts.settings = std::move(plan.settings);
  parts.make_envs = std::move(plan.make_envs);
  return RemoteActor::open(std::move(parts));
}

Result<CoreTuning> tune_cores(const TrainPlan& plan, const CoreProfileOptions& options) {
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Agent> agent,
                           make_agent(plan.algorithm, plan.spec, plan.settings));
  CoreTuning tuning;
  REVERIE_ASSIGN_OR_RETURN(tuning.profile,
                           profile_cores(plan.settings, *agent, plan.make_envs, options));
  CoreSplitOptions split;
  split.core_count = options.core_count;
  split.update_interval = plan.settings.update_interval;
  REVERIE_ASSIGN_OR_RETURN(
      tuning.split, split_cores(tuning.profile.actor_curve, tuning.profile.learner_curve, split));
  return tuning;
}

}  // namespace reverie
