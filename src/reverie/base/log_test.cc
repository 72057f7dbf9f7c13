#include "reverie/base/log.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"

namespace reverie {
namespace {

using Lines = std::vector<std::pair<LogLevel, std::string>>;

// Restores the process's sink after each test.
class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log_sink({}); }
};

TEST_F(Log, HandsEachLineToTheSink) {
  Lines lines;
  set_log_sink([&](LogLevel level, std::string_view text) { lines.emplace_back(level, text); });
  log_message(LogLevel::kError, "disk full");
  log_warning("{} items are lost", 3);
  EXPECT_EQ(lines,
            (Lines{{LogLevel::kError, "disk full"}, {LogLevel::kWarning, "3 items are lost"}}));
}

TEST_F(Log, WritesToStandardErrorWithoutASink) {
  set_log_sink([](LogLevel, std::string_view) {});
  set_log_sink({});
  ::testing::internal::CaptureStderr();
  log_message(LogLevel::kInfo, "a");
  log_message(LogLevel::kWarning, "b");
  log_message(LogLevel::kError, "c");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "reverie info: a\nreverie warning: b\nreverie error: c\n");
}

TEST_F(Log, ASinkMayLogAndMayReplaceItself) {
  Lines lines;
  set_log_sink([&](LogLevel, std::string_view text) {
    set_log_sink([&](LogLevel level, std::string_view inner) { lines.emplace_back(level, inner); });
    log_message(LogLevel::kInfo, std::string("inner ") + std::string(text));
  });
  log_message(LogLevel::kWarning, "outer");
  EXPECT_EQ(lines, (Lines{{LogLevel::kInfo, "inner outer"}}));
}

TEST_F(Log, CanBeUsedAndReplacedFromManyThreads) {
  Mutex mutex;
  int count = 0;
  const LogSink counting = [&](LogLevel, std::string_view) {
    MutexLock lock(mutex);
    ++count;
  };
  set_log_sink(counting);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        log_message(LogLevel::kInfo, "x");
        if (i % 100 == 0) set_log_sink(counting);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 2'000);
}

}  // namespace
}  // namespace reverie
