// LogQueue: keeps log lines of threads that must not wait until another thread passes them on.
//
// Native code logs wherever it is: on a peer's I/O thread, which answers heartbeats, or with a lock
// in hand. `logging` of Python takes the interpreter's lock, and its holder may wait for that
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/fork.h"
#include "reverie/base/format.h"
#include "reverie/base/mutex.h"

namespace reverie {

// Thread-safe.
class LogQueue {
 public:
  // As in Python's `logging`.
  enum Level : int { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };
  struct Line {
    Level level;
    std::string text;
  };
  // Further waiting lines are dropped, and counted.
  static constexpr std::size_t kWaitingMax = 1000;

  // The lines of this process, not of the parent that it was forked from. Never destroyed, since
  // threads log until the process ends.
  static LogQueue& here() {
    static std::atomic<LogQueue*> current{nullptr};
    LogQueue* found = current.load(std::memory_order_acquire);
    while (found == nullptr || found->generation_ != fork_generation()) {
      auto* const made = new LogQueue;
      if (current.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
      delete made;
    }
    return *found;
  }

  // The lowest level of the lines that are only logged if asked for; at first none is.
  static void want(int level) { lowest_.store(level, std::memory_order_relaxed); }
  static bool wants(Level level) { return level >= lowest_.load(std::memory_order_relaxed); }

  void add(Level level, std::string_view text) {
    MutexLock lock(mutex_);
    if (waiting_.size() >= kWaitingMax) {
      ++dropped_;
      return;
    }
    waiting_.push_back({level, std::string(text)});
    added_.notify_all();
  }

  // Waits until there are lines.
  void wait() {
    MutexLock lock(mutex_);
    while (waiting_.empty()) added_.wait(mutex_);
  }

  // The lines that wait, oldest first.
  std::vector<Line> take() {
    MutexLock lock(mutex_);
    std::vector<Line> taken = std::exchange(waiting_, {});
    if (dropped_ > 0) taken.push_back({kWarning, format("{} lines were dropped", dropped_)});
    dropped_ = 0;
    return taken;
  }

 private:
  LogQueue() = default;

  static inline std::atomic<int> lowest_{std::numeric_limits<int>::max()};
  const std::uint32_t generation_ = fork_generation();
  Mutex mutex_;
  CondVar added_;
  std::vector<Line> waiting_ REVERIE_GUARDED_BY(mutex_);
  std::size_t dropped_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie
