#include "reverie/service/blocking.h"

#include <atomic>
#include <optional>
#include <utility>

#include "reverie/base/spin.h"
#include "reverie/base/waiting.h"
#include "reverie/service/table_describer.h"

namespace reverie {
namespace {

constexpr double kFirstNoticeS = 10.0;

// An address of its own for each thread.
const void* this_thread() {
  thread_local const char mark = 0;
  return &mark;
}

Spinner& thread_spinner() {
  thread_local Spinner spinner;
  return spinner;
}

// Where one call's result arrives. A thread that completes it may still hold the mutex when the
// waiter wakes, so the waiter leaves only after taking it. Most results come on the waiter's own
// thread before it waits: those cost neither a lock nor a wake-up.
template <typename T>
class Arrival {
 public:
  explicit Arrival(bool is_for_another = false)
      : waiter_(is_for_another ? nullptr : this_thread()) {}

  // REQUIRES: called once, by the thread that completes the request.
  void complete(T value) REVERIE_NO_THREAD_SAFETY_ANALYSIS {
    if (this_thread() == waiter_) {
      value_.emplace(std::move(value));
      is_own_ = true;
      return;
    }
    MutexLock lock(mutex_);
    value_.emplace(std::move(value));
    is_result_here_.store(true, std::memory_order_release);
    condition_.notify_all();
  }

  T wait(ReplayService& service, RequestId id, const WaitOptions& options) {
    if (is_own_) return take_own();
    if (id == 0) return take();
    const WaitScope scope(options);
    Clock& clock = Clock::system();
    // Where the service looks for answers on this thread, it completes the call here too.
    const auto has_result = [this] {
      return is_own_ || is_result_here_.load(std::memory_order_acquire);
    };
    const std::optional<bool> looked = service.look(has_result);
    if (looked ? *looked : options.polls && thread_spinner().look(clock, has_result)) return take();
    const TimePoint begin = clock.now();
    double next_notice_s = kFirstNoticeS;
    bool is_cancelled = false;
    while (!wait_for(clock, kInterruptInterval)) {
      if (!is_cancelled && options.interrupted && options.interrupted()) {
        is_cancelled = true;
        service.cancel(id);
      }
      const double waited_s = to_seconds(clock.now() - begin);
      if (options.still_waiting && waited_s >= next_notice_s) {
        options.still_waiting(waited_s);
        next_notice_s *= 2;
      }
    }
    return take();
  }

 private:
  bool wait_for(Clock& clock, Duration at_most) {
    const TimePoint until = clock.now() + at_most;
    MutexLock lock(mutex_);
    while (!value_) {
      if (!clock.wait_until(condition_, mutex_, until)) break;
    }
    return value_.has_value();
  }

  // What came on this thread.
  T take_own() REVERIE_NO_THREAD_SAFETY_ANALYSIS {
    REVERIE_CHECK(value_.has_value());
    return std::move(*value_);
  }

  T take() {
    MutexLock lock(mutex_);
    REVERIE_CHECK(value_.has_value());
    return std::move(*value_);
  }

  const void* const waiter_;  // the thread that will wait, if it is the one that asks
  bool is_own_ = false;       // only the waiter's thread looks at it
  std::atomic<bool> is_result_here_{false};
  Mutex mutex_;
  CondVar condition_;
  std::optional<T> value_ REVERIE_GUARDED_BY(mutex_);
};

// Calls `start(done)` and waits for what `done` is given.
template <typename T, typename Start>
T await(ReplayService& service, const WaitOptions& options, Start start) {
  Arrival<T> arrival;
  const RequestId id = start([&arrival](T value) { arrival.complete(std::move(value)); });
  return arrival.wait(service, id, options);
}

}  // namespace

class PendingSample::Answer : public Arrival<SampleResult> {
 public:
  using Arrival<SampleResult>::Arrival;
};

PendingSample::PendingSample(ReplayService& service, SampleRequest request, bool is_for_another)
    : service_(&service), arrival_(std::make_unique<Answer>(is_for_another)) {
  id_ = service.sample(std::move(request), [answer = arrival_.get()](SampleResult result) {
    answer->complete(std::move(result));
  });
}

PendingSample::PendingSample(PendingSample&&) noexcept = default;

PendingSample& PendingSample::operator=(PendingSample&& other) noexcept {
  std::swap(service_, other.service_);
  std::swap(id_, other.id_);
  std::swap(arrival_, other.arrival_);
  return *this;
}

PendingSample::~PendingSample() {
  if (!arrival_) return;
  if (id_ != 0) service_->cancel(id_);
  wait({});
}

SampleResult PendingSample::wait(const WaitOptions& options) {
  const std::unique_ptr<Answer> answer = std::move(arrival_);
  return answer->wait(*service_, id_, options);
}

InsertResult insert_and_wait(ReplayService& service, InsertRequest request,
                             const WaitOptions& options) {
  request.is_waited_for = true;
  return await<InsertResult>(service, options,
                             [&](auto done) { return service.insert(request, std::move(done)); });
}

SampleResult sample_and_wait(ReplayService& service, SampleRequest request,
                             const WaitOptions& options) {
  return await<SampleResult>(service, options, [&](auto done) {
    return service.sample(std::move(request), std::move(done));
  });
}

MutateResult mutate_and_wait(ReplayService& service, MutateRequest request,
                             const WaitOptions& options) {
  request.is_waited_for = true;
  return await<MutateResult>(service, options,
                             [&](auto done) { return service.mutate(request, std::move(done)); });
}

LookupResult lookup_and_wait(ReplayService& service, const LookupRequest& request,
                             const WaitOptions& options) {
  return await<LookupResult>(service, options,
                             [&](auto done) { return service.lookup(request, std::move(done)); });
}

Status reset_and_wait(ReplayService& service, std::string_view table, const WaitOptions& options) {
  return await<Status>(service, options,
                       [&](auto done) { return service.reset(table, std::move(done)); });
}

Result<std::vector<TableInfo>> info_and_wait(ReplayService& service, const WaitOptions& options) {
  return await<Result<std::vector<TableInfo>>>(
      service, options, [&](auto done) { return service.info(std::move(done)); });
}

Result<std::vector<TableInfo>> describe_and_wait(ReplayService& service,
                                                 const WaitOptions& options) {
  return await<Result<std::vector<TableInfo>>>(service, options, [&](auto done) {
    auto* const describer = dynamic_cast<TableDescriber*>(&service);
    return describer ? describer->describe(std::move(done)) : service.info(std::move(done));
  });
}

Result<std::string> text_and_wait(
    ReplayService& service,
    const std::function<RequestId(ReplayService::Done<Result<std::string>> done)>& start,
    const WaitOptions& options) {
  return await<Result<std::string>>(service, options, start);
}

Result<StoreOrigin> origin_and_wait(
    ReplayService& service,
    const std::function<RequestId(ReplayService::Done<Result<StoreOrigin>> done)>& start,
    const WaitOptions& options) {
  return await<Result<StoreOrigin>>(service, options, start);
}

Result<std::uint64_t> new_client_and_wait(ReplayService& service, const WaitOptions& options) {
  return await<Result<std::uint64_t>>(
      service, options, [&](auto done) { return service.new_client(std::move(done)); });
}

Result<BlockedReport> why_blocked_and_wait(ReplayService& service, std::string_view table,
                                           const WaitOptions& options) {
  return await<Result<BlockedReport>>(
      service, options, [&](auto done) { return service.why_blocked(table, std::move(done)); });
}

}  // namespace reverie
