#include "reverie/client/prefetcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

// Makes the numbers 0, 1, ... up to `count`, then an error.
auto numbers(int count, std::atomic<int>& made) {
  return [count, &made](const WaitOptions&) -> Result<std::unique_ptr<int>> {
    const int number = made++;
    if (number == count) return deadline_exceeded("no more than {}", count);
    return std::make_unique<int>(number);
  };
}

// Waits for ever, as a sample from an empty table does.
Result<int> wait_for_ever(const WaitOptions& wait) {
  EXPECT_TRUE(test::eventually([&] { return wait.interrupted(); }));
  return cancelled("interrupted");
}

// Makes each number only once a caller waits for it.
struct Patient {
  std::atomic<int> begun{0};
  std::atomic<int> made{0};
  Prefetcher<int> prefetcher{1, [this](const WaitOptions&) -> Result<int> {
                               ++begun;
                               const auto since = prefetcher.wait_until_wanted();
                               if (!since) return cancelled("closed");
                               EXPECT_TRUE(prefetcher.wanted_since() == since);
                               return made++;
                             }};
};

TEST(Prefetcher, HandsOutValuesInOrderAndThenTheError) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(3, numbers(100, made));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*prefetcher.next({}).value(), i);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(prefetcher.next({}).status().message(), "no more than 100") << "time after time";
  }
  EXPECT_EQ(made, 101) << "the thread has stopped";
}

TEST(Prefetcher, AThreadThatCannotStartEndsThoseBeforeItAndThrows) {
  constexpr std::size_t kThreads = 64;
  std::vector<Prefetcher<int>::Make> makes(kThreads, wait_for_ever);
  makes[0] = [](const WaitOptions& wait) {
    const test::NoNewThreads none;
    return wait_for_ever(wait);
  };
  // Again, should all threads have been started before the first one ran.
  EXPECT_TRUE(test::eventually([&] {
    try {
      const Prefetcher<int> whole(kThreads, makes);
      return false;
    } catch (const std::system_error&) {
      return true;
    }
  }));
}

TEST(Prefetcher, NextNowTakesAReadyValueWithoutWaiting) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(3, numbers(100, made));
  for (int i = 0; i < 100; ++i) {
    std::optional<std::unique_ptr<int>> ready;
    ASSERT_TRUE(test::eventually([&] { return (ready = prefetcher.next_now()).has_value(); }));
    EXPECT_EQ(**ready, i);
  }
  EXPECT_EQ(prefetcher.next({}).status().message(), "no more than 100");
  EXPECT_FALSE(prefetcher.next_now().has_value());
}

