// What the owner of a pool and its workers write into shared memory besides arrays: queues,
// counters and failures. All are words and bytes at fixed places: no pointers, no reference counts.
//
//     owner                                            worker
//     queue[posted] = command; posted += 1, wake  ---> takes it, steps its environments,
//     done[worker] == sequence of all?            <--- done[worker] = sequence; arrived += 1,
//                                                      wake once `arrived` has reached `target`
//
// Before a side sleeps it announces that (`is_asleep`, `is_awaited`) and then checks once more, so
// that only sleeping threads are woken, and all of them are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "reverie/os/futex.h"

namespace reverie {

inline constexpr std::size_t kFailureTextMax = 16'384;
inline constexpr std::uint32_t kWholeRange = 0xffff'ffff;
inline constexpr std::uint32_t kNoEnv = 0xffff'ffff;

enum class PoolOp : std::uint32_t { kStep = 1, kReset = 2, kStop = 3 };

// A request from the owner to a worker.
struct PoolCommand {
  PoolOp op = PoolOp::kStep;
  std::uint32_t batch = 0;
  std::uint32_t env = kWholeRange;  // one environment, or all of the worker's in the batch
  std::uint32_t sequence = 0;       // which step or reset of the batch this is
};

enum class EnvState : std::uint8_t {
  kNew = 0,      // never reset: its first step is a reset
  kRunning = 1,  // in an episode
  kBroken = 2,   // it raised; not stepped until a reset or a restart
  kLost = 3,     // its worker was replaced: its next step, or the one in flight, begins an episode
};

// One per worker, followed by its queue of commands and its list of ready environments.
struct WorkerBlock {
  // Written by the owner.
  alignas(64) FutexWord posted;  // commands put into the queue so far
  // Written by the worker.
  alignas(64) std::atomic<std::uint32_t> is_asleep;
  std::atomic<std::uint32_t> at_batch;
  std::atomic<std::uint32_t> at_env;       // the environment that it is stepping, or kNoEnv
  std::atomic<std::uint32_t> ready_count;  // environments put into the ready list so far
  // The first failure since the owner last checked; outdated once its environment was reset.
  std::atomic<std::uint32_t> has_failed;
  std::uint32_t failed_batch;
  std::uint32_t failed_env;
  std::uint32_t failure_bytes;
  char failure[kFailureTextMax];
};

// One per batch, followed by `done` words, one per worker.
struct BatchBlock {
  alignas(64) FutexWord arrived;  // count of commands of the batch that workers finished
  std::atomic<std::uint32_t> target;
  std::atomic<std::uint32_t> is_awaited;
  // The seed of a reset: environment i gets seed + i.
  alignas(64) std::atomic<std::int64_t> seed;
  std::atomic<std::uint32_t> has_seed;
};

inline std::size_t worker_block_bytes(std::size_t queue_length) {
  return sizeof(WorkerBlock) + queue_length * (sizeof(PoolCommand) + sizeof(std::uint32_t));
}
inline std::size_t batch_block_bytes(std::size_t worker_count) {
  return sizeof(BatchBlock) + worker_count * sizeof(std::atomic<std::uint32_t>);
}

}  // namespace reverie
