#include "reverie/base/spin.h"

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

namespace reverie {
namespace {

class SpinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Spinner::has_cores()) GTEST_SKIP() << "one core: no thread looks";
  }
  // Whether the spinner polls at all for something that never comes.
  bool looks_in_vain() {
    bool has_looked = false;
    EXPECT_FALSE(spinner_.look(clock_, [&] {
      has_looked = true;
      clock_.advance(std::chrono::microseconds(5));
      return false;
    }));
    return has_looked;
  }
  // Whether the spinner finds something that comes after `after`.
  bool finds(Duration after = Duration::zero()) {
    const TimePoint there = clock_.now() + after;
    const bool is_found = spinner_.look(clock_, [&] {
      if (clock_.now() >= there) return true;
      clock_.advance(std::chrono::microseconds(5));
      return false;
    });
    clock_.advance(std::max(Duration::zero(), there - clock_.now()));
    return is_found;
  }

  ManualClock clock_;
  Spinner spinner_;
};

TEST_F(SpinTest, FindsAResultThatIsReady) {
  EXPECT_TRUE(finds());
  EXPECT_TRUE(finds());
}

TEST_F(SpinTest, EachFailedPollDoublesTheWaitsWithoutPolling) {
  for (const int skips : {1, 2, 4, 8, 16, 32, 64, 64}) {
    ASSERT_TRUE(looks_in_vain());
    for (int i = 0; i < skips; ++i)
      ASSERT_FALSE(looks_in_vain()) << "wait " << i << " of " << skips;
  }
}

TEST_F(SpinTest, ASuccessfulPollResetsTheBackoff) {
  ASSERT_TRUE(looks_in_vain());
  ASSERT_FALSE(finds()) << "it sleeps at once";
  ASSERT_TRUE(finds());
  ASSERT_TRUE(looks_in_vain());
  EXPECT_FALSE(looks_in_vain());
  EXPECT_TRUE(looks_in_vain()) << "the count began again";
}

// The thread lost its core while it polled, whether the result came or not.
TEST_F(SpinTest, AThreadThatLostItsCoreSkipsPollingForManyWaits) {
  for (const bool comes : {false, true}) {
    SCOPED_TRACE(comes);
    for (const int skips : {64, 128, 256, 512, 1024, 1024}) {
      int polls = 0;
      EXPECT_EQ(spinner_.look(clock_,
                              [&] {
                                clock_.advance(std::chrono::microseconds(polls == 3 ? 4000 : 1));
                                return ++polls > 4 && comes;
                              }),
                false);
      ASSERT_GT(polls, 0);
      for (int i = 0; i < skips; ++i) ASSERT_FALSE(finds()) << "wait " << i << " of " << skips;
    }
    ASSERT_TRUE(finds()) << "there is a core again";
    ASSERT_TRUE(finds());
  }
}

TEST_F(SpinTest, PollsEveryTimeIfResultsAlwaysComeSoon) {
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(finds(std::chrono::microseconds(45)));
}

TEST_F(SpinTest, LongPollsAreMadeForAFractionOfTheWaits) {
  using std::chrono::microseconds;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(finds(microseconds(100))) << "enough to wake others up";
  int found = 0;
  for (int i = 0; i < 1000; ++i) found += finds(microseconds(100)) ? 1 : 0;
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 600) << "each beyond a short look by half its time";
}

}  // namespace
}  // namespace reverie
