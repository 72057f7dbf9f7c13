#include "reverie/replay/rate_limiter.h"

#include <limits>

#include <gtest/gtest.h>

namespace reverie {
namespace {

RateLimiter made(const RateLimiterSpec& spec) {
  return RateLimiter::make(spec).value();
}

// The example of section 3.4 of the Reverb paper: 3/2 samples per insert, bounds +3 and -2.
TEST(RateLimiter, TheThreeToTwoExampleOfThePaperStaysWithinItsBounds) {
  RateLimiter limiter = made({1.5, 1, -2.0, 3.0});
  EXPECT_FALSE(limiter.can_sample(1)) << "empty";
  EXPECT_TRUE(limiter.can_insert(1));
  limiter.did_insert();  // difference 1.5
  EXPECT_TRUE(limiter.can_insert(1)) << "3.0 <= 3";
  limiter.did_insert();  // 3.0
  EXPECT_FALSE(limiter.can_insert(1)) << "4.5 > 3";
  EXPECT_EQ(limiter.sample_allowance(), 5) << "3 - 5 = -2";
  limiter.did_sample(1);  // 2.0
  EXPECT_FALSE(limiter.can_insert(1)) << "3.5 > 3";
  limiter.did_sample(1);  // 1.0
  EXPECT_TRUE(limiter.can_insert(1)) << "2.5 <= 3";
  limiter.did_sample(3);  // -2.0
  EXPECT_FALSE(limiter.can_sample(1));
  EXPECT_TRUE(limiter.can_insert(1));
}

TEST(RateLimiter, MinSizeHoldsSamplesBackUntilTheTableIsLargeEnough) {
  RateLimiter limiter = made(RateLimiter::min_size(3));
  for (int i = 0; i < 2; ++i) limiter.did_insert();
  EXPECT_FALSE(limiter.can_sample(1));
  limiter.did_insert();
  EXPECT_TRUE(limiter.can_sample(1'000'000));
  EXPECT_TRUE(limiter.can_insert(1'000'000));
  limiter.did_delete(0);
  EXPECT_FALSE(limiter.can_sample(1)) << "a delete brings the table below min_size again";
}

TEST(RateLimiter, AQueueAdmitsItsSizeAndGivesEachItemOnce) {
  RateLimiter limiter = made(RateLimiter::queue(3));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(limiter.can_insert(1)) << i;
    limiter.did_insert();
  }
  EXPECT_FALSE(limiter.can_insert(1));
  EXPECT_EQ(limiter.sample_allowance(), 3);
  limiter.did_sample(1);
  limiter.did_delete(0);
  EXPECT_TRUE(limiter.can_insert(1));
}

TEST(RateLimiter, AnswersForAnyNumberOfInserts) {
  RateLimiter limiter = made(RateLimiter::queue(1));
  limiter.did_insert();
  for (const std::int64_t n :
       {std::int64_t{2}, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_FALSE(limiter.can_insert(n)) << n;
  }
}

TEST(RateLimiter, BelowMinSizeInsertsAreAllowedEvenOverMaxDiff) {
  RateLimiter limiter = made({4.0, 2, -10.0, 3.0});
  EXPECT_TRUE(limiter.can_insert(1)) << "4 > 3, but the table is below min_size";
  limiter.did_insert();
  EXPECT_TRUE(limiter.can_insert(1));
  limiter.did_insert();
  EXPECT_FALSE(limiter.can_insert(1));
}

TEST(RateLimiter, DeletingAnUnsampledItemFreesItsPlaceInAQueue) {
  RateLimiter limiter = made(RateLimiter::queue(1));
  limiter.did_insert();
  EXPECT_FALSE(limiter.can_insert(1));
  limiter.did_delete(1);
  EXPECT_TRUE(limiter.can_insert(1));
  limiter.did_insert();
  EXPECT_EQ(limiter.sample_allowance(), 1) << "not two: one sample was waived";
}

TEST(RateLimiter, TheAllowanceIsTheLargestNumberThatTheInequalityAllows) {
  for (const double spi : {0.1, 0.5, 1.0, 1.5, 7.3}) {
    RateLimiter limiter = made({spi, 1, -5.0, 20.0});
    for (int i = 0; i < 10; ++i) limiter.did_insert();
    const std::int64_t allowed = limiter.sample_allowance();
    const auto diff = [&](std::int64_t n) { return 10 * spi - static_cast<double>(n); };
    EXPECT_GE(diff(allowed), -5.0) << spi;
    EXPECT_LT(diff(allowed + 1), -5.0) << spi;
  }
}

TEST(RateLimiter, SaysWhichBoundBlocksAndByHowMuch) {
  RateLimiter limiter = made({1.0, 2, 0.0, 3.0});
  EXPECT_EQ(limiter.why_no_insert(), "");
  EXPECT_NE(limiter.why_no_sample().find("below min_size_to_sample 2 by 2"), std::string::npos);
  for (int i = 0; i < 3; ++i) limiter.did_insert();
  EXPECT_EQ(limiter.why_no_sample(), "");
  EXPECT_NE(limiter.why_no_insert().find("over max_diff 3 by 1"), std::string::npos)
      << limiter.why_no_insert();
  limiter.did_sample(3);
  EXPECT_NE(limiter.why_no_sample().find("under min_diff 0 by 1"), std::string::npos)
      << limiter.why_no_sample();
}

TEST(RateLimiter, RefusesInvalidNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const RateLimiterSpec& spec : std::vector<RateLimiterSpec>{{0.0, 1, 0, 1},
                                                                  {-1.0, 1, 0, 1},
                                                                  {nan, 1, 0, 1},
                                                                  {infinity, 1, 0, 1},
                                                                  {1.0, 0, 0, 1},
                                                                  {1.0, -3, 0, 1},
                                                                  {1.0, 1, nan, 1},
                                                                  {1.0, 1, 0, nan},
                                                                  {1.0, 1, 2, 1}}) {
    EXPECT_EQ(RateLimiter::make(spec).status().code(), StatusCode::kInvalidArgument)
        << spec.samples_per_insert << " " << spec.min_size_to_sample << " " << spec.min_diff << " "
        << spec.max_diff;
  }
}

TEST(RateLimiter, RefusesALimiterThatWouldDeadlock) {
  // After one insert the difference is 1: a sample would leave 0 < 0.5, an insert make 2 > 1.5.
  const Status status = RateLimiter::make({1.0, 1, 0.5, 1.5}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("can never be met"), std::string::npos) << status.message();
  // The first insert is possible, but after two inserts and two samples 0.6 * 2 - 1 is in the gap.
  EXPECT_FALSE(RateLimiter::make({0.6, 1, 0.0, 0.7}).ok());
  EXPECT_TRUE(RateLimiter::make(RateLimiter::queue(1)).ok());
  EXPECT_TRUE(RateLimiter::make({1.5, 1, -2.0, 3.0}).ok());
}

}  // namespace
}  // namespace reverie
