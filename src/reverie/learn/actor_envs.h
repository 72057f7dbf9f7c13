// ActorEnvs: the environments that one actor steps together, of any origin.
//
// Rows are as in a NativePool: an environment whose episode ended is reset at once, and its last
// observation is kept apart from the first one of the next episode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/env/native_pool.h"
#include "reverie/learn/transition_batch.h"

namespace reverie {

// The results of a step, [count] or [count, obs_width]; valid until the next call.
struct EnvRows {
  const float* obs = nullptr;
  const float* final_obs = nullptr;  // of rows whose episode ended
  const float* rewards = nullptr;
  const std::uint8_t* terminated = nullptr;
  const std::uint8_t* truncated = nullptr;
};

// For one thread.
class ActorEnvs {
 public:
  virtual ~ActorEnvs() = default;
  virtual const AgentSpec& spec() const = 0;
  // A name for messages.
  virtual const std::string& id() const = 0;
  virtual std::size_t count() const = 0;
  // Resets every environment.
  virtual Status reset() = 0;
  // `actions` as the policy returns them, one row per environment.
  virtual Status step(std::span<const std::byte> actions) = 0;
  virtual const EnvRows& rows() const = 0;

  // Each environment's state as its episode's seed and actions so far: instead of reset(), resume()
  // begins that episode and replays it, after which the observations are the same. Without
  // `has_last_step` it is the state before the last step, which then no other step may follow.
  // DATA_LOSS for malformed bytes; FAILED_PRECONDITION for an environment that is not reproducible.
  virtual Result<std::vector<std::byte>> state(bool has_last_step) {
    (void)has_last_step;
    return unimplemented("{} cannot be saved", id());
  }
  virtual Status resume(std::span<const std::byte> state) {
    (void)state;
    return unimplemented("{} cannot be saved", id());
  }
};

// Whether the rewards of the last step, and `obs`, which has a row for each environment, are
// finite. INVALID_ARGUMENT names the environment and the number.
Status check_finite(const ActorEnvs& envs, std::span<const float> obs);

// Makes `count` environments, seeded from `seed` on. Any thread.
using EnvMaker =
    std::function<Result<std::unique_ptr<ActorEnvs>>(std::size_t count, std::uint64_t seed)>;

// What an agent sees of a native environment. UNIMPLEMENTED for observations other than float32.
Result<AgentSpec> agent_spec(const NativeSpec& spec);

// Native environments on the actor's own thread. `registry` outlives the maker.
EnvMaker native_env_maker(const NativeRegistry& registry, std::string id, Options options);

}  // namespace reverie
