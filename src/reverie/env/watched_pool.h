// WatchedPool: waits for the rows of a SharedPool, and finds out why they do not arrive.
//
//     wait --> rows
//          \-> a worker has ended, or an environment raised --> replaced? --> wait again
//                                                           \-> PoolFailure
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reverie/env/pool_workers.h"
#include "reverie/env/shared_pool.h"

namespace reverie {

// A worker that has ended, or an environment that raised.
struct PoolFailure {
  std::size_t worker = 0;
  std::optional<std::size_t> batch = {};  // that the worker was stepping, if any
  std::optional<std::size_t> env = {};
  std::string text;       // what happened, and the remedy
  std::string traceback;  // the message of the environment's worker, or empty
};

// Thread-safe; only one thread at a time may wait for a batch.
class WatchedPool {
 public:
  // Called during a wait, on the waiting thread, without a lock.
  struct Waiter {
    // About twenty times a second; false ends the wait with CANCELLED.
    std::function<bool()> may_go_on;
    // Once for a worker that has failed, or whose environment has: true if it was replaced, and the
    // wait continues. None: failures are returned.
    std::function<bool(std::size_t worker)> replaced = {};
  };
  // The rows have arrived if neither is set.
  struct WaitResult {
    Status status;
    std::optional<PoolFailure> failure = {};
  };

  // With `ready_rows` > 0 a wait is for the first so many ready environments; with 0 for a whole
  // batch. `pool` and `workers` outlive it.
  WatchedPool(SharedPool& pool, PoolWorkers& workers, std::size_t ready_rows)
      : pool_(pool), workers_(workers), ready_rows_(ready_rows) {}

  // As SharedPool::wait() and wait_ready(), with FAILED_PRECONDITION if fewer environments are in
  // flight than it waits for.
  WaitResult wait(std::size_t batch, std::uint32_t sequence, TimePoint deadline,
                  const Waiter& waiter, std::vector<std::int32_t>& ready);
  // As SharedPool::drain(); the time starts again after each replaced worker.
  WaitResult drain(Duration limit, const Waiter& waiter);

 private:
  // A worker with an unfinished command that has ended.
  std::optional<std::size_t> dead_worker(std::size_t batch) const;
  PoolFailure describe_dead(std::size_t worker) const;
  // The result of a wait that failed; none if it may be retried.
  std::optional<WaitResult> conclude(std::size_t batch, Status status, bool is_stopped,
                                     const Waiter& waiter) const;
  static bool is_replaced(const PoolFailure& failure, const Waiter& waiter);

  SharedPool& pool_;
  PoolWorkers& workers_;
  const std::size_t ready_rows_;
};

}  // namespace reverie
