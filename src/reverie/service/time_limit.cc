#include "reverie/service/time_limit.h"

#include <utility>

namespace reverie {

TimeLimit::TimeLimit(std::optional<Duration> timeout, const Clock& clock)
    : timeout_(timeout),
      clock_(clock),
      until_(timeout ? clock.now() + *timeout : TimePoint::max()) {}

WaitOptions TimeLimit::limit(WaitOptions wait) {
  wait.interrupted = [this, asked = std::move(wait.interrupted)] {
    is_late_ = clock_.now() >= until_;
    return is_late_ || (asked && asked());
  };
  // The caller is told soon enough.
  if (timeout_) wait.still_waiting = nullptr;
  return wait;
}

Status TimeLimit::lateness() const {
  return deadline_exceeded("no server answered within {:g} s",
                           to_seconds(timeout_.value_or(Duration::max())));
}

Status TimeLimit::outcome(const Status& status) const {
  return is_late_ && status.code() == StatusCode::kCancelled ? lateness() : status;
}

}  // namespace reverie
