// Prefetcher: makes batches ahead of their user, on its own threads.
//
//     make() make() ... --> queue, at most `depth` --> next() next() ...
//
// While the user works on one batch the next ones are made; with a depth of 0 a batch is made
// when a caller waits for it. All threads stop at the first error; batches made before are
// returned first, then the error. A thread whose make() returns OUT_OF_RANGE stops alone: the
// stream ends with the last thread. With `ignores_unwanted`, a make() that returns
// DEADLINE_EXCEEDED stops its thread only if a caller has waited since before the make(); else it
// is called again. A make() may also learn itself whether and since when a caller waits. In a pause
// (service/ahead_readers.h) nothing is made, and callers of next() wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/cores.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/base/waiting.h"
#include "reverie/service/blocking.h"

namespace reverie {

// Thread-safe.
template <typename T>
class Prefetcher {
 public:
  // Makes one batch, on one of the prefetcher's threads, waiting with `wait`: close() interrupts
  // that wait.
  using Make = std::function<Result<T>(const WaitOptions& wait)>;

  // `make` must live until close() has returned.
  Prefetcher(std::size_t depth, Make make, std::size_t pauses = 0)
      : Prefetcher(depth, std::vector<Make>(1, std::move(make)), false, pauses) {}
  // One thread for each; batches come in the order in which they are finished. Requires at least
  // one. Throws std::system_error if a thread cannot be started. It begins in `pauses` pauses.
  Prefetcher(std::size_t depth, std::vector<Make> makes, bool ignores_unwanted = false,
             std::size_t pauses = 0)
      : depth_(depth),
        ignores_unwanted_(ignores_unwanted),
        makes_(std::move(makes)),
        running_(makes_.size()),
        pauses_(pauses) {
    try {
      for (const Make& make : makes_) threads_.emplace_back([this, &make] { run(make); });
    } catch (...) {
      close();  // joins those that were started
      throw;
    }
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher() { close(); }

  // The next batch; CANCELLED if interrupted or closed, else the reason why there are no more.
  Result<T> next(const WaitOptions& wait) {
    begin_waiting();
    while (true) {
      {
        MutexLock lock(mutex_);
        if (!has_answer()) changed_.wait_for(mutex_, kInterruptInterval);
        if (has_answer()) {
          --waiting_;
          if (closed_) return cancelled("this stream of batches is closed");
          if (!queue_.empty()) return take();
          return end_;
        }
      }
      if (wait.interrupted && wait.interrupted()) {
        MutexLock lock(mutex_);
        --waiting_;
        interrupted_at_ = Clock::system().now();
        return cancelled("interrupted");
      }
    }
  }

  // The next batch if it is ready, without waiting.
  std::optional<T> next_now() {
    MutexLock lock(mutex_);
    if (closed_ || queue_.empty()) return std::nullopt;
    return take();
  }

  // --- For make(). Of several threads, each learns of the caller that waits for any of them.
  // Since when a caller has waited for the batch that is being made; none if no caller does. A wait
  // that is interrupted and goes on within kPollGap began with its first call.
  std::optional<TimePoint> wanted_since() {
    MutexLock lock(mutex_);
    return is_wanted() ? std::optional(waiting_since_) : std::nullopt;
  }
  // The same, once a caller waits for it; none once closed, and in a pause.
  std::optional<TimePoint> wait_until_wanted() {
    MutexLock lock(mutex_);
    while (!closed_ && pauses_ == 0 && !is_wanted()) changed_.wait(mutex_);
    return closed_ || pauses_ > 0 ? std::nullopt : std::optional(waiting_since_);
  }

  // --- Pauses.
  // Interrupts each make() that waits, and begins no other until as many calls of resume(). A
  // make() that returns CANCELLED then is called again.
  void begin_pause() {
    MutexLock lock(mutex_);
    ++pauses_;
    ++pauses_begun_;
    changed_.notify_all();
  }
  // In a pause: waits until no make() runs; false if one still does at `deadline`.
  bool wait_until_still(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (making_ > 0) {
      if (!Clock::system().wait_until(changed_, mutex_, deadline)) return making_ == 0;
    }
    return true;
  }
  // In a pause, once no make() runs: what was made and not taken, in order. Empty after an error,
  // for then nothing would be made again.
  std::deque<T> take_paused() {
    MutexLock lock(mutex_);
    return is_over() ? std::deque<T>() : std::exchange(queue_, {});
  }
  void resume() {
    MutexLock lock(mutex_);
    --pauses_;
    changed_.notify_all();
  }

  // Ends the threads: waiting ones within a poll interval. Returns what was made and not taken, in
  // order. Idempotent.
  std::deque<T> close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      changed_.notify_all();
    }
    {
      MutexLock lock(join_mutex_);
      for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
      }
    }
    MutexLock lock(mutex_);
    return std::exchange(queue_, {});
  }

 private:
  // The user, the prefetcher's thread, that of the I/O and that of a server work for each other:
  // where there are fewer cores, a thread that polls takes the core of another.
  static constexpr unsigned kPollCoresMin = 4;
  // A caller that polls waits on if it calls again within this time.
  static constexpr Duration kPollGap = std::chrono::seconds(1);

  void run(const Make& make) {
    std::uint64_t begun = 0;  // pauses, when make() was called
    WaitOptions wait;
    wait.polls = available_cores() >= kPollCoresMin;
    wait.interrupted = [this, &begun] {
      MutexLock lock(mutex_);
      return closed_ || has_failed_ || pauses_begun_ != begun;
    };
    while (has_room(begun)) {
      const TimePoint begun_at = Clock::system().now();
      Result<T> made = make(wait);
      MutexLock lock(mutex_);
      --making_;
      changed_.notify_all();
      if (made.ok()) {
        queue_.push_back(std::move(made).value());
        continue;
      }
      const bool was_paused =
          pauses_begun_ != begun && made.status().code() == StatusCode::kCancelled;
      if (was_paused) continue;
      if (made.status().code() == StatusCode::kOutOfRange && wait_until_taken(begun)) continue;
      if (!is_ignorable(made.status(), begun_at)) return stop(made.status());
      if (!closed_ && !has_failed_ && waiting_ == 0) changed_.wait_for(mutex_, kInterruptInterval);
    }
  }

  void begin_waiting() {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::system().now();
    const bool goes_on = interrupted_at_ && now - *interrupted_at_ < kPollGap;
    interrupted_at_.reset();
    if (waiting_++ == 0 && !goes_on) waiting_since_ = now;
    if (!has_answer()) changed_.notify_all();  // a batch is wanted now
  }

  // Whether next() need not wait.
  bool has_answer() const REVERIE_REQUIRES(mutex_) {
    return closed_ || !queue_.empty() || is_over();
  }

  // A caller that has not yet taken the batch that it waited for does not wait for the next one.
  bool is_wanted() const REVERIE_REQUIRES(mutex_) { return waiting_ > 0 && queue_.empty(); }

  T take() REVERIE_REQUIRES(mutex_) {
    T batch = std::move(queue_.front());
    queue_.pop_front();
    interrupted_at_.reset();
    changed_.notify_all();
    return batch;
  }

  bool is_ignorable(const Status& why, TimePoint begun_at) const REVERIE_REQUIRES(mutex_) {
    const bool is_unwanted = waiting_ == 0 || waiting_since_ > begun_at;
    return ignores_unwanted_ && is_unwanted && why.code() == StatusCode::kDeadlineExceeded;
  }

  // For a thread that has nothing more to make: what was made may come back in a pause, and then it
  // is made again. Whether a pause began before all was taken; `begun`: the pauses before.
  bool wait_until_taken(std::uint64_t begun) REVERIE_REQUIRES(mutex_) {
    while (!closed_ && !has_failed_ && pauses_begun_ == begun && !queue_.empty()) {
      changed_.wait(mutex_);
    }
    return !closed_ && !has_failed_ && pauses_begun_ != begun;
  }

  // A thread has ended. The first failure is the reason that is kept.
  void stop(const Status& why) REVERIE_REQUIRES(mutex_) {
    const bool is_failure = why.code() != StatusCode::kOutOfRange;
    if (end_.ok() || (is_failure && !has_failed_)) end_ = why;
    has_failed_ = has_failed_ || is_failure;
    --running_;
    changed_.notify_all();
  }

  // Waits for room in the queue, and takes it; false once closed or failed. Sets `begun` to the
  // number of pauses until then.
  bool has_room(std::uint64_t& begun) {
    MutexLock lock(mutex_);
    while (!closed_ && !has_failed_ && (pauses_ > 0 || queue_.size() + making_ >= wanted())) {
      changed_.wait(mutex_);
    }
    if (closed_ || has_failed_) return false;
    begun = pauses_begun_;
    ++making_;
    return true;
  }

  // How many batches there may be, finished or being made.
  std::size_t wanted() const REVERIE_REQUIRES(mutex_) {
    return depth_ > 0 ? depth_ : waiting_ > 0 ? 1 : 0;
  }

  // Nothing more will be queued.
  bool is_over() const REVERIE_REQUIRES(mutex_) {
    return has_failed_ ? making_ == 0 : running_ == 0;
  }

  const std::size_t depth_;
  const bool ignores_unwanted_;
  const std::vector<Make> makes_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<T> queue_ REVERIE_GUARDED_BY(mutex_);
  std::size_t making_ REVERIE_GUARDED_BY(mutex_) = 0;   // threads in make()
  std::size_t running_ REVERIE_GUARDED_BY(mutex_);      // threads that have not stopped
  std::size_t waiting_ REVERIE_GUARDED_BY(mutex_) = 0;  // callers of next()
  TimePoint waiting_since_ REVERIE_GUARDED_BY(mutex_);  // valid while there are any
  // When the last wait was interrupted; none if a batch was taken since, or a caller waits again.
  std::optional<TimePoint> interrupted_at_ REVERIE_GUARDED_BY(mutex_);
  Status end_ REVERIE_GUARDED_BY(mutex_);  // not ok once a thread has stopped
  bool has_failed_ REVERIE_GUARDED_BY(mutex_) = false;
  std::size_t pauses_ REVERIE_GUARDED_BY(mutex_);  // those that were not resumed
  std::uint64_t pauses_begun_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool closed_ REVERIE_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  std::vector<std::thread> threads_ REVERIE_GUARDED_BY(join_mutex_);
};

}  // namespace reverie
