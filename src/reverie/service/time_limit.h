// TimeLimit: the time of a call whose request has no deadline of its own.
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
  // From now on; none is without limit.
  TimeLimit(std::optional<Duration> timeout, const Clock& clock);
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // `wait`, which ends when the time is up too. Must not outlive this.
  WaitOptions limit(WaitOptions wait);
  // Whether a wait has ended so.
  bool is_late() const { return is_late_; }
  Status lateness() const;
  // What the wait came to: DEADLINE_EXCEEDED in the place of the CANCELLED of one that was late.
  Status outcome(const Status& status) const;

 private:
  const std::optional<Duration> timeout_;
  const Clock& clock_;
  const TimePoint until_;
  bool is_late_ = false;
};

}  // namespace reverie
