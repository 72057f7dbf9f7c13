// NativePool: batches of native environments, stepped on the caller's thread or on its own
// threads.
//
//     step(batch, actions) --inline--> rows stepped --> ready
//                          --threads-> queue --> threads take a few rows at a time --> ready
//     wait(batch) -----------------------------------------------------------------> its arrays
//
// A batch is idle, in progress (until wait() has returned it), or new (before its first reset).
// While one batch is in progress, the actions of another can be computed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/env/native/canvas.h"
#include "reverie/env/native_env.h"
#include "reverie/env/native_registry.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// When an environment is reset whose episode ended. The names are Gymnasium's.
enum class NativeAutoreset : std::uint8_t {
  kSameStep,  // it is reset at once; its last observation is a row of `final_observation`
  kNextStep,  // `observation` has its last one; the next step resets it, ignoring the action
  kDisabled,  // the same, and a step is refused until it is reset
};

struct NativePoolOptions {
  std::size_t env_count = 1;  // environments of a batch
  std::size_t batch_count = 1;
  // The number of threads that step. 0: the caller's, inside step(). 1: one of the pool. More:
  // these include the thread in wait(), which steps rows while it waits. Absent: depends on the
  // environment's cost, one per core, and 0 for a single environment.
  std::optional<std::size_t> thread_count = std::nullopt;
  // Environment i of batch b draws from Random(seed + b * env_count + i). Absent: the system gives
  // seeds.
  std::optional<std::uint64_t> seed = std::nullopt;
  // Whether the first step of a batch that was never reset resets it, ignoring the actions; else it
  // is refused.
  bool first_step_resets = false;
  NativeAutoreset autoreset = NativeAutoreset::kSameStep;
  Clock* clock = &Clock::system();
};

// The arrays of one batch, in one piece of memory, which a holder may read after the pool is
// gone.
struct NativeArrays {
  Buffer memory;
  NativeRows rows;
};

// What reset_some() does to each environment of a batch.
struct NativeReset {
  std::vector<bool> is_chosen;                      // the others are unchanged
  std::vector<std::optional<std::uint64_t>> seeds;  // absent: keeps its generator
};

// Thread-safe. Every call is refused in a forked child. Concurrent calls for one batch are refused,
// or wait, as if they had come one after another; callers must not confuse their results.
class NativePool {
 public:
  static constexpr std::size_t kEnvCountMax = std::size_t{1} << 20;
  static constexpr std::size_t kBatchCountMax = 1024;
  static constexpr std::size_t kThreadCountMax = 1024;

  // INVALID_ARGUMENT for a count that is out of range; else the registry's error.
  static Result<std::unique_ptr<NativePool>> open(const NativeRegistry& registry,
                                                  std::string_view id, const Options& options,
                                                  const NativePoolOptions& pool);
  ~NativePool();
  NativePool(const NativePool&) = delete;
  NativePool& operator=(const NativePool&) = delete;

  const NativeSpec& spec() const { return batches_.front()->envs->spec(); }
  NativeCost cost() const { return batches_.front()->envs->cost(); }
  std::size_t env_count() const { return options_.env_count; }
  std::size_t batch_count() const { return batches_.size(); }
  std::size_t thread_count() const { return thread_count_; }

  // The memory that a step of the batch writes; read it between wait() and the next step.
  const std::shared_ptr<NativeArrays>& arrays(std::size_t batch) const {
    return batches_[batch]->arrays;
  }

  // Resets every environment of the batch, with seed + i if a seed is given. Waits, like wait(),
  // for a step in progress; its result need not be taken.
  Status reset(std::size_t batch, std::optional<std::uint64_t> seed,
               TimePoint deadline = TimePoint::max(),
               const std::function<bool()>& interrupted = {});

  // Resets some environments of a batch, each with its own seed or none. Requires one entry per
  // environment in both vectors of `what`. FAILED_PRECONDITION if the batch was never reset and not
  // all are chosen. Waits like reset().
  Status reset_some(std::size_t batch, const NativeReset& what,
                    TimePoint deadline = TimePoint::max(),
                    const std::function<bool()>& interrupted = {});

