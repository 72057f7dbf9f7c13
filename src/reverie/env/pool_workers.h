// PoolWorkers: which workers of a pool of environments are alive, and how the others ended.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/os/child_process.h"

namespace reverie {

// The child processes of a pool; or, if its workers are threads of this process, their state.
// Thread-safe.
class PoolWorkers {
 public:
  explicit PoolWorkers(std::size_t count) : children_(count), threads_(count) {}

  // Starts a worker, replacing an earlier one, which is killed.
  Result<int> start(std::size_t worker, const ChildProcess::Options& options);
  // How it ended; none while it is alive.
  std::optional<std::string> end_text(std::size_t worker);
  std::optional<int> pid(std::size_t worker);
  // Declares that a worker is a thread, which is alive until `end_text` says how it ended.
  void set_thread(std::size_t worker, std::optional<std::string> end_text);
  // Whether one of them is a thread, which cannot be replaced.
  bool are_threads() const;
  // Waits for all to end, then kills the others.
  void end_all(Duration at_most);

 private:
  struct Thread {
    bool is_there = false;
    std::optional<std::string> end_text;
  };

  mutable Mutex mutex_;
  std::vector<std::optional<ChildProcess>> children_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Thread> threads_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
