// Deadlines asserted in tests: strict on a quiet machine, and corrected for load.
#pragma once

#include <algorithm>
#include <ctime>

#include "reverie/base/clock.h"

namespace reverie::test {

// How many times longer a computation of 50 ms takes now because of other load; at least 1.
inline double slowdown() {
  const auto computed_s = [] {
    timespec spent{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
  };
  const TimePoint begin = Clock::system().now();
  const double begin_s = computed_s();
  while (computed_s() - begin_s < 0.05) {
  }
  return std::max(1.0, to_seconds(Clock::system().now() - begin) / 0.05);
}

// Whether what began at `begin` took less than `limit_s`, after correcting for the machine's load.
inline bool ended_within(TimePoint begin, double limit_s) {
  const double taken_s = to_seconds(Clock::system().now() - begin);
  return taken_s < limit_s || taken_s < limit_s * slowdown();
}

}  // namespace reverie::test
