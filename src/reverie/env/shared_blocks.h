// What the owner of a pool and its workers write into shared memory besides arrays: queues,
// counters and failures. Plain words and bytes at fixed places, no pointers, no reference counts.
//
//     owner                                            worker
//     queue[posted] = command; posted += 1, wake  ---> takes it, steps its environments,
//     done[worker] == sequence of all?            <--- done[worker] = sequence; arrived += 1,
//                                                      wake once `arrived` has reached `target`
//
// A side that sleeps says so first (`is_asleep`, `is_awaited`) and then looks once more, so that
// no thread is woken that does not sleep, and none that does is forgotten.
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

// What an owner asks of a worker.
struct PoolCommand {
  PoolOp op = PoolOp::kStep;
  std::uint32_t batch = 0;
  std::uint32_t env = kWholeRange;  // one environment, or all that the worker has of the batch
  std::uint32_t sequence = 0;       // which step or reset of the batch this is
};

enum class EnvState : std::uint8_t {
  kNew = 0,      // never reset: its first step is a reset
  kRunning = 1,  // in an episode
  kBroken = 2,   // it raised; left alone until a reset or a restart
  kLost = 3,     // its worker was replaced: its next step begins a new episode
};

// One per worker; behind it lie its queue of commands and the environments that are ready.
struct WorkerBlock {
  // By the owner.
  alignas(64) FutexWord posted;  // commands put into the queue so far
  // By the worker.
  alignas(64) std::atomic<std::uint32_t> is_asleep;
  std::atomic<std::uint32_t> at_batch;
  std::atomic<std::uint32_t> at_env;       // the environment that it steps now, or kNoEnv
  std::atomic<std::uint32_t> ready_count;  // environments put into the list of ready ones so far
  // The first failure since the owner last looked.
  std::atomic<std::uint32_t> has_failed;
  std::uint32_t failed_batch;
  std::uint32_t failed_env;
  std::uint32_t failure_bytes;
  char failure[kFailureTextMax];
};

// One per batch; behind it lie `done` words, one per worker.
struct BatchBlock {
  alignas(64) FutexWord arrived;  // how often a worker was done with a command of the batch
  std::atomic<std::uint32_t> target;
  std::atomic<std::uint32_t> is_awaited;
  // What a reset gives its environments: environment i gets seed + i.
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
