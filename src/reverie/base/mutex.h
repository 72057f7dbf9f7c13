// A lock for critical sections of some microseconds.
//
// lock() spins for about 10 us, since the holder is usually about to leave, and only then sleeps
// in the kernel: with a lock that sleeps earlier, two threads on one table are slower than one.
// Guarded members carry annotations that clang checks (-Wthread-safety).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "reverie/base/check.h"
#include "reverie/base/fork.h"

#if defined(__clang__)
#define REVERIE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define REVERIE_THREAD_ANNOTATION(x)
#endif
#define REVERIE_CAPABILITY(x) REVERIE_THREAD_ANNOTATION(capability(x))
#define REVERIE_SCOPED_CAPABILITY REVERIE_THREAD_ANNOTATION(scoped_lockable)
#define REVERIE_GUARDED_BY(x) REVERIE_THREAD_ANNOTATION(guarded_by(x))
#define REVERIE_PT_GUARDED_BY(x) REVERIE_THREAD_ANNOTATION(pt_guarded_by(x))  // what it points to
#define REVERIE_REQUIRES(...) REVERIE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define REVERIE_EXCLUDES(...) REVERIE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define REVERIE_ACQUIRE(...) REVERIE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define REVERIE_TRY_ACQUIRE(...) REVERIE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define REVERIE_RELEASE(...) REVERIE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define REVERIE_ASSERT_CAPABILITY(x) REVERIE_THREAD_ANNOTATION(assert_capability(x))
#define REVERIE_NO_THREAD_SAFETY_ANALYSIS REVERIE_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace reverie {

// Four bytes. Not recursive, not fair.
class REVERIE_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() REVERIE_ACQUIRE() {
    std::uint32_t expected = kFree;
    if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) lock_slow();
  }
  bool try_lock() REVERIE_TRY_ACQUIRE(true) {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire);
  }
  void unlock() REVERIE_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) state_.notify_one();
  }
  // For code that clang cannot see to be under the lock, as in a lambda handed to a function that
  // locks. Checks that the lock is held; that it is held by this thread is not checked.
  void assert_held() const REVERIE_ASSERT_CAPABILITY(this) {
    REVERIE_CHECK(state_.load(std::memory_order_relaxed) != kFree);
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kContended = 2;  // held, and a thread may sleep

  void lock_slow();

  std::atomic<std::uint32_t> state_{kFree};
};

class REVERIE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) REVERIE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() REVERIE_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// The thing that is waited on. To wait with a deadline, use the Clock (clock.h), which owns time.
// Made without an allocation, so that a call that does not wait pays nothing for it.
//
// It is not destroyed in a forked child: the destructor would wait for the parent's threads, which
// do not exist there.
class CondVar {
 public:
  CondVar() : condition_() {}
  ~CondVar() {
    if (generation_ == fork_generation()) condition_.~condition_variable();
  }
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Both may wake spuriously. The mutex is released meanwhile.
  void wait(Mutex& mutex) REVERIE_REQUIRES(mutex);
  void wait_for(Mutex& mutex, std::chrono::nanoseconds at_most) REVERIE_REQUIRES(mutex);
  void notify_all();

 private:
  // Held from before `mutex` is released until the sleep begins: no wake is lost.
  std::mutex inner_;
  union {
    std::condition_variable condition_;  // NOLINT(readability-identifier-naming): private
  };
  const std::uint32_t generation_ = fork_generation();
};

}  // namespace reverie
