#include "reverie/base/mutex.h"

#include <deque>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Mutex, IsFourBytesLarge) {
  EXPECT_EQ(sizeof(Mutex), 4u);
}

// Whether the lock is free. The thread-safety analysis cannot follow try_lock()'s result.
bool is_free(Mutex& mutex) REVERIE_NO_THREAD_SAFETY_ANALYSIS {
  const bool taken = mutex.try_lock();
  if (taken) mutex.unlock();
  return taken;
}

TEST(Mutex, CannotBeLockedTwice) {
  Mutex mutex;
  EXPECT_TRUE(is_free(mutex));
  {
    MutexLock lock(mutex);
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(Mutex, AssertHeldPassesWhileItIsHeld) {
  Mutex mutex;
  MutexLock lock(mutex);
  mutex.assert_held();
}

TEST(MutexDeathTest, AssertHeldAbortsWhileItIsFree) {
  const Mutex mutex;
  EXPECT_DEATH(mutex.assert_held(), "invariant broken");
}

TEST(Mutex, LosesNoIncrementBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  Mutex mutex;
  int count = 0;  // not atomic on purpose: only the lock protects it
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(Mutex, WakesAThreadThatSleepsOnIt) {
  Mutex mutex;
  bool entered = false;
  mutex.lock();
  std::thread other([&] {
    MutexLock lock(mutex);
    entered = true;
  });
  // Long enough for the other thread to stop spinning in almost every run. In any case it must get
  // the lock after the unlock.
  for (int i = 0; i < 1'000; ++i) std::this_thread::yield();
  EXPECT_FALSE(entered);
  mutex.unlock();
  other.join();
  EXPECT_TRUE(entered);
}

// Producers and consumers with a queue of one: every hand-over waits on the condition.
TEST(CondVar, HandsEveryItemOverOnce) {
  constexpr int kItems = 2'000;
  Mutex mutex;
  CondVar changed;
  std::deque<int> queue;
  std::vector<int> taken;
  std::thread consumer([&] {
    for (int i = 0; i < kItems; ++i) {
      MutexLock lock(mutex);
      while (queue.empty()) changed.wait(mutex);
      taken.push_back(queue.front());
      queue.pop_front();
      changed.notify_all();
    }
  });
  for (int i = 0; i < kItems; ++i) {
    MutexLock lock(mutex);
    while (!queue.empty()) changed.wait(mutex);
    queue.push_back(i);
    changed.notify_all();
  }
  consumer.join();
  ASSERT_EQ(taken.size(), static_cast<std::size_t>(kItems));
  for (int i = 0; i < kItems; ++i) ASSERT_EQ(taken[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace reverie
