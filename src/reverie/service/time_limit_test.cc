#include "reverie/service/time_limit.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(TimeLimit, EndsAWaitWhenTheTimeIsUp) {
  ManualClock clock;
  TimeLimit time(seconds(1.5), clock);
  const WaitOptions wait = time.limit({});
  clock.advance(seconds(1.4));
  EXPECT_FALSE(wait.interrupted());
  EXPECT_FALSE(time.is_late());
  clock.advance(seconds(0.1));
  EXPECT_TRUE(wait.interrupted());
  EXPECT_TRUE(time.is_late());
  EXPECT_EQ(time.outcome(cancelled("interrupted")).to_string(),
            deadline_exceeded("no server answered within 1.5 s").to_string());
}

TEST(TimeLimit, AWaitThatEndsOtherwiseKeepsItsOwnStatus) {
  ManualClock clock;
  TimeLimit time(seconds(1.0), clock);
  bool is_asked_to_end = false;
  WaitOptions asked;
  asked.interrupted = [&] { return is_asked_to_end; };
  asked.still_waiting = [](double) {};
  const WaitOptions wait = time.limit(asked);
  EXPECT_EQ(wait.still_waiting, nullptr) << "it ends before it grows long";
  EXPECT_FALSE(wait.interrupted());
  is_asked_to_end = true;
  EXPECT_TRUE(wait.interrupted());
  EXPECT_FALSE(time.is_late());
  EXPECT_EQ(time.outcome(cancelled("interrupted")).code(), StatusCode::kCancelled);
  EXPECT_TRUE(time.outcome({}).ok());
  clock.advance(seconds(2.0));
  EXPECT_TRUE(wait.interrupted());
  EXPECT_EQ(time.outcome(unavailable("gone")).code(), StatusCode::kUnavailable);
}

TEST(TimeLimit, WithoutATimeoutThereIsNoLimit) {
  ManualClock clock;
  TimeLimit time({}, clock);
  WaitOptions asked;
  asked.still_waiting = [](double) {};
  const WaitOptions wait = time.limit(asked);
  EXPECT_NE(wait.still_waiting, nullptr);
  clock.advance(seconds(1e9));
  EXPECT_FALSE(wait.interrupted());
}

}  // namespace
}  // namespace reverie
