#include "reverie/base/check.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Check, EvaluatesItsConditionOnce) {
  int evaluated = 0;
  REVERIE_CHECK(++evaluated > 0);
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, EndsTheProcessWithConditionFileAndLine) {
  const int size = -1;
  EXPECT_DEATH(REVERIE_CHECK(size >= 0),
               "invariant broken: size >= 0 \\(.*check_test.cc:[0-9]+\\)");
}

}  // namespace
}  // namespace reverie
