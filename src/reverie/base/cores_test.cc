#include "reverie/base/cores.h"

#include <thread>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Cores, AQuotaIsRoundedUpAndAMissingOneIsZero) {
  EXPECT_EQ(cores_of_quota("200000 100000"), 2u);
  EXPECT_EQ(cores_of_quota("150000 100000\n"), 2u);
  EXPECT_EQ(cores_of_quota("1000 100000"), 1u);
  for (const char* const none : {"max 100000", "", "200000", "200000 0", "?"}) {
    EXPECT_EQ(cores_of_quota(none), 0u) << none;
  }
}

TEST(Cores, AreAtLeastOneAndAtMostTheHardwareThreads) {
  EXPECT_GE(available_cores(), 1u);
  EXPECT_LE(available_cores(), std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace reverie
