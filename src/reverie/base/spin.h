// Looking again for a moment before sleeping.
//
// To wake a sleeping thread takes 5 us where a core is free, and 50 in a virtual machine: longer
// than the whole answer of a server next door. So who waits for something that usually comes soon
// looks for it first, for as long as a question and its answer take where three threads on their
// way were asleep: less, and all of them would stay asleep once they are. Who looked in vain sleeps
// at once the next times, twice as many with each failure in a row, so that a wait that is long by
// nature costs a few hundredths of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "reverie/base/clock.h"
#include "reverie/base/cpu_pause.h"

namespace reverie {

// Not thread-safe: one a waiting thread.
class Spinner {
 public:
  static constexpr Duration kLookMax = std::chrono::microseconds(150);

  // Looks for at most kLookMax whether `is_there()`; true once it is. Where cores are few, or
  // looking has not paid lately, it does not look at all: false.
  template <typename IsThere>
  bool look(const Clock& clock, IsThere is_there) {
    if (!has_cores() || skips_left_ > 0) {
      skips_left_ -= skips_left_ > 0 ? 1 : 0;
      return false;
    }
    const TimePoint until = clock.now() + kLookMax;
    do {
      if (is_there()) {
        skips_ = 0;
        return true;
      }
      cpu_pause();
    } while (clock.now() < until);
    skips_ = std::clamp(2 * skips_, 1u, kSkipsMax);
    skips_left_ = skips_;
    return false;
  }

  // Whether there are cores to spare for looking.
  static bool has_cores();

 private:
  static constexpr std::uint32_t kSkipsMax = 64;

  std::uint32_t skips_ = 0;  // after the last look that found nothing
  std::uint32_t skips_left_ = 0;
};

}  // namespace reverie
