// Waiting in a test for what other threads bring about: the one way to do it.
//
//     ASSERT_TRUE(eventually([&] { return server.figures().call_count == 0; }));
#pragma once

#include <chrono>
#include <thread>

#include "reverie/base/clock.h"

namespace reverie::test {

// Looks until `condition()` holds, letting others run between two looks: true then, false after
// `limit_s`. A limit is for failures alone: a test that passes never waits for it.
template <typename Condition>
[[nodiscard]] bool eventually(Condition condition, double limit_s = 60) {
  constexpr int kYields = 100;  // then it looks a thousand times a second
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
