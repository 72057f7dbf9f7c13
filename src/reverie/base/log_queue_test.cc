#include "reverie/base/log_queue.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

using QueuedLines = std::vector<std::pair<int, std::string>>;

// The queue is the process's, so each test takes what it has added.
class LogQueueTest : public ::testing::Test {
 protected:
  void SetUp() override { LogQueue::want(LogQueue::kInfo); }
  void TearDown() override { LogQueue::want(LogQueue::kInfo + 100); }

  LogQueue& queue_ = LogQueue::here();
};

TEST_F(LogQueueTest, KeepsLinesOfTheWantedLevelsInOrder) {
  queue_.add(LogQueue::kInfo, "connected");
  queue_.add(LogQueue::kDebug, "tried");
  LogQueue::want(LogQueue::kDebug);
  queue_.add(LogQueue::kDebug, "tried again");
  EXPECT_EQ(queue_.take(), (QueuedLines{{20, "connected"}, {10, "tried again"}}));
}

TEST_F(LogQueueTest, DropsLinesBeyondItsBoundAndSaysHowMany) {
  for (std::size_t i = 0; i < LogQueue::kWaitingMax + 3; ++i) {
    queue_.add(LogQueue::kInfo, std::to_string(i));
  }
  const QueuedLines taken = queue_.take();
  ASSERT_EQ(taken.size(), LogQueue::kWaitingMax + 1);
  EXPECT_EQ(taken.front().second, "0");
  EXPECT_EQ(taken.back().second, "3 lines were dropped");
  queue_.add(LogQueue::kInfo, "after");
  EXPECT_EQ(queue_.take(), (QueuedLines{{20, "after"}})) << "the count begins again";
}

TEST_F(LogQueueTest, WakesTheThreadThatWaits) {
  QueuedLines taken;
  std::thread reader([&] { taken = queue_.take(); });
  queue_.add(LogQueue::kInfo, "here");
  reader.join();
  EXPECT_EQ(taken, (QueuedLines{{20, "here"}}));
}

}  // namespace
}  // namespace reverie
