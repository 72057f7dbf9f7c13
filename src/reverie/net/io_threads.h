// The threads that wait for sockets: each runs one event loop.
//
//     thread 0   loop 0   { connection, connection, timer, listener }
//     thread 1   loop 1   { connection, connection }
//
// A connection belongs to one loop: its events run on that loop's thread, so it needs no lock.
// Other threads reach it by post(). The loops are Asio's; this header hides Asio.
//
// A thread with nothing to do polls for a moment before it sleeps (base/spin.h): the next request
// or answer often comes sooner than a thread can be woken.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/ending_thread.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/spin.h"
#include "reverie/base/status.h"

namespace asio {
class io_context;
}

namespace reverie {

// Something else that a loop's thread polls before it sleeps: a source without a descriptor, such
// as shared memory. Called on the loop's thread.
class LoopWatch {
 public:
  virtual ~LoopWatch() = default;
  // Does the work that is there now; false if there is none.
  virtual bool look() = 0;
  // Whether another thread is polling it, so that this one need not.
  virtual bool is_covered() const { return false; }
  // The loop's thread will sleep: from here on another thread, or a descriptor, must wake it.
  virtual void before_sleep() = 0;
  virtual void after_sleep() = 0;
};

// One event loop and its thread. Thread-safe unless said otherwise.
class IoLoop {
 public:
  IoLoop();
  ~IoLoop();
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  // Runs `work` on the loop's thread, in the order of the posts. One wake-up serves everything
  // posted since the last. False, without effect, once the loop has stopped, and in a forked child;
  // work that was posted before and has not run is dropped then.
  bool post(std::function<void()> work);
  // The same, but returns after `work` ran; on the loop's own thread it runs at once. False if it
  // was dropped because the loop's thread has ended.
  bool run_and_wait(const std::function<void()>& work);
  // Whether the caller is the loop's thread.
  bool is_current() const;

  // One per loop; null removes it. REQUIRES: on the loop's thread.
  void set_watch(LoopWatch* watch) { watch_ = watch; }

  // Memory to read into, shared by all connections of the loop: valid until the event that reads
  // into it returns. REQUIRES: on the loop's thread.
  std::span<std::byte> scratch() { return {scratch_.get(), kScratchBytes}; }

  // For the rooms that speak Asio.
  asio::io_context& context() { return *context_; }

 private:
  friend class IoThreads;
  static constexpr std::size_t kScratchBytes = std::size_t{128} << 10;
  void run();
  bool look();
  bool drain();
  void stop();

  std::unique_ptr<asio::io_context> context_;
  std::unique_ptr<std::byte[]> scratch_;
  ForkGuard fork_guard_;
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ REVERIE_GUARDED_BY(mutex_);
  bool is_stopped_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_looking_ REVERIE_GUARDED_BY(mutex_) = false;  // it polls, and sees posts unwoken
  std::atomic<bool> has_posted_{false};
  // Loop thread only.
  std::vector<std::function<void()>> running_;  // keeps its memory
  Spinner spinner_;
  LoopWatch* watch_ = nullptr;
  std::thread thread_;
};

// Thread-safe. Outlives whatever uses its loops.
class IoThreads {
 public:
  // Requires thread_count >= 1. Throws std::system_error if a thread cannot be started.
  explicit IoThreads(std::size_t thread_count = 1);
  ~IoThreads() { stop(); }
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  std::size_t count() const { return loops_.size(); }
  IoLoop& loop(std::size_t index) { return *loops_[index]; }
  // The loops in turn.
  IoLoop& next();

  // Ends objects that use the loops. stop() waits for it.
  EndingThread& ending() { return ending_; }

  // Ends the loops and joins their threads; pending work is dropped. Idempotent. Not on an I/O
  // thread. In a forked child it leaves everything to the parent.
  void stop();

  // FAILED_PRECONDITION in a forked child.
  Status check_fork() const { return fork_guard_.check("I/O thread"); }

 private:
  ForkGuard fork_guard_;
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::atomic<std::size_t> next_{0};
  EndingThread ending_;  // last: what it ends uses the loops
};

// Calls back once after a given time, on its loop. Loop thread only, the destructor included.
class LoopTimer {
 public:
  explicit LoopTimer(IoLoop& loop);
  ~LoopTimer();
  LoopTimer(const LoopTimer&) = delete;
  LoopTimer& operator=(const LoopTimer&) = delete;

  // Replaces what was started before.
  void start(Duration after, std::function<void()> run);
  // After it `run` is not called.
  void cancel();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace reverie
