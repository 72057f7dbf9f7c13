#include "reverie/base/spares.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

std::atomic<int> alive{0};

struct Counted {
  Counted() { ++alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
  int user = 0;
};

TEST(Spares, AThreadGetsBackWhatItGave) {
  Spares<Counted> spares;
  std::unique_ptr<Counted> one = spares.take();
  const Counted* const given = one.get();
  spares.give_back(std::move(one));
  EXPECT_EQ(spares.take().get(), given);
}

TEST(Spares, AllThatWereGivenAreFreedAtTheEnd) {
  {
    Spares<Counted> spares;
    std::vector<std::unique_ptr<Counted>> taken;
    for (int i = 0; i < 100; ++i) taken.push_back(spares.take());
    EXPECT_EQ(alive, 100);
    for (auto& one : taken) spares.give_back(std::move(one));
    EXPECT_LT(alive, 100);  // more than are kept
    EXPECT_GT(alive, 0);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Spares, NoTwoThreadsHaveOneAtTheSameTime) {
  Spares<Counted> spares;
  std::atomic<bool> is_shared{false};
  std::vector<std::thread> threads;
  for (int thread = 1; thread <= 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 20'000; ++i) {
        std::unique_ptr<Counted> first = spares.take();
        std::unique_ptr<Counted> second = spares.take();
        first->user = second->user = thread;
        if (first->user != thread || second->user != thread || first == second) is_shared = true;
        spares.give_back(std::move(second));
        spares.give_back(std::move(first));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(is_shared);
}

}  // namespace
}  // namespace reverie
