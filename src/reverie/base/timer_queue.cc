#include "reverie/base/timer_queue.h"

#include "reverie/base/log.h"
#include "reverie/base/start_thread.h"

namespace reverie {

// The thread stayed with the parent: there is nothing to join, and the lock may never be released.
void TimerQueue::leave_thread_to_parent() {
  leave_to_parent(std::move(thread_));
}

void TimerQueue::stop() {
  if (!fork_guard_.check("timer queue").ok()) {
    leave_thread_to_parent();
    return;
  }
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (is_own_thread()) return;  // another call joins it
    while (is_joining_) changed_.wait(mutex_);
    if (!thread_.joinable()) return;
    thread = std::move(thread_);
    is_joining_ = true;
  }
  thread.join();
  MutexLock lock(mutex_);
  is_joining_ = false;
  changed_.notify_all();
}

std::uint64_t TimerQueue::schedule(TimePoint when, std::function<void()> run) {
  MutexLock lock(mutex_);
  if (!thread_.joinable() && !stopping_) {
    Result<std::thread> started =
        start_thread("timers", [this] { own_thread_.run([this] { loop(); }); });
    if (!started.ok()) return 0;
    thread_ = std::move(started).value();
  }
  const std::uint64_t id = ++last_id_;
  const auto place = timers_.emplace(std::pair(when, id), std::move(run)).first;
  if (place == timers_.begin()) changed_.notify_all();  // the thread sleeps until a later one
  return id;
}

void TimerQueue::cancel(std::uint64_t id, TimePoint when) {
  std::function<void()> dropped;  // freed after the lock: it may own much
  MutexLock lock(mutex_);
  const auto place = timers_.find(std::pair(when, id));
  if (place == timers_.end()) return;
  dropped = std::move(place->second);
  timers_.erase(place);
}

void TimerQueue::loop() {
  std::function<void()> due;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!stopping_) {
        const TimePoint first = timers_.empty() ? TimePoint::max() : timers_.begin()->first.first;
        if (first <= clock_.now()) break;
        clock_.wait_until(changed_, mutex_, first);
      }
      if (stopping_) return;
      due = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
    due();
    due = nullptr;
  }
}

void Alarm::set(TimePoint when) {
  {
    MutexLock lock(mutex_);
    if (armed_ <= when) return;
    armed_ = when;
  }
  const std::uint64_t timer = timers_.schedule(when, [this, when] {
    {
      MutexLock lock(mutex_);
      if (armed_ == when) armed_ = TimePoint::max();
    }
    ring_();
  });
  if (timer != 0) return;
  {
    MutexLock lock(mutex_);
    armed_ = TimePoint::max();
    if (std::exchange(is_logged_, true)) return;
  }
  log_warning("what has to happen at a later time waits for other events: {}",
              no_thread("timers").message());
}

}  // namespace reverie
