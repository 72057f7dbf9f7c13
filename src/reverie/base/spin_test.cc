#include "reverie/base/spin.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

class SpinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Spinner::has_cores()) GTEST_SKIP() << "one core: nobody looks";
  }
  // Whether it looked at all, for something that never comes.
  bool looks_in_vain() {
    bool has_looked = false;
    EXPECT_FALSE(spinner_.look(clock_, [&] {
      has_looked = true;
      clock_.advance(Spinner::kLookMax);
      return false;
    }));
    return has_looked;
  }
  bool finds() {
    return spinner_.look(clock_, [] { return true; });
  }

  ManualClock clock_;
  Spinner spinner_;
};

TEST_F(SpinTest, WhatIsThereIsFound) {
  EXPECT_TRUE(finds());
  EXPECT_TRUE(finds());
}

TEST_F(SpinTest, EachLookInVainIsFollowedByTwiceAsManyWaitsWithoutOne) {
  for (const int skips : {1, 2, 4, 8, 16, 32, 64, 64}) {
    ASSERT_TRUE(looks_in_vain());
    for (int i = 0; i < skips; ++i)
      ASSERT_FALSE(looks_in_vain()) << "wait " << i << " of " << skips;
  }
}

TEST_F(SpinTest, AFindIsLookedForAgainTheNextTime) {
  ASSERT_TRUE(looks_in_vain());
  ASSERT_FALSE(finds()) << "it sleeps at once";
  ASSERT_TRUE(finds());
  ASSERT_TRUE(looks_in_vain());
  EXPECT_FALSE(looks_in_vain());
  EXPECT_TRUE(looks_in_vain()) << "the count began anew";
}

}  // namespace
}  // namespace reverie
