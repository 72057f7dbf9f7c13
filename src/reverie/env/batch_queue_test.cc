#include "reverie/env/batch_queue.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TimePoint now() {
  return Clock::system().now();
}
TimePoint never() {
  return TimePoint::max();
}

TEST(BatchQueue, BatchesComeInOrder) {
  BatchQueue<std::unique_ptr<int>> queue(2);
  EXPECT_FALSE(queue.pop().has_value());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.has_room(), i < 2);
    queue.push(std::make_unique<int>(i));
  }
  EXPECT_EQ(queue.size(), 3u) << "a push never waits";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*queue.pop().value(), i);
}

TEST(BatchQueue, AWaitEndsAtItsDeadline) {
  BatchQueue<int> queue(1);
  EXPECT_FALSE(queue.wait_for_batch(now(), {}));
  EXPECT_TRUE(queue.wait_for_room(now(), {}));
  queue.push(1);
  EXPECT_TRUE(queue.wait_for_batch(now(), {}));
  EXPECT_FALSE(queue.wait_for_room(now(), {}));
}

TEST(BatchQueue, AWaitEndsWhenItIsInterrupted) {
  BatchQueue<int> queue(1);
  int asked = 0;
  EXPECT_FALSE(queue.wait_for_batch(never(), [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

TEST(BatchQueue, ClosingEndsEveryWaitAndKeepsQueuedBatches) {
  BatchQueue<int> queue(1);
  queue.push(7);
  std::thread waits_for_room([&] { EXPECT_TRUE(queue.wait_for_room(never(), {})); });
  std::thread waits_for_more(
      [&] { EXPECT_TRUE(queue.wait_until([] { return false; }, never(), {})); });
  queue.close();
  queue.close();
  waits_for_room.join();
  waits_for_more.join();
  EXPECT_TRUE(queue.is_closed());
  EXPECT_EQ(queue.pop(), 7);
  EXPECT_TRUE(queue.wait_for_batch(never(), {})) << "at once";
}

TEST(BatchQueue, EveryBatchIsTakenOnce) {
  constexpr int kBatches = 300;
  constexpr int kTakers = 3;
  BatchQueue<int> queue(4);
  std::atomic<int> sum = 0;
  std::vector<std::thread> takers;
  for (int i = 0; i < kTakers; ++i) {
    takers.emplace_back([&] {
      while (queue.wait_for_batch(never(), {})) {
        const std::optional<int> batch = queue.pop();
        if (batch) {
          sum += *batch;
        } else if (queue.is_closed()) {
          return;
        }
      }
    });
  }
  for (int i = 1; i <= kBatches; ++i) {
    ASSERT_TRUE(queue.wait_for_room(never(), {}));
    queue.push(i);
  }
  queue.close();
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(sum, kBatches * (kBatches + 1) / 2);
}

TEST(BatchQueue, ACallbackIsCalledOnceWhenABatchIsReadyOrNeverWillBe) {
  BatchQueue<int> queue(1);
  int calls = 0;
  const auto count = [&] { ++calls; };
  queue.call_when_ready(count);
  EXPECT_EQ(calls, 0);
  queue.push(1);
  EXPECT_EQ(calls, 1);
  queue.push(2);
  EXPECT_EQ(calls, 1) << "it asked once";
  queue.call_when_ready(count);
  EXPECT_EQ(calls, 2) << "there is one";
  queue.pop();
  queue.pop();
  queue.call_when_ready(count);
  queue.close();
  EXPECT_EQ(calls, 3);
}

TEST(BatchQueue, ChangeWakesAWaitForAnotherCondition) {
  BatchQueue<int> queue(1);
  std::atomic<bool> predicate = false;
  std::thread waits(
      [&] { EXPECT_TRUE(queue.wait_until([&] { return predicate.load(); }, never(), {})); });
  predicate = true;
  queue.change();
  waits.join();
}

}  // namespace
}  // namespace reverie
