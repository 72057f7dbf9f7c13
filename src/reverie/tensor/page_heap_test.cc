#include "reverie/tensor/page_heap.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/tensor/map_memory.h"
#include "tests/support/resident.h"

namespace reverie {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kStride = 1024;

// A run whose pages are marked with a number, so that an overlapping run would be noticed.
struct Taken {
  std::byte* begin;
  std::size_t size_bytes;
  unsigned char mark;
};

Taken take(PageHeap& heap, std::size_t size_bytes, std::uint64_t mark) {
  const Taken run{heap.take(size_bytes), size_bytes, static_cast<unsigned char>(mark)};
  for (std::size_t i = 0; i < size_bytes; i += kStride) run.begin[i] = std::byte{run.mark};
  return run;
}

bool is_whole(const Taken& run) {
  for (std::size_t i = 0; i < run.size_bytes; i += kStride) {
    if (run.begin[i] != std::byte{run.mark}) return false;
  }
  return true;
}

TEST(PageHeap, RunsInAnyOrderNeverOverlap) {
  for (const std::size_t unit : {kPage, 16 * kPage}) {
    PageHeap heap(unit);
    Random random(std::uint64_t{5});
    std::vector<Taken> taken;
    std::size_t used_bytes = 0;
    for (int step = 0; step < 2000; ++step) {
      if (taken.size() < 100 && random.below(5) < 3) {
        taken.push_back(take(heap, unit * (1 + random.below(40)), random.next()));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken.back().begin) % unit, 0u);
        used_bytes += taken.back().size_bytes;
      } else if (!taken.empty()) {
        std::swap(taken[random.below(taken.size())], taken.back());
        ASSERT_TRUE(is_whole(taken.back()));
        used_bytes -= taken.back().size_bytes;
        heap.give_back(taken.back().begin, taken.back().size_bytes);
        taken.pop_back();
      }
      const PageHeap::Use use = heap.use();
      ASSERT_EQ(use.used_bytes, used_bytes);
      ASSERT_LE(use.used_bytes + use.warm_bytes, use.mapped_bytes);
    }
    for (const Taken& run : taken) EXPECT_TRUE(is_whole(run));
  }
}

TEST(PageHeap, AFreedRunIsTheNextOneTaken) {
  PageHeap heap(kPage);
  std::byte* const first = heap.take(50 * kPage);
  std::byte* const wall = heap.take(kPage);
  heap.give_back(first, 50 * kPage);
  EXPECT_EQ(heap.take(50 * kPage), first);
  heap.give_back(first, 50 * kPage);
  EXPECT_EQ(heap.take(20 * kPage), first);
  EXPECT_EQ(heap.take(30 * kPage), first + 20 * kPage);
  heap.give_back(wall, kPage);
}

TEST(PageHeap, AllButABoundedRestIsReturnedToTheSystem) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "others' memory is resident too";
  PageHeap heap(kPage);
  const double before = testing::resident_mib();
  std::vector<Taken> taken;
  Random random(std::uint64_t{6});
  for (std::size_t bytes = 0; bytes < 100 * kMiB; bytes += taken.back().size_bytes) {
    taken.push_back(take(heap, kPage * (1 + random.below(32)), 7));
  }
  EXPECT_GT(testing::resident_mib() - before, 95);
  // Freed in random order, so that free runs stay short for long; they must be returned too.
  for (std::size_t i = taken.size(); i > 1; --i) std::swap(taken[i - 1], taken[random.below(i)]);
  std::size_t left_bytes = heap.use().used_bytes;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    heap.give_back(taken[i].begin, taken[i].size_bytes);
    left_bytes -= taken[i].size_bytes;
    if (i % 256 != 0) continue;
    const double held = testing::resident_mib() - before;
    const double used = static_cast<double>(left_bytes) / testing::kMiB;
    ASSERT_LE(held, used + used / 16 + 6) << i << " of " << taken.size() << " runs are back";
  }
  EXPECT_EQ(heap.use().used_bytes, 0u);
}

TEST(PageHeap, AnEntirelyColdRegionIsUnmapped) {
  PageHeap heap(kPage);
  std::byte* const one = heap.take(100 * kMiB);
  std::byte* const other = heap.take(100 * kMiB);
  EXPECT_GE(heap.use().mapped_bytes, 200 * kMiB);
  heap.give_back(one, 100 * kMiB);
  heap.give_back(other, 100 * kMiB);
  EXPECT_LE(heap.use().mapped_bytes, 110 * kMiB) << "one of them has memory that is kept warm";
}

TEST(PageHeap, RecurringLargeRunsStayWarm) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "others' memory is resident too";
  PageHeap heap(kPage);
  std::byte* const first = heap.take(12 * kMiB);
  heap.give_back(first, 12 * kMiB);
  EXPECT_EQ(heap.use().warm_bytes, 12 * kMiB);
  EXPECT_EQ(heap.take(12 * kMiB), first);
  heap.give_back(first, 12 * kMiB);
  // Once all runs are short again, the bound for short runs applies.
  for (int i = 0; i < 1000; ++i) heap.give_back(heap.take(kPage), kPage);
  EXPECT_LE(heap.use().warm_bytes, 4 * kMiB);
}

TEST(PageHeap, ThreadsCanShareIt) {
  PageHeap heap(kPage);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&heap, t] {
      Random random(std::uint64_t{t});
      std::vector<Taken> taken;
      for (int i = 0; i < 500; ++i) {
        taken.push_back(take(heap, kPage * (1 + random.below(60)), t));
        if (taken.size() < 10) continue;
        EXPECT_TRUE(is_whole(taken.front()));
        heap.give_back(taken.front().begin, taken.front().size_bytes);
        taken.erase(taken.begin());
      }
      for (const Taken& run : taken) heap.give_back(run.begin, run.size_bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heap.use().used_bytes, 0u);
}

TEST(PageHeap, RunningOutOfMemoryReturnsNull) {
  PageHeap heap(kPage);
  EXPECT_EQ(heap.take(std::size_t{1} << 62), nullptr);
  EXPECT_NE(heap.take(kPage), nullptr);
}

}  // namespace
}  // namespace reverie
