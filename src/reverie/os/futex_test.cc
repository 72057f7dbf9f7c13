#include "reverie/os/futex.h"

#include <thread>

#include <gtest/gtest.h>

namespace reverie {
namespace {

constexpr Duration kWakeLimit = std::chrono::seconds(30);

TEST(Futex, TwoThreadsPassAWordBackAndForth) {
  FutexWord word{0};
  constexpr std::uint32_t kTurns = 20'000;
  const auto play = [&word](std::uint32_t parity) {
    while (true) {
      const std::uint32_t seen = word.load();
      if (seen >= kTurns) break;
      if (seen % 2 == parity) {
        word.store(seen + 1);
        futex_wake_all(word);
      } else {
        futex_wait(word, seen, kWakeLimit);
      }
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(word.load(), kTurns);
}

TEST(Futex, AWaitEndsWhenTheTimeIsUp) {
  const FutexWord word{5};
  const TimePoint begin = Clock::system().now();
  futex_wait(word, 5, std::chrono::milliseconds(5));
  EXPECT_GE(Clock::system().now() - begin, std::chrono::milliseconds(4));
  futex_wait(word, 5, Duration(0));
  futex_wait(word, 5, Duration(-1));
}

TEST(Futex, AWaitReturnsAtOnceIfTheWordDiffers) {
  const FutexWord word{5};
  const TimePoint begin = Clock::system().now();
  futex_wait(word, 4, kWakeLimit);
  EXPECT_TRUE(spin_while_equal(word, 4, kWakeLimit));
  EXPECT_LT(Clock::system().now() - begin, std::chrono::seconds(10));
  EXPECT_FALSE(spin_while_equal(word, 5, std::chrono::microseconds(10)));
}

}  // namespace
}  // namespace reverie
