// What all waits in this library have in common.
//
// A waiting thread first polls for a moment (look_for, or a Spinner, which learns whether polling
// pays), then sleeps. A thread of the program, which Ctrl-C may interrupt, sleeps for
// kInterruptInterval at a time.
#pragma once

#include "reverie/base/clock.h"
#include "reverie/base/cores.h"
#include "reverie/base/cpu_pause.h"
#include "reverie/base/mutex.h"

namespace reverie {

// How often a wait asks whether it was interrupted.
inline constexpr Duration kInterruptInterval = std::chrono::milliseconds(50);

// Polls `is_there()` for up to `at_most`, before the caller sleeps: true once it holds. At least
// one poll; exactly one on a single core, where no other thread can run meanwhile.
template <typename IsThere>
bool look_for(IsThere is_there, Duration at_most) {
  constexpr int kLooks = 16;  // polls between two reads of the clock
  if (is_there()) return true;
  if (at_most <= Duration::zero() || available_cores() < 2) return false;
  const TimePoint end = Clock::system().now() + at_most;
  do {
    for (int i = 0; i < kLooks; ++i) {
      cpu_pause();
      if (is_there()) return true;
    }
  } while (Clock::system().now() < end);
  return false;
}

// A pause in a loop that looks for something that no other thread announces. May end early.
inline void pause_until(Clock& clock, TimePoint until) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  (void)clock.wait_until(never, mutex, until);
}

}  // namespace reverie