  // Steps every environment: `actions` as in NativeBatch::step, read before this returns. Requires
  // as many bytes as the batch needs. INVALID_ARGUMENT, without effect, for an action that is out
  // of range or not finite. FAILED_PRECONDITION before the first reset, until the last step was
  // waited for, and with NativeAutoreset::kDisabled while an episode is over.
  Status step(std::size_t batch, std::span<const std::byte> actions);

  // Whether wait() would return at once. Never waits.
  bool done(std::size_t batch) const;

  // Waits for the step or reset in progress, and takes its result. Calls `interrupted` (if set)
  // twenty times a second: true ends the wait with CANCELLED, and the step continues. After
  // DEADLINE_EXCEEDED it continues too. FAILED_PRECONDITION if nothing was ever started. If nothing
  // is in progress, the arrays are as the last step left them.
  Status wait(std::size_t batch, TimePoint deadline, const std::function<bool()>& interrupted = {});

  // The state of one environment; the batch must be idle. See NativeBatch.
  Result<std::vector<double>> get_state(std::size_t batch, std::size_t env);
  Status set_state(std::size_t batch, std::size_t env, std::span<const double> state);
  Result<Canvas> draw(std::size_t batch, std::size_t env);
  // The generator as it was when the environment's episode began; the batch must be idle.
  Result<Random> episode_random(std::size_t batch, std::size_t env);
  // Begins that episode again and plays `actions`, row by row, which restores the environment. The
  // batch must have been reset, and be idle. INVALID_ARGUMENT for actions that step() refuses;
  // DATA_LOSS if the episode ends before the last.
  Status replay_episode(std::size_t batch, std::size_t env, const Random& random,
                        std::span<const std::byte> actions);

  // Lets steps in progress finish, stops the threads and refuses every later call.
  void close();

 private:
  enum class Phase : std::uint8_t {
    kNew,      // never reset
    kIdle,     // waited for
    kRunning,  // rows are being written
    kReady,    // done, not waited for
  };

  struct Batch {
    std::unique_ptr<NativeBatch> envs;
    std::shared_ptr<NativeArrays> arrays;
    std::atomic<Phase> phase{Phase::kNew};
    std::size_t index = 0;
    std::vector<std::byte> actions;  // a copy for the threads
    bool is_reset = false;           // whether a reset is in progress
    // Whether each row's episode is over and its reset not shown yet; empty with kSameStep. Such an
    // environment was reset already: `final_observation` has the first one of its next episode.
    std::vector<std::uint8_t> is_over;
  };

  class Steppers;

  explicit NativePool(const NativePoolOptions& options);

  Status check_usable() const;
  Status check_index(std::size_t batch) const;
  Status check_actions(std::span<const std::byte> actions) const;
  // Reserves the batch for the caller.
  Status claim(Batch& batch, bool is_reset) const;
  // Claims an idle batch to access one environment; the caller must restore the returned
  // phase.
  Result<Phase> claim_idle(std::size_t batch, std::size_t env);
  // Runs a claimed batch, here or on its threads.
  Status start(Batch& batch, std::span<const std::byte> actions);
  static void run(Batch& batch, std::size_t begin, std::size_t end, const std::byte* actions);
  // run() for modes that show an episode's end before the reset.
  static void run_late(Batch& batch, std::size_t begin, std::size_t end, const std::byte* actions);
  // Shows the first observation of the next episode of an environment that is over.
  static void show_next(Batch& batch, std::size_t row);

  const NativePoolOptions options_;
  std::vector<std::unique_ptr<Batch>> batches_;
  std::size_t thread_count_ = 0;
  std::unique_ptr<Steppers> steppers_;  // null if the caller's thread steps
  std::atomic<bool> is_closed_{false};
  ForkGuard fork_guard_;
};

}  // namespace reverie
