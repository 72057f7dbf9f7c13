#include "reverie/calls/call_gatherer.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace reverie {
namespace {

using std::chrono::milliseconds;

class CallGathererTest : public ::testing::Test {
 protected:
  // Adds a request; returns what the gatherer's add() returns.
  static bool add(CallGatherer& gatherer, std::uint64_t call) {
    Request request;
    request.id = {1, call};
    return gatherer.add(request);
  }
  static std::vector<std::uint64_t> numbers(const std::vector<Request>& calls) {
    std::vector<std::uint64_t> found;
    for (const Request& call : calls) found.push_back(call.id.call);
    return found;
  }

  ManualClock clock_;
};

TEST_F(CallGathererTest, ClosesABatchAtItsSizeAndCallsOneThread) {
  CallGatherer gatherer({.size = 2, .max_wait = std::nullopt}, clock_);
  EXPECT_FALSE(add(gatherer, 1)) << "one call makes no batch, now or ever";
  EXPECT_TRUE(gatherer.take().empty());
  EXPECT_TRUE(add(gatherer, 2));
  EXPECT_FALSE(add(gatherer, 3)) << "a thread is on its way";
  EXPECT_EQ(numbers(gatherer.take()), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_TRUE(gatherer.take().empty());
  EXPECT_TRUE(gatherer.leave(1));
  EXPECT_TRUE(add(gatherer, 4)) << "the thread has left";
  EXPECT_FALSE(gatherer.leave(1)) << "a batch is due";
  EXPECT_EQ(numbers(gatherer.take()), (std::vector<std::uint64_t>{3, 4}));
}

TEST_F(CallGathererTest, ClosesABatchWhenItsFirstCallHasWaitedLongEnough) {
  CallGatherer gatherer({.size = 8, .max_wait = milliseconds(5)}, clock_);
  EXPECT_TRUE(add(gatherer, 1));
  clock_.advance(milliseconds(4));
  EXPECT_FALSE(add(gatherer, 2));
  EXPECT_TRUE(gatherer.take().empty());
  EXPECT_EQ(gatherer.time_left(), Duration(milliseconds(1)));
  clock_.advance(milliseconds(1));
  EXPECT_EQ(numbers(gatherer.take()), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(gatherer.time_left(), std::nullopt);
}

TEST_F(CallGathererTest, TakesAPartialBatchIfDynamicOrIfItsServerAsks) {
  CallGatherer dynamic({.size = 2, .max_wait = std::nullopt, .is_dynamic = true}, clock_);
  EXPECT_TRUE(add(dynamic, 1));
  EXPECT_EQ(numbers(dynamic.take()), (std::vector<std::uint64_t>{1}));
  for (const std::uint64_t call : {2u, 3u, 4u}) add(dynamic, call);
  EXPECT_EQ(numbers(dynamic.take()), (std::vector<std::uint64_t>{2, 3})) << "its size at most";

  CallGatherer early({.size = 8, .max_wait = std::nullopt, .may_close_early = true}, clock_);
  EXPECT_TRUE(add(early, 1)) << "the server is to be asked";
  EXPECT_TRUE(early.take().empty());
  add(early, 2);
  EXPECT_FALSE(early.leave(1)) << "it was not asked about the second call";
  add(early, 3);
  EXPECT_EQ(numbers(early.take(2)), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(numbers(early.take(9)), (std::vector<std::uint64_t>{3}));
}

TEST_F(CallGathererTest, DropsWithdrawnCallsAndRefusesCallsAfterClose) {
  CallGatherer gatherer({.size = 2, .max_wait = std::nullopt, .is_served = false}, clock_);
  EXPECT_FALSE(add(gatherer, 1)) << "no caller asked to be notified";
  gatherer.notify_on_next();
  EXPECT_TRUE(add(gatherer, 2));
  EXPECT_FALSE(add(gatherer, 3)) << "told once";
  std::set<InboundId> gone = {{1, 2}, {1, 9}};
  gatherer.withdraw(gone);
  EXPECT_EQ(gone, (std::set<InboundId>{{1, 9}}));
  EXPECT_EQ(numbers(gatherer.take()), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_FALSE(add(gatherer, 3));
  EXPECT_EQ(numbers(gatherer.close()), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(gatherer.is_closed());
  EXPECT_FALSE(add(gatherer, 4));
  EXPECT_EQ(gatherer.count(), 0u);
  EXPECT_TRUE(gatherer.take(1).empty());
}

TEST(CallGatherer, GivesEachCallToOneThreadAndCloseEndsTheWaits) {
  constexpr std::uint64_t kCalls = 2'000;
  CallGatherer gatherer({.size = 7, .max_wait = milliseconds(1)});
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!gatherer.is_closed()) {
        const std::size_t seen = gatherer.count();
        const std::vector<Request> calls = gatherer.take();
        for (const Request& call : calls) sum += call.id.call;
        taken += calls.size();
        if (calls.empty()) gatherer.wait(seen, Clock::system().now() + std::chrono::seconds(30));
      }
    });
  }
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    Request request;
    request.id = {1, call};
    (void)gatherer.add(request);
  }
  EXPECT_TRUE(test::eventually([&] { return taken == kCalls; }));
  EXPECT_EQ(sum, kCalls * (kCalls + 1) / 2);
  gatherer.close();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reverie
