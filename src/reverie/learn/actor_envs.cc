// Tested in tests/integration/training_test.cc.
#include "reverie/learn/actor_envs.h"

#include <utility>

#include "reverie/codec/byte_arrays.h"
#include "reverie/selectors/selector.h"

namespace reverie {
namespace {

class NativeActorEnvs final : public ActorEnvs {
 public:
  NativeActorEnvs(std::unique_ptr<NativePool> pool, AgentSpec spec)
      : pool_(std::move(pool)), spec_(std::move(spec)), played_(pool_->env_count()) {
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
    return pool_->wait(0, TimePoint::max());
  }
  Status step(std::span<const std::byte> actions) override {
    REVERIE_RETURN_IF_ERROR(pool_->step(0, actions));
    REVERIE_RETURN_IF_ERROR(pool_->wait(0, TimePoint::max()));
    const std::size_t size = spec_.action_bytes();
    for (std::size_t env = 0; env < played_.size(); ++env) {
      std::vector<std::byte>& played = played_[env];
      if (rows_.terminated[env] != 0 || rows_.truncated[env] != 0) {
        played.clear();
      } else {
        played.insert(played.end(), actions.data() + env * size, actions.data() + (env + 1) * size);
      }
    }
    return {};
  }
  Result<std::vector<std::byte>> state() override {
    std::vector<std::byte> state;
    ByteWriter out(state);
    for (std::size_t env = 0; env < played_.size(); ++env) {
      REVERIE_ASSIGN_OR_RETURN(const Random random, pool_->episode_random(0, env));
      write_random(random, out);
      write_array<std::byte>(played_[env], out);
    }
    return state;
  }
  Status resume(std::span<const std::byte> state) override {
    REVERIE_RETURN_IF_ERROR(reset());
    ByteReader in(state);
    for (std::size_t env = 0; env < played_.size(); ++env) {
      Random random(std::uint64_t{0});
      REVERIE_RETURN_IF_ERROR(read_random(in, random));
      played_[env] = read_array<std::byte>(in);
      REVERIE_RETURN_IF_ERROR(pool_->replay_episode(0, env, random, played_[env]));
    }
    return check_done(in, "the environments");
  }
  const EnvRows& rows() const override { return rows_; }

 private:
  std::unique_ptr<NativePool> pool_;
  AgentSpec spec_;
  EnvRows rows_;
  std::vector<std::vector<std::byte>> played_;  // actions of each episode so far
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
