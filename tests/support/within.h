// Deadlines that tests assert: strict on a quiet machine, fair on a loaded one.
#pragma once

#include <algorithm>
#include <ctime>

#include "reverie/base/clock.h"

namespace reverie::test {

// How many times longer than alone a thread takes that computes for 50 ms now: 1 on a quiet
// machine.
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

// Whether what began at `begin` and has ended now took less than `limit_s`, or no longer than the
// load of the machine explains.
inline bool ended_within(TimePoint begin, double limit_s) {
  const double taken_s = to_seconds(Clock::system().now() - begin);
  return taken_s < limit_s || taken_s < limit_s * slowdown();
}

}  // namespace reverie::test
