// Time comes in through a constructor, so that a test or a simulation owns it.
//
// A time point is nanoseconds since an arbitrary start; only differences mean something.
// Nothing outside this room reads a clock or sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

#include "reverie/base/mutex.h"

namespace reverie {

using Duration = std::chrono::nanoseconds;

struct TimePoint {
  std::int64_t ns = 0;

  static constexpr TimePoint max() { return {std::numeric_limits<std::int64_t>::max()}; }

  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
  // Saturates: a deadline long past is not years ahead.
  friend constexpr Duration operator-(TimePoint a, TimePoint b) {
    std::int64_t difference = 0;
    if (!__builtin_sub_overflow(a.ns, b.ns, &difference)) return Duration(difference);
    return a < b ? Duration::min() : Duration::max();
  }
  // Saturates: a deadline far away is "never", not the past.
  friend constexpr TimePoint operator+(TimePoint t, Duration d) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(t.ns, d.count(), &sum) ? max() : TimePoint{sum};
  }
};

// The duration of `s` seconds, saturated; NaN is zero.
Duration seconds(double s);
inline double to_seconds(Duration d) {
  return static_cast<double>(d.count()) * 1e-9;
}

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  // Waits on `condition`, whose `mutex` is held, until it is notified or `deadline` is past. May
  // return early, spuriously: callers loop. Returns false once the deadline is past.
  virtual bool wait_until(CondVar& condition, Mutex& mutex, TimePoint deadline)
      REVERIE_REQUIRES(mutex) = 0;

  // The machine's monotonic clock.
  static Clock& system();
};

// Nanoseconds since 1970 by the machine's calendar, which may jump: for people and other machines
// to read, never to measure with.
std::int64_t calendar_ns();

// Stands still until a test moves it. A thread in wait_until wakes when advance() passes its
// deadline.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override;
  bool wait_until(CondVar& condition, Mutex& mutex, TimePoint deadline) override
      REVERIE_REQUIRES(mutex);
  void advance(Duration by);

 private:
  mutable Mutex mutex_;
  TimePoint now_ REVERIE_GUARDED_BY(mutex_){};
};

}  // namespace reverie
