// Prefetcher: batches made ahead of their user, by a thread of its own.
//
//     make() make() ... --> queue, at most `depth` --> next() next() ...
//
// While the user works on one batch the next ones are made. The thread stops for good at the first
// that cannot be made; those made before are handed out first, then the reason.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/service/blocking.h"

namespace reverie {

// Thread-safe.
template <typename T>
class Prefetcher {
 public:
  // Makes one, on the prefetcher's thread, and waits as it is told: an interrupted wait is one that
  // close() has ended.
  using Make = std::function<Result<T>(const WaitOptions& wait)>;

  // Requires depth >= 1. `make` lives until close() has returned.
  Prefetcher(std::size_t depth, Make make) : depth_(depth), make_(std::move(make)) {
    thread_ = std::thread([this] { run(); });
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher() { close(); }

  // The next one; CANCELLED when interrupted or closed, else the reason why there are no more.
  Result<T> next(const WaitOptions& wait) {
    while (true) {
      {
        MutexLock lock(mutex_);
        if (queue_.empty() && end_.ok() && !closed_) changed_.wait_for(mutex_, kPollInterval);
        if (closed_) return cancelled("this stream of batches is closed");
        if (!queue_.empty()) {
          T batch = std::move(queue_.front());
          queue_.pop_front();
          changed_.notify_all();
          return batch;
        }
        if (!end_.ok()) return end_;
      }
      if (wait.interrupted && wait.interrupted()) return cancelled("interrupted");
    }
  }

  // Drops what was made, and ends the thread: within a poll interval of one that waits. Idempotent.
  void close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      queue_.clear();
      changed_.notify_all();
    }
    MutexLock lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr auto kPollInterval = std::chrono::milliseconds(50);

  void run() {
    WaitOptions wait;
    wait.interrupted = [this] {
      MutexLock lock(mutex_);
      return closed_;
    };
    while (has_room()) {
      Result<T> made = make_(wait);
      MutexLock lock(mutex_);
      if (made.ok() && !closed_) {
        queue_.push_back(std::move(made).value());
      } else if (!made.ok()) {
        end_ = made.status();
      }
      changed_.notify_all();
      if (!end_.ok()) return;
    }
  }

  // Waits for room in the queue; false once closed.
  bool has_room() {
    MutexLock lock(mutex_);
    while (!closed_ && queue_.size() >= depth_) changed_.wait(mutex_);
    return !closed_;
  }

  const std::size_t depth_;
  const Make make_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<T> queue_ REVERIE_GUARDED_BY(mutex_);
  Status end_ REVERIE_GUARDED_BY(mutex_);  // not ok once the thread has stopped
  bool closed_ REVERIE_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  std::thread thread_ REVERIE_GUARDED_BY(join_mutex_);
};

}  // namespace reverie
