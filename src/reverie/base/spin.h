// Looking again for a moment before sleeping.
//
// To wake a sleeping thread takes 5 us where a core is free, and 50 in a virtual machine: longer
// than the whole answer of a server on the same machine. So a thread that waits for something that
// usually comes soon polls for it first, for as long as a request and its answer take when all
// three threads on their way have to wake up: with a shorter limit they would all stay asleep. A
// thread that polled in vain sleeps at once the next times, twice as many with each failure in a
// row, so that polling costs a wait that is naturally long a few hundredths of its time. Polls
// beyond 50 us are limited to a quarter of the time: enough to wake all threads up, after which
// answers come sooner, and too little to occupy a core where something comes every 100 us.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "reverie/base/clock.h"
#include "reverie/base/cpu_pause.h"

namespace reverie {

// Not thread-safe: one for each waiting thread.
class Spinner {
 public:
  static constexpr Duration kLookMax = std::chrono::microseconds(150);

  // A look that finds something within this time is always worth it.
  static constexpr Duration kLookShort = std::chrono::microseconds(50);

  // Looks for at most kLookMax whether `is_there()`; true once it is. Where cores are few, or
  // looking has not paid lately, it does not look at all: false.
  template <typename IsThere>
  bool look(const Clock& clock, IsThere is_there) {
    if (!has_cores() || skips_left_ > 0) {
      skips_left_ -= skips_left_ > 0 ? 1 : 0;
      return false;
    }
    const TimePoint begin = clock.now();
    TimePoint now = begin;
    const TimePoint until = begin + (may_look_long(begin) ? kLookMax : kLookShort);
    bool is_found = is_there();
    while (!is_found && now < until) {
      cpu_pause();
      is_found = is_there();
      now = clock.now();
    }
    note(is_found, now - begin);
    return is_found;
  }

  // Whether there are cores to spare for looking.
  static bool has_cores();

 private:
  static constexpr std::uint32_t kSkipsMax = 64;
  static constexpr int kLongShare = 4;  // one part in this many of the time
  static constexpr Duration kLongMax = std::chrono::milliseconds(1);

  bool may_look_long(TimePoint now) {
    long_left_ = std::min(kLongMax, long_left_ + (now - last_) / kLongShare);
    last_ = now;
    return long_left_ > Duration::zero();
  }
  void note(bool is_found, Duration looked) {
    long_left_ -= std::max(Duration::zero(), looked - kLookShort);
    skips_ = is_found ? 0 : std::clamp(2 * skips_, 1u, kSkipsMax);
    skips_left_ = skips_;
  }

  TimePoint last_ = {};
  Duration long_left_ = kLongMax;  // of looks beyond kLookShort
  std::uint32_t skips_ = 0;        // after the last look that found nothing
  std::uint32_t skips_left_ = 0;
};

}  // namespace reverie
