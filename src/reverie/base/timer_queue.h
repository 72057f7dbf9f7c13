// Runs callbacks at given times: the deadlines of requests that wait.
//
// It has one thread, started with the first timer: a store that never blocks has no such thread.
// Where the system has no thread for it, it takes no timer, and the next one tries again. Code that
// runs on an event loop uses that loop's LoopTimer (net/io_threads.h) instead.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/start_thread.h"

namespace reverie {

// Thread-safe.
class TimerQueue {
 public:
  explicit TimerQueue(Clock& clock) : clock_(clock) {}
  ~TimerQueue() { stop(); }

  // Runs no more callbacks, and waits for one that is running, as each caller does. A callback may
  // call it, and does not wait for itself; it must not be the last to.
  void stop();
  // Whether the calling thread runs a callback of this queue.
  bool is_own_thread() const { return own_thread_.is_current(); }

  // Calls `run` on the queue's thread once `when` is past, soon after. Returns its id; 0, and `run`
  // is never called, if the queue has no thread and none can be started.
  std::uint64_t schedule(TimePoint when, std::function<void()> run);
  // No effect when it has run or is running.
  void cancel(std::uint64_t id, TimePoint when);

 private:
  void loop();
  void leave_thread_to_parent() REVERIE_NO_THREAD_SAFETY_ANALYSIS;

  Clock& clock_;
  ForkGuard fork_guard_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<TimePoint, std::uint64_t>, std::function<void()>> timers_
      REVERIE_GUARDED_BY(mutex_);
  std::uint64_t last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool stopping_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_joining_ REVERIE_GUARDED_BY(mutex_) = false;  // a stop() waits for the thread's end
  std::thread thread_ REVERIE_GUARDED_BY(mutex_);
  OwnThread own_thread_;
};

// A timer on a TimerQueue that can be moved to an earlier time, and set again after it rang.
// Thread-safe.
class Alarm {
 public:
  // Requires that `timers` is stopped before this object is destroyed.
  Alarm(TimerQueue& timers, std::function<void()> ring) : timers_(timers), ring_(std::move(ring)) {}
  // Rings at `when`, and perhaps before. If the queue has no thread, it does not ring, and the next
  // call tries again.
  void set(TimePoint when);

 private:
  TimerQueue& timers_;
  const std::function<void()> ring_;
  Mutex mutex_;
  TimePoint armed_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  bool is_logged_ REVERIE_GUARDED_BY(mutex_) = false;  // that it cannot ring
};

}  // namespace reverie
