// What all waits of this library have in common.
//
// A thread that waits looks for a moment whether what it waits for is there (look_for, or a Spinner
// that learns whether looking pays), then sleeps. A thread of the program, which Ctrl-C may want,
// sleeps for kInterruptInterval at a time.
#pragma once

#include "reverie/base/clock.h"
#include "reverie/base/cores.h"
#include "reverie/base/cpu_pause.h"

namespace reverie {

// How often a wait asks whether it was interrupted.
inline constexpr Duration kInterruptInterval = std::chrono::milliseconds(50);

// Looks for up to `at_most` whether `is_there()`, before the caller sleeps: true once it is. At
// least one look; just one on a single core, where what is awaited cannot come meanwhile.
template <typename IsThere>
bool look_for(IsThere is_there, Duration at_most) {
  constexpr int kLooks = 16;  // between two looks at the clock
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

}  // namespace reverie
