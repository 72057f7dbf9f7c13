#include "reverie/base/helpers.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

TEST(Helpers, EachPartRunsOnceBeforeTheCallReturns) {
  for (const std::size_t count : {0u, 1u, 2u, 100u}) {
    std::vector<int> done(count);  // one element per part, so no two threads share one
    run_in_parts(count, [&](std::size_t part) { ++done[part]; });
    EXPECT_EQ(done, std::vector<int>(count, 1));
  }
}

TEST(Helpers, SeveralCallersAtOnceDoNotWaitForEachOther) {
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) run_in_parts(8, [&](std::size_t) { ++done; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done.load(), 4 * 50 * 8);
}

TEST(Helpers, ASlowPartDoesNotDelayTheOthers) {
  std::atomic<int> others{0};
  std::atomic<bool> is_alone{false};
  run_in_parts(5, [&](std::size_t part) {
    if (part > 0) {
      ++others;
      return;
    }
    // Ends at once if there are no helpers, otherwise when they have done the other parts.
    is_alone = std::thread::hardware_concurrency() < 2;
    EXPECT_TRUE(test::eventually([&] { return is_alone || others == 4; }));
  });
  EXPECT_EQ(others.load(), 4);
}

// The last one: a process starts its helpers once.
TEST(Helpers, ThatCannotStartLeaveAllPartsToTheCallerAndItsSignalsAsTheyWere) {
  const std::vector<int> before = test::blocked_signals();
  std::vector<int> done(8);
  {
    const test::NoNewThreads none;
    run_in_parts(8, [&](std::size_t part) { ++done[part]; });
  }
  EXPECT_EQ(done, std::vector<int>(8, 1));
  EXPECT_EQ(test::blocked_signals(), before);
}

}  // namespace
}  // namespace reverie
