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
//
// Where other threads want the core, polling is worse than useless: a thread that has polled has
// used its share up, and waits for the next one while the answer is there, where one that slept
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

// Not thread-safe: one for each waiting thread.
class Spinner {
 public:
  static constexpr Duration kLookMax = std::chrono::microseconds(150);

  // A look that finds something within this time is always worth it.
  static constexpr Duration kLookShort = std::chrono::microseconds(50);

  // Whether look() would look now; false counts as one that did not.
  bool begin() {
    if (!has_cores()) return false;
    if (skips_left_ == 0) return true;
    --skips_left_;
    return false;
  }

  // Looks for at most kLookMax whether `is_there()`; true once it is. Where cores are few, or
  // looking has not paid lately, it does not look at all: false.
  template <typename IsThere>
  bool look(const Clock& clock, IsThere is_there) {
    if (!begin()) return false;
    const TimePoint first = clock.now();
    const TimePoint until = first + (may_look_long(first) ? kLookMax : kLookShort);
    bool is_found = is_there();
    bool has_lost_core = false;
    TimePoint now = first;
    while (!is_found) {
      // What finds something may take its time; what finds nothing does not.
      const TimePoint last = std::exchange(now, clock.now());
      has_lost_core = has_lost_core || (last > first && now - last > kLostMin);
      if (now >= until) break;
      cpu_pause();
      is_found = is_there();
    }
    note(is_found, has_lost_core, clock.now() - first);
    return is_found;
  }

  // Whether there are cores to spare for looking.
  static bool has_cores();

 private:
  static constexpr std::uint32_t kSkipsMax = 64;
  // After a look that lost its core, and after several in a row.
  static constexpr std::uint32_t kLostSkipsMin = 64;
  static constexpr std::uint32_t kLostSkipsMax = 1024;
  // Nothing else lets so much time pass between two polls that find nothing.
  static constexpr Duration kLostMin = std::chrono::microseconds(10);
  static constexpr int kLongShare = 4;  // one part in this many of the time
  static constexpr Duration kLongMax = std::chrono::milliseconds(1);

  bool may_look_long(TimePoint now) {
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
  Duration long_left_ = kLongMax;  // of looks beyond kLookShort
  std::uint32_t skips_ = 0;        // after the last look that found nothing
  std::uint32_t skips_left_ = 0;
};

}  // namespace reverie
