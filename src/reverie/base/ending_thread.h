// EndingThread: ends objects that were dropped by a thread which their end waits for.
//
//     if (!is_own_thread()) return delete client;
//     ending.end("a client", [client] { delete client; });
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "reverie/base/fifo_queue.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"

namespace reverie {

// Thread-safe.
class EndingThread {
 public:
  EndingThread() = default;
  ~EndingThread() { wait(); }
  EndingThread(const EndingThread&) = delete;
  EndingThread& operator=(const EndingThread&) = delete;

  // Calls `work`, which ends `what`, on another thread, after the work that was given before. If
  // the system has no thread for it, `work` is never called, and there is a warning.
  void end(std::string_view what, std::function<void()> work);
  // Waits until the work that was given has returned. Not from within it.
  void wait();

 private:
  void run();
  void leave_thread_to_parent() REVERIE_NO_THREAD_SAFETY_ANALYSIS;

  ForkGuard fork_guard_;
  Mutex mutex_;
  FifoQueue<std::function<void()>> work_ REVERIE_GUARDED_BY(mutex_);
  bool is_running_ REVERIE_GUARDED_BY(mutex_) = false;  // else the thread is about to end
  std::thread thread_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
