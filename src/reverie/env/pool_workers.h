// PoolWorkers: whether the workers of a pool of environments live, and how each has ended.
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

// The child processes of a pool; or, of one whose workers are threads of this process, what is
// known of them. Thread-safe.
class PoolWorkers {
 public:
  explicit PoolWorkers(std::size_t count) : children_(count), threads_(count) {}

  // Starts one, in the place of an earlier one, which is killed.
  Result<int> start(std::size_t worker, const ChildProcess::Options& options);
  // How it ended, or nothing while it lives.
  std::optional<std::string> end_text(std::size_t worker);
  std::optional<int> pid(std::size_t worker);
  // A worker is a thread: it lives until `end_text` says how it ended.
  void set_thread(std::size_t worker, std::optional<std::string> end_text);
  // Waits for all to end, then kills those that have not.
  void end_all(Duration at_most);

 private:
  struct Thread {
    bool is_there = false;
    std::optional<std::string> end_text;
  };

  Mutex mutex_;
  std::vector<std::optional<ChildProcess>> children_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Thread> threads_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
