// BatchQueue: a bounded queue of finished batches, with the waits for a batch and for room.
//
//     push() --> [ batch ][ batch ] at most `size_max` --> pop()
//     wait_for_room()                                      wait_for_batch(), call_when_ready()
//
// A push never waits, so that there is always room for a finished batch; a caller waits for room
// before it begins one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/waiting.h"

namespace reverie {

// Thread-safe.
template <typename T>
class BatchQueue {
 public:
  // Called on the waiting thread about twenty times a second, without a lock; true ends the wait.
  using Interrupted = std::function<bool()>;

  // Requires size_max >= 1.
  explicit BatchQueue(std::size_t size_max) : size_max_(size_max) {}
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  bool has_room() const {
    MutexLock lock(mutex_);
    return queue_.size() < size_max_;
  }
  std::size_t size() const {
    MutexLock lock(mutex_);
    return queue_.size();
  }
  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  // Also runs the callbacks of call_when_ready(), on this thread.
  void push(T batch) {
    std::vector<std::function<void()>> callbacks;
    {
      MutexLock lock(mutex_);
      queue_.push_back(std::move(batch));
      ++version_;
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (const auto& callback : callbacks) callback();
  }

  // The oldest batch, if there is one.
  std::optional<T> pop() {
    std::optional<T> batch;
    {
      MutexLock lock(mutex_);
      if (queue_.empty()) return batch;
      batch.emplace(std::move(queue_.front()));
      queue_.pop_front();
      ++version_;
    }
    changed_.notify_all();
    return batch;
  }

  // Each waits for its condition or until the queue is closed. False if neither happens by
  // `deadline`, or if interrupted.
  bool wait_for_batch(TimePoint deadline, const Interrupted& interrupted) {
    return wait([this] { return has_batch(); }, deadline, interrupted);
  }
  bool wait_for_room(TimePoint deadline, const Interrupted& interrupted) {
    return wait([this] { return has_room(); }, deadline, interrupted);
  }
  // `predicate` is called without a lock, and after each change() too.
  bool wait_until(const std::function<bool()>& predicate, TimePoint deadline,
                  const Interrupted& interrupted) {
    return wait(predicate, deadline, interrupted);
  }
  // Notifies wait_until() that its condition may have changed.
  void change() {
    {
      MutexLock lock(mutex_);
      ++version_;
    }
    changed_.notify_all();
  }

  // Calls `callback` once there is a batch or the queue is closed: now, if that is the case.
  void call_when_ready(std::function<void()> callback) {
    {
      MutexLock lock(mutex_);
      if (queue_.empty() && !is_closed_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  // Ends all waits. Queued batches can still be taken. Idempotent.
  void close() {
    std::vector<std::function<void()>> callbacks;
    {
      MutexLock lock(mutex_);
      is_closed_ = true;
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (const auto& callback : callbacks) callback();
  }

 private:
  bool has_batch() const {
    MutexLock lock(mutex_);
    return !queue_.empty();
  }

  template <typename F>
  bool wait(const F& predicate, TimePoint deadline, const Interrupted& interrupted) {
    Clock& clock = Clock::system();
    while (true) {
      std::size_t seen = 0;
      {
        MutexLock lock(mutex_);
        seen = version_;
        if (is_closed_) return true;
      }
      if (predicate()) return true;
      const TimePoint now = clock.now();
      if (now >= deadline || (interrupted && interrupted())) return false;
      MutexLock lock(mutex_);
      if (version_ != seen || is_closed_) continue;
      clock.wait_until(changed_, mutex_, std::min(deadline, now + kInterruptInterval));
    }
  }
  const std::size_t size_max_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<T> queue_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> callbacks_ REVERIE_GUARDED_BY(mutex_);
  std::size_t version_ REVERIE_GUARDED_BY(mutex_) = 0;  // incremented with each change
  std::atomic<bool> is_closed_ = false;  // set under the mutex, so that no wait misses it
};

}  // namespace reverie
