// Tested in update_window_test.cc and tests/python/updates_test.py.
#include "reverie/service/update_window.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/base/waiting.h"
#include "reverie/service/request_checks.h"
#include "reverie/service/update_queue.h"

namespace reverie {

// What completions share with the window, which may be gone when they arrive.
class UpdateWindow::State {
 public:
  State(Duration pace, Alarm& alarm) : alarm_(&alarm), queue_(pace) {}

  // Waits until at most `most` updates are left or one has failed, and takes the failure. Ok: there
  // is room.
  Status wait(ReplayService& service, std::size_t most, TimePoint deadline,
              const WaitOptions& options) {
    if (wait_for(most, TimePoint())) return take_failure(/*is_earlier=*/true);
    const WaitScope scope(options);
    (void)service.look([&] { return wait_for(most, TimePoint()); });
    Clock& clock = Clock::system();
    const TimePoint begin = clock.now();
    double next_notice_s = kFirstNoticeS;
    while (!wait_for(most, std::min(deadline, clock.now() + kInterruptInterval))) {
      const TimePoint now = clock.now();
      const double waited_s = to_seconds(now - begin);
      if (now >= deadline) {
        return deadline_exceeded(
            "{} updates of priorities were not answered within {:.3g} s; see that the server "
            "runs and can be reached, or wait longer",
            count(), waited_s);
      }
      if (options.interrupted && options.interrupted()) {
        return cancelled("interrupted with {} updates of priorities under way", count());
      }
      if (options.still_waiting && waited_s >= next_notice_s) {
        options.still_waiting(waited_s);
        next_notice_s *= 2;
      }
    }
    return take_failure(/*is_earlier=*/true);
  }

  void add(const MutateRequest& request) {
    MutexLock lock(mutex_);
    queue_.add(request);
    note();
  }

  // The next call to begin; null: none yet, and the alarm is set for it.
  std::shared_ptr<const UpdateCall> next(bool is_urgent) {
    MutexLock lock(mutex_);
    auto call = queue_.next(Clock::system().now(), is_urgent);
    note();
    if (!call) set_alarm();
    return call;
  }

  void end(const UpdateCall& call, const Status& status) {
    MutexLock lock(mutex_);
    queue_.end(call, status);
    note();
    set_alarm();
    changed_.notify_all();
  }

  // The window is gone: updates that are not sent by now never will be.
  void leave() {
    MutexLock lock(mutex_);
    alarm_ = nullptr;
  }

  bool has_waiting() const { return has_waiting_.load(std::memory_order_relaxed); }

  std::size_t count() {
    MutexLock lock(mutex_);
    return queue_.update_count();
  }

  // The first failure that was not reported yet; ok if there is none.
  Status take_failure(bool is_earlier) {
    MutexLock lock(mutex_);
    const std::optional<UpdateQueue::Failure> failure = queue_.take_failure();
    if (!failure) return {};
    if (!is_earlier) return failure->status;
    return failure->status.with_context(
        format("an earlier update of priorities of table '{}'", failure->table));
  }

 private:
  static constexpr double kFirstNoticeS = 10.0;

  bool wait_for(std::size_t most, TimePoint until) {
    MutexLock lock(mutex_);
    const auto is_over = [&] {
      mutex_.assert_held();
      return queue_.update_count() <= most || queue_.has_failure();
    };
    while (!is_over() && until != TimePoint()) {
      if (!Clock::system().wait_until(changed_, mutex_, until)) break;
    }
    return is_over();
  }
  void note() REVERIE_REQUIRES(mutex_) {
    has_waiting_.store(queue_.has_waiting(), std::memory_order_relaxed);
  }
  void set_alarm() REVERIE_REQUIRES(mutex_) {
    const TimePoint due = queue_.due();
    if (alarm_ != nullptr && due != TimePoint::max()) alarm_->set(due);
  }

  Mutex mutex_;
  CondVar changed_;
  Alarm* alarm_ REVERIE_GUARDED_BY(mutex_);
  UpdateQueue queue_ REVERIE_GUARDED_BY(mutex_);
  std::atomic<bool> has_waiting_{false};
};

UpdateWindow::UpdateWindow(std::shared_ptr<ReplayService> service, Duration pace)
    : service_(std::move(service)),
      timers_(Clock::system()),
      alarm_(timers_, [this] { (void)pump(/*is_urgent=*/false); }),
      state_(std::make_shared<State>(pace, alarm_)) {}

UpdateWindow::~UpdateWindow() {
  if (!fork_guard_.check("client").ok()) return;  // a thread of the parent may hold a lock
  send();
  state_->leave();
  timers_.stop();
}

bool UpdateWindow::pump(bool is_urgent) {
  bool was_answered = false;
  MutexLock lock(calls_mutex_);
  while (const std::shared_ptr<const UpdateCall> call = state_->next(is_urgent)) {
    const RequestId id = service_->mutate(
        call->request(),
        [state = state_, call](const MutateResult& result) { state->end(*call, result.status); });
    was_answered |= id == 0;
  }
  return !was_answered;
}

Status UpdateWindow::update(const MutateRequest& request, TimePoint deadline,
                            const WaitOptions& wait) {
  REVERIE_RETURN_IF_ERROR(check_mutate_request(request));
  REVERIE_RETURN_IF_ERROR(state_->wait(*service_, kUpdatesMax - 1, deadline, wait));
  state_->add(request);
  return pump(/*is_urgent=*/false) ? Status() : state_->take_failure(/*is_earlier=*/false);
}

void UpdateWindow::send() {
  if (state_->has_waiting()) (void)pump(/*is_urgent=*/true);
}

Status UpdateWindow::flush(TimePoint deadline, const WaitOptions& wait) {
  send();
  return state_->wait(*service_, 0, deadline, wait);
}

std::size_t UpdateWindow::count() const {
  return state_->count();
}

}  // namespace reverie
