#include "reverie/base/log_queue.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

std::vector<std::string> texts(const std::vector<LogQueue::Line>& lines) {
  std::vector<std::string> found;
  for (const LogQueue::Line& line : lines) found.push_back(line.text);
  return found;
}

// Takes what another test has left.
class LogQueueOfThisProcess : public ::testing::Test {
 protected:
  LogQueueOfThisProcess() { LogQueue::here().take(); }
};

TEST_F(LogQueueOfThisProcess, HandsOutEachLineOnceAndInOrder) {
  LogQueue& queue = LogQueue::here();
  queue.add(LogQueue::kWarning, "a");
  queue.add(LogQueue::kError, "b");
  const auto lines = queue.take();
  EXPECT_EQ(texts(lines), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(lines[1].level, LogQueue::kError);
  EXPECT_TRUE(queue.take().empty());
}

TEST_F(LogQueueOfThisProcess, IsBoundedAndCountsWhatItDrops) {
  LogQueue& queue = LogQueue::here();
  for (std::size_t i = 0; i < LogQueue::kWaitingMax + 3; ++i) queue.add(LogQueue::kInfo, "x");
  const auto lines = queue.take();
  ASSERT_EQ(lines.size(), LogQueue::kWaitingMax + 1);
  EXPECT_EQ(lines.back().text, "3 lines were dropped");
  queue.add(LogQueue::kInfo, "y");
  EXPECT_EQ(texts(queue.take()), std::vector<std::string>{"y"});
}

TEST_F(LogQueueOfThisProcess, KnowsWhichLevelsAreWanted) {
  EXPECT_FALSE(LogQueue::wants(LogQueue::kInfo));
  LogQueue::want(LogQueue::kInfo);
  EXPECT_TRUE(LogQueue::wants(LogQueue::kInfo));
  EXPECT_FALSE(LogQueue::wants(LogQueue::kDebug));
  LogQueue::want(LogQueue::kError + 1);
}

TEST_F(LogQueueOfThisProcess, WakesTheThreadThatWaitsForLines) {
  LogQueue& queue = LogQueue::here();
  std::vector<LogQueue::Line> taken;
  std::thread waiting([&] {
    queue.wait();
    taken = queue.take();
  });
  queue.add(LogQueue::kInfo, "x");
  waiting.join();
  EXPECT_EQ(texts(taken), std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace reverie
