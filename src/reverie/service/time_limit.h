// TimeLimit: a time limit for a call whose request has no deadline.
//
//     TimeLimit time(seconds(1.5), Clock::system());
//     const Status status = time.outcome(reset_and_wait(service, "replay", time.limit(wait)));
#pragma once

#include <optional>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/service/blocking.h"

namespace reverie {

// For one thread, for one call.
class TimeLimit {
 public:
  // Starts now; without a `timeout` there is no limit.
  TimeLimit(std::optional<Duration> timeout, const Clock& clock);
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // `wait`, extended to end when the time is up. Must not outlive this.
  WaitOptions limit(WaitOptions wait);
  // Whether a wait has ended because the time was up.
  bool is_late() const { return is_late_; }
  Status lateness() const;
  // The result of the wait: DEADLINE_EXCEEDED instead of CANCELLED if the time was up.
  Status outcome(const Status& status) const;

 private:
  const std::optional<Duration> timeout_;
  const Clock& clock_;
  const TimePoint until_;
  bool is_late_ = false;
};

}  // namespace reverie
