// Tested in tests/integration/training_test.cc.
#include "reverie/learn/actor_envs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reverie/codec/byte_arrays.h"
#include "reverie/selectors/selector.h"

namespace reverie {
namespace {

class NativeActorEnvs final : public ActorEnvs {
 public:
  NativeActorEnvs(std::unique_ptr<NativePool> pool, AgentSpec spec)
      : pool_(std::move(pool)), spec_(std::move(spec)), episodes_(pool_->env_count()) {
    const NativeRows& rows = pool_->arrays(0)->rows;
    rows_ = {reinterpret_cast<const float*>(rows.observation),
             reinterpret_cast<const float*>(rows.final_observation), rows.reward,
             reinterpret_cast<const std::uint8_t*>(rows.terminated),
             reinterpret_cast<const std::uint8_t*>(rows.truncated)};
  }

  const AgentSpec& spec() const override { return spec_; }
  const std::string& id() const override { return pool_->spec().id; }
  std::size_t count() const override { return pool_->env_count(); }
  Status reset() override {
    REVERIE_RETURN_IF_ERROR(pool_->reset(0, std::nullopt));
    REVERIE_RETURN_IF_ERROR(pool_->wait(0, TimePoint::max()));
    last_.clear();
    for (std::size_t env = 0; env < count(); ++env) REVERIE_RETURN_IF_ERROR(begin_episode(env));
    return {};
  }
  Status step(std::span<const std::byte> actions) override {
    REVERIE_RETURN_IF_ERROR(keep_last());
    REVERIE_RETURN_IF_ERROR(pool_->step(0, actions));
    REVERIE_RETURN_IF_ERROR(pool_->wait(0, TimePoint::max()));
    last_.assign(actions.begin(), actions.end());
    return {};
  }
  Result<std::vector<std::byte>> state(bool has_last_step) override {
    if (has_last_step) REVERIE_RETURN_IF_ERROR(keep_last());
    std::vector<std::byte> state;
    ByteWriter out(state);
    for (const Episode& episode : episodes_) {
      write_random(episode.random, out);
      write_array<std::byte>(episode.played, out);
    }
    return state;
  }
  Status resume(std::span<const std::byte> state) override {
    REVERIE_RETURN_IF_ERROR(reset());
    ByteReader in(state);
    for (std::size_t env = 0; env < count(); ++env) {
      Episode& episode = episodes_[env];
      REVERIE_RETURN_IF_ERROR(read_random(in, episode.random));
      episode.played = read_array<std::byte>(in);
      REVERIE_RETURN_IF_ERROR(pool_->replay_episode(0, env, episode.random, episode.played));
    }
    return check_done(in, "the environments");
  }
  const EnvRows& rows() const override { return rows_; }

 private:
  struct Episode {
    Random random{std::uint64_t{0}};  // as it was when the episode began
    std::vector<std::byte> played;    // actions so far
  };

  Status begin_episode(std::size_t env) {
    REVERIE_ASSIGN_OR_RETURN(episodes_[env].random, pool_->episode_random(0, env));
    episodes_[env].played.clear();
    return {};
  }
  // Adds the last step to the episodes.
  Status keep_last() {
    if (last_.empty()) return {};
    const std::size_t size = spec_.action_bytes();
    for (std::size_t env = 0; env < count(); ++env) {
      if (rows_.terminated[env] != 0 || rows_.truncated[env] != 0) {
        REVERIE_RETURN_IF_ERROR(begin_episode(env));
      } else {
        std::vector<std::byte>& played = episodes_[env].played;
        played.insert(played.end(), last_.data() + env * size, last_.data() + (env + 1) * size);
      }
    }
    last_.clear();
    return {};
  }

  std::unique_ptr<NativePool> pool_;
  AgentSpec spec_;
  EnvRows rows_;
  std::vector<Episode> episodes_;
  std::vector<std::byte> last_;  // actions of the last step, which episodes_ do not have yet
};

}  // namespace

Result<AgentSpec> agent_spec(const NativeSpec& spec) {
  if (spec.observation.dtype != DType::kFloat32) {
    return unimplemented("{} observes {}; the algorithms take float32 observations", spec.id,
                         dtype_name(spec.observation.dtype));
  }
  AgentSpec agent;
  agent.obs_width = static_cast<std::size_t>(element_count(spec.observation.shape));
  agent.action_count = static_cast<std::size_t>(spec.action_count);
  if (!agent.is_discrete()) {
    agent.action_width = static_cast<std::size_t>(element_count(spec.action_shape));
    agent.action_low = spec.action_low;
    agent.action_high = spec.action_high;
  }
  return agent;
}

Status check_finite(const ActorEnvs& envs, std::span<const float> obs) {
  const std::size_t width = envs.spec().obs_width;
  for (std::size_t env = 0; env < envs.count(); ++env) {
    const std::span<const float> row = obs.subspan(env * width, width);
    const auto bad = std::ranges::find_if(row, [](float value) { return !std::isfinite(value); });
    if (bad != row.end()) {
      return invalid_argument(
          "environment {} of {} gave an observation whose element {} is {}; all must be finite",
          env, envs.id(), bad - row.begin(), *bad);
    }
    if (!std::isfinite(envs.rows().rewards[env])) {
      return invalid_argument("environment {} of {} gave the reward {}; it must be finite", env,
                              envs.id(), envs.rows().rewards[env]);
    }
  }
  return {};
}

EnvMaker native_env_maker(const NativeRegistry& registry, std::string id, Options options) {
  return [&registry, id = std::move(id), options = std::move(options)](
             std::size_t count, std::uint64_t seed) -> Result<std::unique_ptr<ActorEnvs>> {
    NativePoolOptions pool_options;
    pool_options.env_count = count;
    pool_options.thread_count = 0;
    pool_options.seed = seed;
    REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<NativePool> pool,
                             NativePool::open(registry, id, options, pool_options));
    REVERIE_ASSIGN_OR_RETURN(AgentSpec spec, agent_spec(pool->spec()));
    return std::unique_ptr<ActorEnvs>(
        std::make_unique<NativeActorEnvs>(std::move(pool), std::move(spec)));
  };
}

}  // namespace reverie
