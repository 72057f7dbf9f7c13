// Spinner: polls for a moment before the thread sleeps.
//
// Waking a sleeping thread takes 5 us where a core is free, and 50 us in a virtual machine: longer
// than a whole call to a server on the same machine. So a thread that waits for something that
// usually comes soon polls for it first, for as long as a request and its answer take when all
// three threads on their way have to wake up: with a shorter limit they would all stay asleep. A
// thread that polled in vain sleeps at once in its next waits, in twice as many with each failure
// in a row, so polling costs long waits only a few hundredths of their time. Polls beyond 50 us are
// limited to a quarter of the time: enough to wake all threads up, after which answers come sooner,
// and too little to keep a core busy where something comes every 100 us.
//
// Where other threads want the core, polling is worse than useless: a thread that polls uses up its
// time slice and waits for the next one although the answer is there, while a thread that slept
// would be woken ahead of the others. A thread that lost its core between two polls sleeps at once
// for many waits to come.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/cpu_pause.h"

namespace reverie {

// Not thread-safe: one per waiting thread.
class Spinner {
 public:
  static constexpr Duration kLookMax = std::chrono::microseconds(150);

  // A poll that succeeds within this time is always worth it.
  static constexpr Duration kLookShort = std::chrono::microseconds(50);

  // Whether look() would poll now; an answer of false counts as a wait without polling.
  bool begin() {
    if (!has_cores()) return false;
    if (skips_left_ == 0) return true;
    --skips_left_;
    return false;
  }

  // Polls `is_there()` for at most kLookMax; true once it holds. Where cores are few, or polling
  // has not paid lately, returns false without a poll.
  template <typename IsThere>
  bool look(const Clock& clock, IsThere is_there) {
    if (!begin()) return false;
    const TimePoint first = clock.now();
    const TimePoint until = first + (may_spin_long(first) ? kLookMax : kLookShort);
    bool is_found = is_there();
    bool has_lost_core = false;
    TimePoint now = first;
    while (!is_found) {
      // A poll that succeeds may take long; one that fails is quick.
      const TimePoint last = std::exchange(now, clock.now());
      has_lost_core = has_lost_core || (last > first && now - last > kLostMin);
      if (now >= until) break;
      cpu_pause();
      is_found = is_there();
    }
    note(is_found, has_lost_core, clock.now() - first);
    return is_found;
  }

  // Whether there are cores to spare for polling.
  static bool has_cores();

 private:
  static constexpr std::uint32_t kSkipsMax = 64;
  // Waits without polling after a poll that lost its core, and after several in a row.
  static constexpr std::uint32_t kLostSkipsMin = 64;
  static constexpr std::uint32_t kLostSkipsMax = 1024;
  // A thread that makes room for one that woke up is back sooner, and polling still pays then; one
  // that used up its time slice is not back so soon.
  static constexpr Duration kLostMin = std::chrono::microseconds(300);
  static constexpr int kLongShare = 4;  // long polls take at most 1/4 of the time
  static constexpr Duration kLongMax = std::chrono::milliseconds(1);

  bool may_spin_long(TimePoint now) {
    long_left_ = std::min(kLongMax, long_left_ + (now - last_) / kLongShare);
    last_ = now;
    return long_left_ > Duration::zero();
  }
  void note(bool is_found, bool has_lost_core, Duration looked) {
    long_left_ -= std::max(Duration::zero(), looked - kLookShort);
    if (has_lost_core) {
      skips_ = std::clamp(2 * skips_, kLostSkipsMin, kLostSkipsMax);
    } else {
      skips_ = is_found ? 0 : std::clamp(2 * std::min(skips_, kSkipsMax), 1u, kSkipsMax);
    }
    skips_left_ = skips_;
  }

  TimePoint last_ = {};
  Duration long_left_ = kLongMax;  // for polls beyond kLookShort
  std::uint32_t skips_ = 0;        // after the last poll that failed
  std::uint32_t skips_left_ = 0;
};

}  // namespace reverie