TEST(Prefetcher, MakesAtMostOneMoreThanTheQueueHolds) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(2, numbers(1'000, made));
  for (int taken = 1; taken <= 50; ++taken) {
    EXPECT_TRUE(prefetcher.next({}).ok());
    EXPECT_LE(made, taken + 2 + 1);
  }
}

TEST(Prefetcher, WithZeroDepthOnlyAwaitedValuesAreMade) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(0, numbers(1'000, made));
  EXPECT_EQ(made, 0);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(*prefetcher.next({}).value(), i);
    EXPECT_EQ(made, i + 1);
  }
  EXPECT_TRUE(prefetcher.close().empty());
}

TEST(Prefetcher, CloseReturnsTheValuesNotTaken) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(3, numbers(1'000, made));
  EXPECT_EQ(*prefetcher.next({}).value(), 0);
  ASSERT_TRUE(test::eventually([&] { return made >= 4; }));
  const auto left = prefetcher.close();
  ASSERT_EQ(left.size(), static_cast<std::size_t>(made - 1));
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_EQ(*left[i], static_cast<int>(i) + 1);
  EXPECT_TRUE(prefetcher.close().empty());
}

TEST(Prefetcher, CloseEndsBothSidesOfAWait) {
  Prefetcher<int> prefetcher(1, wait_for_ever);
  std::vector<std::thread> users;
  users.reserve(3);
  for (int i = 0; i < 3; ++i) {
    users.emplace_back(
        [&] { EXPECT_EQ(prefetcher.next({}).status().code(), StatusCode::kCancelled); });
  }
  prefetcher.close();
  for (std::thread& user : users) user.join();
  prefetcher.close();
}

TEST(Prefetcher, AnInterruptedWaitDoesNotAffectLaterOnes) {
  std::atomic<bool> may_go_on{false};
  Prefetcher<int> prefetcher(1, [&](const WaitOptions& wait) -> Result<int> {
    EXPECT_TRUE(test::eventually([&] { return may_go_on || wait.interrupted(); }));
    return 7;
  });
  WaitOptions wait;
  wait.interrupted = [] { return true; };
  EXPECT_EQ(prefetcher.next(wait).status().message(), "interrupted");
  may_go_on = true;
  EXPECT_EQ(prefetcher.next({}).value(), 7);
}

TEST(Prefetcher, SeveralThreadsMakeEachValueOnceAndThenAllEnd) {
  std::atomic<int> made{0};
  const auto make = [&](const WaitOptions&) -> Result<int> {
    const int number = made++;
    if (number >= 100) return out_of_range("no more than 100");
    return number;
  };
  Prefetcher<int> prefetcher(2, std::vector<Prefetcher<int>::Make>(3, make));
  std::vector<int> seen;
  seen.reserve(100);
  for (int i = 0; i < 100; ++i) seen.push_back(prefetcher.next({}).value());
  std::ranges::sort(seen);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(prefetcher.next({}).status().message(), "no more than 100");
  EXPECT_EQ(made, 103);
}

TEST(Prefetcher, AFailureInOneThreadEndsTheWaitsOfTheOthers) {
  const std::vector<Prefetcher<int>::Make> makes = {
      wait_for_ever, [](const WaitOptions&) -> Result<int> { return not_found("no table"); }};
  Prefetcher<int> prefetcher(2, makes);
  EXPECT_EQ(prefetcher.next({}).status().message(), "no table");
}

TEST(Prefetcher, AMakeMayWaitForACaller) {
  Patient patient;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(test::eventually([&] { return patient.begun == i + 1; }));
    EXPECT_EQ(patient.made, i) << "no caller waits";
    EXPECT_FALSE(patient.prefetcher.wanted_since().has_value());
    EXPECT_EQ(patient.prefetcher.next({}).value(), i);
  }
  ASSERT_TRUE(test::eventually([&] { return patient.begun == 21; }));
  patient.prefetcher.close();
  EXPECT_EQ(patient.made, 20);
}

TEST(Prefetcher, AValueThatTimesOutUnawaitedIsMadeAgain) {
  std::atomic<int> calls{0};
  std::atomic<bool> may_make{false};
  const auto make = [&](const WaitOptions& wait) -> Result<int> {
    if (++calls < 5) return deadline_exceeded("late");
    EXPECT_TRUE(test::eventually([&] { return may_make || wait.interrupted(); }));
    if (calls == 5) return 7;
    return deadline_exceeded("late again");
  };
  Prefetcher<int> prefetcher(1, std::vector<Prefetcher<int>::Make>(1, make), true);
  // The first four calls are late, which the prefetcher ignores.
  ASSERT_TRUE(test::eventually([&] { return calls >= 5; }));
  may_make = true;
  EXPECT_EQ(prefetcher.next({}).value(), 7);
  EXPECT_EQ(prefetcher.next({}).status().message(), "late again");
}

TEST(Prefetcher, OnlyACallerThatHasWaitedSinceBeforeItEndsTheStreamByATimeout) {
  std::atomic<int> calls{0};
  std::optional<Prefetcher<int>> prefetcher;
  const auto make = [&](const WaitOptions& wait) -> Result<int> {
    if (++calls > 2) return deadline_exceeded("late again");
    EXPECT_TRUE(test::eventually(
        [&] { return calls == 2 || prefetcher->wanted_since() || wait.interrupted(); }));
    if (calls == 2) return 7;
    return deadline_exceeded("late");
  };
  prefetcher.emplace(1, std::vector<Prefetcher<int>::Make>(1, make), true, /*pauses=*/1);
  prefetcher->resume();
  ASSERT_TRUE(test::eventually([&] { return calls == 1; }));
  EXPECT_EQ(prefetcher->next({}).value(), 7);
  EXPECT_EQ(prefetcher->next({}).status().message(), "late again");
}

// As a pipeline of tf.data does.
TEST(Prefetcher, ACallerThatPollsHasWaitedSinceItsFirstCall) {
  Prefetcher<int> prefetcher(1, std::vector<Prefetcher<int>::Make>(1, wait_for_ever), true);
  WaitOptions poll;
  poll.interrupted = [] { return true; };
  const TimePoint begin = Clock::system().now();
  EXPECT_EQ(prefetcher.next(poll).status().code(), StatusCode::kCancelled);
  const TimePoint end = Clock::system().now();
  poll.interrupted = [&] {
    const auto since = prefetcher.wanted_since();
    EXPECT_TRUE(since && *since >= begin && *since <= end);
    return true;
  };
  EXPECT_EQ(prefetcher.next(poll).status().code(), StatusCode::kCancelled);
}

TimePoint soon() {
  return Clock::system().now() + std::chrono::seconds(60);
}

TEST(Prefetcher, APauseGivesWhatWasNotTakenAndMakesMoreAfterIt) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(3, numbers(100, made));
  EXPECT_EQ(*prefetcher.next({}).value(), 0);
  prefetcher.begin_pause();
  ASSERT_TRUE(prefetcher.wait_until_still(soon()));
  const auto unused = prefetcher.take_paused();
  for (std::size_t i = 0; i < unused.size(); ++i) {
    EXPECT_EQ(*unused[i], static_cast<int>(i) + 1) << "in order";
  }
  const int before = made;
  EXPECT_EQ(before, static_cast<int>(unused.size()) + 1);
  EXPECT_FALSE(prefetcher.next_now().has_value());
  WaitOptions brief;
  int asked = 0;
  brief.interrupted = [&] { return ++asked > 1; };
  EXPECT_EQ(prefetcher.next(brief).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(made, before) << "nothing is made in a pause";
  prefetcher.resume();
  EXPECT_EQ(*prefetcher.next({}).value(), before);
}

TEST(Prefetcher, APauseInterruptsAMakeThatIsCalledAgainAfterTheLastOfThem) {
  std::atomic<int> calls{0};
  Prefetcher<int> prefetcher(1, [&](const WaitOptions& wait) -> Result<int> {
    if (++calls == 1) return wait_for_ever(wait);
    return 7;
  });
  ASSERT_TRUE(test::eventually([&] { return calls == 1; }));
  prefetcher.begin_pause();
  prefetcher.begin_pause();
  ASSERT_TRUE(prefetcher.wait_until_still(soon()));
  prefetcher.resume();
  EXPECT_TRUE(prefetcher.take_paused().empty());
  EXPECT_EQ(calls, 1);
  prefetcher.resume();
  EXPECT_EQ(prefetcher.next({}).value(), 7);
}

TEST(Prefetcher, AMakeThatDoesNotEndInTimeKeepsWhatItMakes) {
  std::atomic<bool> may_end = false;
  std::atomic<bool> has_begun = false;
  Prefetcher<int> prefetcher(1, [&](const WaitOptions&) -> Result<int> {
    has_begun = true;
    EXPECT_TRUE(test::eventually([&] { return may_end.load(); }));
    return 7;
  });
  ASSERT_TRUE(test::eventually([&] { return has_begun.load(); }));
  prefetcher.begin_pause();
  EXPECT_FALSE(prefetcher.wait_until_still(Clock::system().now()));
  prefetcher.resume();
  may_end = true;
  EXPECT_EQ(prefetcher.next({}).value(), 7);
}

TEST(Prefetcher, APauseTakesNothingThatWouldNotBeMadeAgain) {
  std::atomic<int> made{0};
  Prefetcher<std::unique_ptr<int>> prefetcher(9, numbers(2, made));
  ASSERT_TRUE(test::eventually([&] { return made == 3; }));
  prefetcher.begin_pause();
  ASSERT_TRUE(prefetcher.wait_until_still(soon()));
  EXPECT_TRUE(prefetcher.take_paused().empty());
  prefetcher.resume();
  EXPECT_EQ(*prefetcher.next({}).value(), 0);
  EXPECT_EQ(*prefetcher.next({}).value(), 1);
  EXPECT_EQ(prefetcher.next({}).status().message(), "no more than 2");
}

TEST(Prefetcher, APauseGivesWhatWasNotTakenThoughAllIsMade) {
  std::atomic<int> left{4};
  std::atomic<int> ends{0};
  const auto make = [&](const WaitOptions&) -> Result<int> {
    const int number = left--;
    if (number > 0) return number;
    ++left;
    ++ends;
    return out_of_range("all are made");
  };
  Prefetcher<int> prefetcher(2, std::vector<Prefetcher<int>::Make>(2, make));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(prefetcher.next({}).ok());
  ASSERT_TRUE(test::eventually([&] { return ends >= 1; }));
  prefetcher.begin_pause();
  ASSERT_TRUE(prefetcher.wait_until_still(soon()));
  EXPECT_EQ(prefetcher.take_paused().size(), 1u);
  ++left;  // as it was handed back
  prefetcher.resume();
  EXPECT_TRUE(prefetcher.next({}).ok());
  EXPECT_EQ(prefetcher.next({}).status().code(), StatusCode::kOutOfRange);
}

TEST(Prefetcher, MayBeginInAPause) {
  std::atomic<int> made{0};
  Prefetcher<int> prefetcher(
      3, [&](const WaitOptions&) -> Result<int> { return made++; }, /*pauses=*/1);
  EXPECT_TRUE(prefetcher.wait_until_still(soon()));
  EXPECT_EQ(made, 0);
  prefetcher.resume();
  EXPECT_EQ(prefetcher.next({}).value(), 0);
}

}  // namespace
}  // namespace reverie
