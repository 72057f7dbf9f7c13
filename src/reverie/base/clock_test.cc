#include "reverie/base/clock.h"

#include <cmath>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

namespace reverie {
namespace {

using std::chrono::milliseconds;

TEST(Duration, FromSecondsSaturatesInsteadOfOverflowing) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(seconds(1.5), milliseconds(1500));
  EXPECT_EQ(seconds(-2.0), milliseconds(-2000));
  EXPECT_EQ(seconds(1e300), Duration::max());
  EXPECT_EQ(seconds(kInfinity), Duration::max());
  EXPECT_EQ(seconds(-kInfinity), Duration::min());
  EXPECT_EQ(seconds(std::nan("")), Duration(0));
}

TEST(Duration, SurvivesARoundTripThroughSeconds) {
  EXPECT_DOUBLE_EQ(to_seconds(seconds(0.25)), 0.25);
}

TEST(TimePoint, AddingADurationSaturatesInsteadOfOverflowing) {
  const TimePoint now{100};
  EXPECT_EQ(now + Duration::max(), TimePoint::max());
  EXPECT_EQ((now + Duration(5)).ns, 105);
  EXPECT_EQ(now + Duration(5) - now, Duration(5));
  EXPECT_LT(now, TimePoint::max());
}

TEST(TimePoint, SubtractingSaturatesInsteadOfOverflowing) {
  const TimePoint now{100};
  const TimePoint later{101};
  const TimePoint long_past = now + Duration::min();
  EXPECT_EQ(long_past - now, Duration::min());
  EXPECT_EQ(long_past - later, Duration::min());
  EXPECT_EQ(later - long_past, Duration::max());
  EXPECT_EQ(now - later, Duration(-1));
}

TEST(SystemClock, NeverGoesBackwards) {
  TimePoint last = Clock::system().now();
  for (int i = 0; i < 1'000; ++i) {
    const TimePoint now = Clock::system().now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SystemClock, WaitUntilReturnsFalsePastTheDeadline) {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  Clock& clock = Clock::system();
  EXPECT_FALSE(clock.wait_until(condition, mutex, clock.now()));
  const TimePoint soon = clock.now() + milliseconds(2);
  while (clock.wait_until(condition, mutex, soon)) {
  }
  EXPECT_GE(clock.now(), soon);
}

TEST(SystemClock, WaitUntilReturnsFalsePastADeadlineThatIsAsEarlyAsCanBe) {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  Clock& clock = Clock::system();
  EXPECT_FALSE(clock.wait_until(condition, mutex, clock.now() + Duration::min()));
}

TEST(ManualClock, AdvancesOnlyWhenTold) {
  ManualClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(seconds(3));
  EXPECT_EQ(clock.now() - start, seconds(3));
}

TEST(ManualClock, WaitUntilReturnsFalseAtOncePastTheDeadline) {
  ManualClock clock;
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  EXPECT_FALSE(clock.wait_until(condition, mutex, clock.now()));
}

TEST(ManualClock, WakesAWaiterWhenItsDeadlinePasses) {
  ManualClock clock;
  Mutex mutex;
  CondVar condition;
  const TimePoint deadline = clock.now() + seconds(3600);
  TimePoint woken{};
  std::thread waiter([&] {
    MutexLock lock(mutex);
    while (clock.wait_until(condition, mutex, deadline)) {
    }
    woken = clock.now();
  });
  clock.advance(seconds(3599));
  clock.advance(seconds(1));
  waiter.join();
  EXPECT_EQ(woken, deadline);
}

TEST(ManualClock, WakesAWaiterWhenItIsNotified) {
  ManualClock clock;
  Mutex mutex;
  CondVar condition;
  bool ready = false;
  std::thread waiter([&] {
    MutexLock lock(mutex);
    while (!ready) ASSERT_TRUE(clock.wait_until(condition, mutex, TimePoint::max()));
  });
  {
    MutexLock lock(mutex);
    ready = true;
  }
  condition.notify_all();
  waiter.join();
  EXPECT_TRUE(ready);
}

}  // namespace
}  // namespace reverie
