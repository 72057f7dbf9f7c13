// NativePool::Steppers: the threads of a pool, and the batches that wait for them.
//
// Each stepper has its own rows, so that an environment is stepped on the core whose cache has it;
// one that is done takes rows from the end of the stepper with the most rows left.
//
// A thread that waits for a batch steps rows of it too: it is awake already, and its core would be
// idle. What is left then are rows that others are stepping, or the program's next batch; both take
// less time than waking a thread, so all poll for a while before they sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/env/native_pool.h"

namespace reverie {

// Thread-safe.
class NativePool::Steppers {
 public:
  // `stepper_count` is how many threads step a batch together, waiters included.
  Steppers(Clock& clock, std::size_t batch_count, std::size_t env_count, std::size_t stepper_count)
      : clock_(clock),
        env_count_(env_count),
        stepper_count_(stepper_count),
        waiters_help_(stepper_count > 1),
        progress_(batch_count) {}
  ~Steppers() { stop(); }
  Steppers(const Steppers&) = delete;
  Steppers& operator=(const Steppers&) = delete;

  Status start(std::size_t thread_count);

  // False once stop() was called: the batch will not be run.
  bool start_batch(Batch& batch);
  // After DEADLINE_EXCEEDED or CANCELLED the batch continues.
  Status wait(Batch& batch, TimePoint deadline, const std::function<bool()>& interrupted);
  // Finishes submitted batches, and ends the threads. Idempotent.
  void stop();

 private:
  // Rows [begin, end) that no thread is stepping.
  struct FreeRows {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t count() const { return end - begin; }
  };
  // The progress of one batch.
  struct Progress {
    std::vector<FreeRows> free_rows;  // one range for each stepper
    std::size_t free_count = 0;       // number of rows in all ranges
    std::size_t rows_left = 0;        // rows not done yet
  };

  // Takes free rows. Requires that there are some.
  FreeRows take_rows(Progress& progress, std::size_t stepper) const REVERIE_REQUIRES(mutex_);
  // Takes and steps free rows, releasing the lock meanwhile. Requires that there are some.
  void run_some(Batch& batch, std::size_t stepper) REVERIE_REQUIRES(mutex_);
  void work(std::size_t stepper);

  static bool is_running(const Batch& batch) {
    return batch.phase.load(std::memory_order_acquire) == Phase::kRunning;
  }

  Clock& clock_;
  const std::size_t env_count_;
  const std::size_t stepper_count_;
  const bool waiters_help_;
  Mutex mutex_;
  CondVar work_;
  CondVar done_;
  std::vector<Progress> progress_ REVERIE_GUARDED_BY(mutex_);  // by batch
  std::deque<Batch*> queue_ REVERIE_GUARDED_BY(mutex_);        // batches with free rows
  std::atomic<bool> has_work_{false};  // whether queue_ has any, for polling
  bool is_stopping_ REVERIE_GUARDED_BY(mutex_) = false;
  Mutex threads_mutex_;  // taken before mutex_
  std::vector<std::thread> threads_ REVERIE_GUARDED_BY(threads_mutex_);
};

}  // namespace reverie
