#include "reverie/base/helpers.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "reverie/base/cores.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/signals_blocked.h"

namespace reverie {
namespace {

// More find no memory to feed them: what is done in parts mostly copies.
constexpr unsigned kHelpersMax = 3;

struct Job {
  std::size_t part_count;
  const std::function<void(std::size_t)>& work;
  std::atomic<std::size_t> next{0};
  int helper_count = 0;  // at work on it; guarded by the helpers' mutex

  bool has_parts() const { return next.load(std::memory_order_relaxed) < part_count; }
  void run() {
    for (std::size_t part = next.fetch_add(1); part < part_count; part = next.fetch_add(1)) {
      work(part);
    }
  }
};

class Helpers {
 public:
  // False, and nothing done, when another call has the helpers or there are none.
  bool run(Job& job) {
    {
      MutexLock lock(mutex_);
      if (job_ != nullptr) return false;
      if (!is_started_) start();
      if (thread_count_ == 0) return false;
      job_ = &job;
      changed_.notify_all();
    }
    job.run();
    MutexLock lock(mutex_);
    job_ = nullptr;
    while (job.helper_count > 0) changed_.wait(mutex_);
    return true;
  }

 private:
  void start() REVERIE_REQUIRES(mutex_) {
    is_started_ = true;
    const unsigned wanted = std::min(kHelpersMax, available_cores() - 1);
    const SignalsBlocked blocked;
    try {
      for (; thread_count_ < wanted; ++thread_count_) std::thread([this] { loop(); }).detach();
    } catch (const std::system_error&) {
      // The callers do the parts of those that cannot be started.
    }
  }

  void loop() {
    MutexLock lock(mutex_);
    while (true) {
      if (job_ == nullptr || !job_->has_parts()) {
        changed_.wait(mutex_);
        continue;
      }
      Job& job = *job_;
      ++job.helper_count;
      mutex_.unlock();
      job.run();
      mutex_.lock();
      if (--job.helper_count == 0) changed_.notify_all();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  Job* job_ REVERIE_GUARDED_BY(mutex_) = nullptr;
  bool is_started_ REVERIE_GUARDED_BY(mutex_) = false;
  unsigned thread_count_ REVERIE_GUARDED_BY(mutex_) = 0;
};

// Never destroyed: the threads sleep on it until the process ends. A forked child, where they are
// not, gets others.
Helpers& helpers() {
  static Mutex mutex;
  static std::uint32_t generation = 0;
  static Helpers* made = nullptr;
  MutexLock lock(mutex);
  if (made == nullptr || generation != fork_generation()) {
    generation = fork_generation();
    made = new Helpers();
  }
  return *made;
}

}  // namespace

void run_in_parts(std::size_t part_count, const std::function<void(std::size_t part)>& work) {
  Job job{part_count, work};
  if (part_count < 2 || !helpers().run(job)) job.run();
}

}  // namespace reverie
