#include "reverie/net/io_threads.h"

#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

TEST(IoThreads, RunPostedFunctionsInOrderOnTheLoopsThread) {
  IoThreads threads(2);
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) threads.loop(1).post([&order, i] { order.push_back(i); });
  EXPECT_FALSE(threads.loop(1).is_current());
  EXPECT_TRUE(threads.loop(1).run_and_wait([&] {
    EXPECT_TRUE(threads.loop(1).is_current());
    EXPECT_FALSE(threads.loop(0).is_current());
  }));
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(IoThreads, LoseNoFunctionPostedByManyThreads) {
  IoThreads threads;
  std::size_t count = 0;  // used by the loop's thread
  {
    std::vector<std::jthread> posters;
    for (int t = 0; t < 4; ++t) {
      posters.emplace_back([&] {
        for (int i = 0; i < 10'000; ++i) threads.loop(0).post([&count] { ++count; });
      });
    }
  }
  threads.loop(0).run_and_wait([&] { EXPECT_EQ(count, 40'000u); });
}

TEST(IoThreads, AFunctionPostedByAnotherRunsAfterIt) {
  IoThreads threads;
  std::string order;
  threads.loop(0).run_and_wait([&] {
    threads.loop(0).post([&] { order += 'b'; });
    order += 'a';
  });
  threads.loop(0).run_and_wait([] {});
  EXPECT_EQ(order, "ab");
}

TEST(IoThreads, AStoppedLoopRefusesFunctions) {
  IoThreads threads;
  threads.stop();
  threads.stop();
  EXPECT_FALSE(threads.loop(0).post([] { ADD_FAILURE(); }));
  EXPECT_FALSE(threads.loop(0).run_and_wait([] { ADD_FAILURE(); }));
}

TEST(IoThreads, ThatCannotStartThrowAndLeaveTheSignalsOfTheCallerAsTheyWere) {
  const std::vector<int> before = test::blocked_signals();
  {
    const test::NoNewThreads none;
    EXPECT_THROW(IoThreads threads(2), std::system_error);
  }
  EXPECT_EQ(test::blocked_signals(), before);
}

TEST(LoopTimer, RunsOnceAndNeverAfterBeingCancelledOrReplaced) {
  IoThreads threads;
  IoLoop& loop = threads.loop(0);
  std::atomic<int> fired{0};
  std::atomic<bool> is_done{false};
  std::unique_ptr<LoopTimer> kept;
  std::unique_ptr<LoopTimer> last;
  loop.run_and_wait([&] {
    kept = std::make_unique<LoopTimer>(loop);
    last = std::make_unique<LoopTimer>(loop);
    LoopTimer dropped(loop);
    dropped.start(Duration::zero(), [&] { fired += 100; });
    kept->start(Duration::zero(), [&] { fired += 10; });
    kept->start(std::chrono::milliseconds(1), [&] { ++fired; });
    // Runs after the others would have run.
    last->start(std::chrono::milliseconds(20), [&] {
      is_done = true;
      is_done.notify_all();
    });
  });
  is_done.wait(false);
  EXPECT_EQ(fired, 1);
  loop.run_and_wait([&] {
    kept.reset();
    last.reset();
  });
}

}  // namespace
}  // namespace reverie
