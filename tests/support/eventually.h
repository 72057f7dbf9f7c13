// The one way in which tests wait for the effects of other threads.
//
//     ASSERT_TRUE(eventually([&] { return server.figures().call_count == 0; }));
#pragma once

#include <chrono>
#include <thread>

#include "reverie/base/clock.h"

namespace reverie::test {

// Polls `condition()` until it holds, letting other threads run in between; false after `limit_s`.
// The limit only matters for failures: a test that passes never waits for it.
template <typename Condition>
[[nodiscard]] bool eventually(Condition condition, double limit_s = 60) {
  constexpr int kYields = 100;  // afterwards it polls a thousand times per second
  Clock& clock = Clock::system();
  const TimePoint until = clock.now() + seconds(limit_s);
  Mutex mutex;
  CondVar never;
  for (int look = 0; !condition(); ++look) {
    if (clock.now() >= until) return condition();
    if (look < kYields) {
      std::this_thread::yield();
    } else {
      MutexLock lock(mutex);
      never.wait_for(mutex, std::chrono::milliseconds(1));
    }
  }
  return true;
}

}  // namespace reverie::test
