// Tested in native_pool_test.cc.
#include "reverie/env/native_steppers.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "reverie/base/waiting.h"

namespace reverie {
namespace {

constexpr Duration kLookTime = std::chrono::microseconds(25);  // how long waking a thread takes
// A waiting thread that steps rows checks for signals after so many.
constexpr std::size_t kRowsAtOnceMax = 1024;

}  // namespace

Status NativePool::Steppers::start(std::size_t thread_count) {
  MutexLock starting(threads_mutex_);
  try {
    const std::size_t first = waiters_help_ ? 1 : 0;  // the waiting thread is stepper 0
    for (std::size_t i = 0; i < thread_count; ++i) {
      threads_.emplace_back([this, stepper = first + i] { work(stepper); });
    }
  } catch (const std::system_error& error) {
    return resource_exhausted("thread {} of {} cannot be started: {}; ask for fewer",
                              threads_.size() + 1, thread_count, error.what());
  }
  return {};
}

bool NativePool::Steppers::start_batch(Batch& batch) {
  {
    MutexLock lock(mutex_);
    if (is_stopping_) return false;
    Progress& progress = progress_[batch.index];
    progress.free_rows.resize(stepper_count_);
    for (std::size_t i = 0; i < stepper_count_; ++i) {
      progress.free_rows[i] = {i * env_count_ / stepper_count_,
                               (i + 1) * env_count_ / stepper_count_};
    }
    progress.free_count = env_count_;
    progress.rows_left = env_count_;
    queue_.push_back(&batch);
    has_work_.store(true, std::memory_order_relaxed);
  }
  work_.notify_all();
  return true;
}

NativePool::Steppers::FreeRows NativePool::Steppers::take_rows(Progress& progress,
                                                               std::size_t stepper) const {
  // Large pieces at first, since each is taken under the lock; single rows at the end, so that all
  // threads finish at about the same time.
  const auto piece = [](const FreeRows& rows) {
    return std::clamp<std::size_t>(rows.count() / 4, 1, kRowsAtOnceMax);
  };
  FreeRows& own = progress.free_rows[stepper];
  if (own.count() > 0) {
    const std::size_t begin = std::exchange(own.begin, own.begin + piece(own));
    return {begin, own.begin};
  }
  FreeRows& most =
      *std::max_element(progress.free_rows.begin(), progress.free_rows.end(),
                        [](const FreeRows& a, const FreeRows& b) { return a.count() < b.count(); });
  const std::size_t end = std::exchange(most.end, most.end - piece(most));
  return {most.end, end};
}

void NativePool::Steppers::run_some(Batch& batch, std::size_t stepper) {
  Progress& progress = progress_[batch.index];
  const auto [begin, end] = take_rows(progress, stepper);
  progress.free_count -= end - begin;
  if (progress.free_count == 0) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), &batch));
    has_work_.store(!queue_.empty(), std::memory_order_relaxed);
  }
  mutex_.unlock();
  run(batch, begin, end, batch.actions.data());
  mutex_.lock();
  progress.rows_left -= end - begin;
  if (progress.rows_left == 0) {
    batch.phase.store(Phase::kReady, std::memory_order_release);
    done_.notify_all();
  }
}

Status NativePool::Steppers::wait(Batch& batch, TimePoint deadline,
                                  const std::function<bool()>& interrupted) {
  TimePoint look = clock_.now() + kInterruptInterval;
  while (true) {
    look_for([&] { return has_work_.load(std::memory_order_relaxed) || !is_running(batch); },
             kLookTime);
    const TimePoint now = clock_.now();
    {
      MutexLock lock(mutex_);
      if (!is_running(batch)) return {};
      if (now >= deadline) {
        return deadline_exceeded("the step takes longer: {} of {} environments are left",
                                 progress_[batch.index].rows_left, env_count_);
      }
      if (waiters_help_ && progress_[batch.index].free_count > 0) {
        run_some(batch, 0);
      } else if (now < look) {
        clock_.wait_until(done_, mutex_, std::min(deadline, look));
      }
    }
    if (now < look) continue;
    look = now + kInterruptInterval;
    if (interrupted && interrupted()) return cancelled("the wait was interrupted");
  }
}

void NativePool::Steppers::work(std::size_t stepper) {
  MutexLock lock(mutex_);
  while (true) {
    if (!queue_.empty()) {
      run_some(*queue_.front(), stepper);
      continue;
    }
    if (is_stopping_) return;
    mutex_.unlock();
    look_for([&] { return has_work_.load(std::memory_order_relaxed); }, kLookTime);
    mutex_.lock();
    if (queue_.empty() && !is_stopping_) work_.wait(mutex_);
  }
}

void NativePool::Steppers::stop() {
  MutexLock stopping(threads_mutex_);  // a second caller waits until the first has finished
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace reverie
