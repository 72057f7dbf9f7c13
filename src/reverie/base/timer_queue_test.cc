#include "reverie/base/timer_queue.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

using std::chrono::seconds;
using test::eventually;

// Records which callbacks ran, in order.
class Runs {
 public:
  std::function<void()> add(int number) {
    return [this, number] {
      MutexLock lock(mutex_);
      numbers_.push_back(number);
    };
  }
  std::vector<int> numbers() {
    MutexLock lock(mutex_);
    return numbers_;
  }
  std::size_t count() { return numbers().size(); }

 private:
  Mutex mutex_;
  std::vector<int> numbers_ REVERIE_GUARDED_BY(mutex_);
};

using Numbers = std::vector<int>;

class TimerQueueTest : public ::testing::Test {
 protected:
  TimePoint in(int s) { return clock_.now() + seconds(s); }

  ManualClock clock_;
  Runs runs_;
  TimerQueue timers_{clock_};
};

TEST_F(TimerQueueTest, RunsEachTimerOnceInTimeOrder) {
  timers_.schedule(in(2), runs_.add(2));
  timers_.schedule(in(3), runs_.add(3));
  timers_.schedule(in(1), runs_.add(1));  // earlier than the time for which the thread sleeps
  clock_.advance(seconds(2));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 2; }));
  EXPECT_EQ(runs_.numbers(), (Numbers{1, 2}));
  clock_.advance(seconds(10));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 3; }));
  EXPECT_EQ(runs_.numbers(), (Numbers{1, 2, 3}));
}

TEST_F(TimerQueueTest, RunsTimersOfTheSameTimeInTheOrderScheduled) {
  for (int i = 0; i < 5; ++i) timers_.schedule(clock_.now(), runs_.add(i));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 5; }));
  EXPECT_EQ(runs_.numbers(), (Numbers{0, 1, 2, 3, 4}));
}

TEST_F(TimerQueueTest, ACancelledTimerNeverRunsAndIsFreed) {
  auto held = std::make_shared<int>(0);
  const TimePoint when = in(1);
  const std::uint64_t id = timers_.schedule(when, [held] {});
  EXPECT_NE(id, 0u);
  timers_.schedule(when, runs_.add(1));
  EXPECT_EQ(held.use_count(), 2);
  timers_.cancel(id, when);
  EXPECT_EQ(held.use_count(), 1);
  timers_.cancel(id, when);  // has no effect
  clock_.advance(seconds(1));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 1; }));
}

TEST_F(TimerQueueTest, TimersMayBeScheduledAndCancelledFromACallback) {
  const TimePoint later = in(2);
  const std::uint64_t dropped = timers_.schedule(later, runs_.add(9));
  timers_.schedule(in(1), [&] {
    timers_.cancel(dropped, later);
    timers_.schedule(later, runs_.add(1));
  });
  clock_.advance(seconds(1));
  clock_.advance(seconds(1));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 1; }));
  EXPECT_EQ(runs_.numbers(), (Numbers{1}));
}

TEST_F(TimerQueueTest, RunsNothingAfterStop) {
  timers_.schedule(in(1), runs_.add(1));
  timers_.stop();
  timers_.stop();
  timers_.schedule(clock_.now(), runs_.add(2));
  clock_.advance(seconds(5));
  EXPECT_EQ(runs_.numbers(), Numbers{});
}

TEST_F(TimerQueueTest, ACallbackMayStopItsQueue) {
  timers_.schedule(in(1), [&] {
    timers_.stop();
    runs_.add(1)();
  });
  timers_.schedule(in(1), runs_.add(2));
  clock_.advance(seconds(1));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 1; }));
  timers_.stop();
  EXPECT_EQ(runs_.numbers(), Numbers{1});
}

TEST_F(TimerQueueTest, EachCallerOfStopWaitsForACallbackThatRuns) {
  std::promise<void> has_begun;
  std::promise<void> may_end;
  timers_.schedule(clock_.now(), [&] {
    has_begun.set_value();
    may_end.get_future().wait();
    timers_.stop();  // does not wait for itself
    runs_.add(1)();
  });
  has_begun.get_future().wait();
  const auto stop = [&] {
    timers_.stop();
    return runs_.count();
  };
  auto first = std::async(std::launch::async, stop);
  auto second = std::async(std::launch::async, stop);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_end.set_value();
  EXPECT_EQ(first.get(), 1u);
  EXPECT_EQ(second.get(), 1u);
}

TEST_F(TimerQueueTest, OnlyACallbackIsOnTheQueuesOwnThread) {
  std::promise<bool> is_own;
  EXPECT_FALSE(timers_.is_own_thread());
  timers_.schedule(clock_.now(), [&] { is_own.set_value(timers_.is_own_thread()); });
  EXPECT_TRUE(is_own.get_future().get());
  EXPECT_FALSE(timers_.is_own_thread());
}

TEST_F(TimerQueueTest, WithoutAThreadItTakesNoTimerUntilItCanStartOne) {
  Alarm alarm(timers_, runs_.add(1));
  {
    const test::NoNewThreads none;
    EXPECT_EQ(timers_.schedule(in(1), runs_.add(9)), 0u);
    alarm.set(in(1));
  }
  alarm.set(in(2));  // it was not set before
  EXPECT_NE(timers_.schedule(in(3), runs_.add(2)), 0u);
  clock_.advance(seconds(3));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 2; }));
  EXPECT_EQ(runs_.numbers(), (Numbers{1, 2}));
  timers_.stop();
}

TEST_F(TimerQueueTest, AnAlarmRingsAtTheEarliestOfItsTimesAndCanBeSetAgain) {
  Alarm alarm(timers_, runs_.add(1));
  alarm.set(in(10));
  alarm.set(in(20));  // later than the time that is set, so without effect
  alarm.set(in(1));
  clock_.advance(seconds(1));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 1; }));
  alarm.set(in(1));
  clock_.advance(seconds(1));
  ASSERT_TRUE(eventually([&] { return runs_.count() == 2; }));
  timers_.stop();
}

}  // namespace
}  // namespace reverie
