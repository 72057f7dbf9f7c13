#include "reverie/base/waiting.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Waiting, LookForChecksOnceEvenForZeroTime) {
  int looks = 0;
  EXPECT_TRUE(look_for([&] { return ++looks > 0; }, Duration::zero()));
  EXPECT_EQ(looks, 1);
  EXPECT_FALSE(look_for([&] { return ++looks == 0; }, Duration::zero()));
  EXPECT_EQ(looks, 2);
}

TEST(Waiting, LookForPollsOnlyOnMoreThanOneCore) {
  int looks = 0;
  const bool found = look_for([&] { return ++looks == 100; }, std::chrono::hours(1));
  EXPECT_EQ(found, available_cores() > 1);
  EXPECT_EQ(looks, found ? 100 : 1);
}

TEST(Waiting, LookForGivesUpAfterItsTime) {
  EXPECT_FALSE(look_for([] { return false; }, std::chrono::microseconds(10)));
}

}  // namespace
}  // namespace reverie
