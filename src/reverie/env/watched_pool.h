// WatchedPool: waits for the rows of a SharedPool, and finds out why they do not come.
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
  std::optional<std::size_t> batch = {};  // where the worker was, if it was anywhere
  std::optional<std::size_t> env = {};
  std::string text;       // for people: what happened, and the remedy
  std::string traceback;  // what the environment's worker said, or empty
};

// Thread-safe; one thread at a time waits for a batch.
class WatchedPool {
 public:
  // What a wait asks on the waiting thread, without a lock.
  struct Waiter {
    // Some twenty times a second; false ends the wait with CANCELLED.
    std::function<bool()> may_go_on;
    // Once for a worker that has failed, or whose environment has: true if another took its place,
    // and the wait goes on. None: failures are returned.
    std::function<bool(std::size_t worker)> replaced = {};
  };
  // The rows are there where neither says otherwise.
  struct Waited {
    Status status;
    std::optional<PoolFailure> failure = {};
  };

  // With `ready_rows`, a wait is for this many environments, those that are ready first; with 0 for
  // a batch as a whole. `pool` and `workers` outlive it.
  WatchedPool(SharedPool& pool, PoolWorkers& workers, std::size_t ready_rows)
      : pool_(pool), workers_(workers), ready_rows_(ready_rows) {}

  // As SharedPool::wait() and wait_ready(), with FAILED_PRECONDITION where fewer environments are
  // in flight than are waited for.
  Waited wait(std::size_t batch, std::uint32_t sequence, TimePoint deadline, const Waiter& waiter,
              std::vector<std::int32_t>& ready);
  // As SharedPool::drain(), with as much time again after each worker that was replaced.
  Waited drain(Duration limit, const Waiter& waiter);

 private:
  // A worker that was asked for something and has ended.
  std::optional<std::size_t> dead_worker(std::size_t batch) const;
  PoolFailure describe_dead(std::size_t worker) const;
  // The result of a wait that failed; nothing if it may be tried again.
  std::optional<Waited> conclude(std::size_t batch, Status status, bool is_stopped,
                                 const Waiter& waiter) const;
  static bool is_replaced(const PoolFailure& failure, const Waiter& waiter);

  SharedPool& pool_;
  PoolWorkers& workers_;
  const std::size_t ready_rows_;
};

}  // namespace reverie
