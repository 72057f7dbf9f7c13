// Tested in tests/python/updates_test.py.
#include "reverie/client/update_window.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reverie/base/format.h"
#include "reverie/base/mutex.h"
#include "reverie/base/waiting.h"

namespace reverie {
namespace {

constexpr double kFirstNoticeS = 10.0;

}  // namespace

// The state that completions share with the window, which may have ended when they arrive.
class UpdateWindow::State {
 public:
  // Waits until at most `most` are in progress or one has failed, and takes the failure. Ok: there
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

  void begin() {
    MutexLock lock(mutex_);
    ++count_;
  }

  void end(const Status& status, const std::string& table) {
    MutexLock lock(mutex_);
    --count_;
    if (!status.ok() && failure_.ok()) {
      failure_ = status;
      failed_table_ = table;
    }
    changed_.notify_all();
  }

  std::size_t count() {
    MutexLock lock(mutex_);
    return count_;
  }

  // The first failure that was not reported yet; ok if there is none.
  Status take_failure(bool is_earlier) {
    MutexLock lock(mutex_);
    Status failure = std::exchange(failure_, Status());
    if (failure.ok() || !is_earlier) return failure;
    return failure.with_context(
        format("an earlier update of priorities of table '{}'", failed_table_));
  }

 private:
  bool wait_for(std::size_t most, TimePoint until) {
    MutexLock lock(mutex_);
    while (count_ > most && failure_.ok() && until != TimePoint()) {
      if (!Clock::system().wait_until(changed_, mutex_, until)) break;
    }
    return count_ <= most || !failure_.ok();
  }

  Mutex mutex_;
  CondVar changed_;
  std::size_t count_ REVERIE_GUARDED_BY(mutex_) = 0;
  Status failure_ REVERIE_GUARDED_BY(mutex_);
  std::string failed_table_ REVERIE_GUARDED_BY(mutex_);
};

UpdateWindow::UpdateWindow(std::shared_ptr<ReplayService> service)
    : service_(std::move(service)), state_(std::make_shared<State>()) {}

Status UpdateWindow::update(const MutateRequest& request, TimePoint deadline,
                            const WaitOptions& wait) {
  REVERIE_RETURN_IF_ERROR(state_->wait(*service_, kInFlightMax - 1, deadline, wait));
  state_->begin();
  const RequestId id = service_->mutate(
      request, [state = state_, table = std::string(request.table)](const MutateResult& result) {
        state->end(result.status, table);
      });
  return id == 0 ? state_->take_failure(/*is_earlier=*/false) : Status();
}

Status UpdateWindow::flush(TimePoint deadline, const WaitOptions& wait) {
  return state_->wait(*service_, 0, deadline, wait);
}

std::size_t UpdateWindow::count() const {
  return state_->count();
}

}  // namespace reverie
