#include "reverie/base/clock.h"

#include <cmath>

namespace reverie {

Duration seconds(double s) {
  if (std::isnan(s)) return Duration(0);
  const double ns = s * 1e9;
  if (ns >= 9.2e18) return Duration::max();
  if (ns <= -9.2e18) return Duration::min();
  return Duration(static_cast<std::int64_t>(ns));
}

namespace {

class SystemClock final : public Clock {
 public:
  TimePoint now() const override {
    return {
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())
            .count()};
  }

  bool wait_until(CondVar& condition, Mutex& mutex, TimePoint deadline) override
      REVERIE_REQUIRES(mutex) {
    if (deadline == TimePoint::max()) {
      condition.wait(mutex);
      return true;
    }
    const Duration left = deadline - now();
    if (left <= Duration(0)) return false;
    condition.wait_for(mutex, left);
    return now() < deadline;
  }
};

}  // namespace

Clock& Clock::system() {
  static auto* const clock = new SystemClock;  // outlives threads that wait at the exit
  return *clock;
}

std::int64_t calendar_ns() {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TimePoint ManualClock::now() const {
  MutexLock lock(mutex_);
  return now_;
}

bool ManualClock::wait_until(CondVar& condition, Mutex& mutex, TimePoint deadline) {
  if (now() >= deadline) return false;
  // Real time only bounds how late an advance() is noticed; it decides nothing.
  condition.wait_for(mutex, std::chrono::milliseconds(1));
  return now() < deadline;
}

void ManualClock::advance(Duration by) {
  MutexLock lock(mutex_);
  now_ = now_ + by;
}

}  // namespace reverie
