#include "reverie/base/ending_thread.h"

#include <utility>

#include "reverie/base/log.h"
#include "reverie/base/start_thread.h"

namespace reverie {

void EndingThread::end(std::string_view what, std::function<void()> work) {
  Status failed;
  {
    MutexLock lock(mutex_);
    if (!is_running_) {
      if (thread_.joinable()) thread_.join();
      Result<std::thread> started = start_thread(what, [this] { run(); });
      failed = started.status();
      if (started.ok()) thread_ = std::move(started).value();
    }
    is_running_ = failed.ok();
    if (is_running_) work_.push(std::move(work));
  }
  if (failed.ok()) return;
  log_warning("{} stays as long as the process: {}", what, failed.message());
}

void EndingThread::run() {
  while (true) {
    std::function<void()> next;
    {
      MutexLock lock(mutex_);
      if (work_.empty()) {
        is_running_ = false;
        return;
      }
      next = work_.pop();
    }
    next();
  }
}

void EndingThread::leave_thread_to_parent() {
  leave_to_parent(std::move(thread_));
}

void EndingThread::wait() {
  if (!fork_guard_.check("thread").ok()) return leave_thread_to_parent();
  std::thread thread;
  {
    MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

}  // namespace reverie
