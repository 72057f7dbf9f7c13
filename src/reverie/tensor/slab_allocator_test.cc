#include "reverie/tensor/slab_allocator.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/support/marked_block.h"

namespace reverie {
namespace {

using test::MarkedBlock;
using test::take_marked;

TEST(SlabAllocator, BlocksInAnyOrderNeverOverlap) {
  for (const std::size_t block : {std::size_t{1}, std::size_t{100}, std::size_t{5000},
                                  std::size_t{300'000}, std::size_t{3'000'000}}) {
    const auto slabs = SlabAllocator::make(block);
    Random random(std::uint64_t{3});
    std::vector<MarkedBlock> taken;
    for (int step = 0; step < 300; ++step) {
      if (taken.size() < 20 && random.below(5) < 3) {
        taken.push_back(take_marked(*slabs, 1 + random.below(block), random.next()));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken.back().buffer.data()) % 64, 0u);
      } else if (!taken.empty()) {
        const std::size_t i = random.below(taken.size());
        ASSERT_TRUE(taken[i].is_whole());
        std::swap(taken[i], taken.back());
        taken.pop_back();
      }
    }
    for (const MarkedBlock& marked : taken) EXPECT_TRUE(marked.is_whole());
  }
}

TEST(SlabAllocator, MemoryPopulatedAheadHoldsBlocksLikeAnyOther) {
  constexpr std::size_t kBlock = 100'000;
  const auto slabs = SlabAllocator::make(kBlock);
  std::vector<MarkedBlock>
      taken;  // 60 MB, enough for small slabs, large slabs, and the change between them
  std::atomic<bool> is_over = false;
  std::thread populates([&] {
    while (!is_over) slabs->populate_ahead();
  });
  for (unsigned i = 0; i < 600; ++i) taken.push_back(take_marked(*slabs, kBlock, i));
  is_over = true;
  populates.join();
  for (const MarkedBlock& marked : taken) EXPECT_TRUE(marked.is_whole());
}

TEST(SlabAllocator, AFreedBlockIsTheNextOneAllocated) {
  const auto slabs = SlabAllocator::make(1000);
  std::set<const std::byte*> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(slabs->allocate(1000).value().data());
  EXPECT_EQ(seen.size(), 1u);
}

TEST(SlabAllocator, BuffersOutliveTheHolderOfTheAllocator) {
  auto slabs = SlabAllocator::make(100);
  std::vector<MarkedBlock> taken;
  for (unsigned i = 0; i < 2000; ++i) taken.push_back(take_marked(*slabs, 100, i));
  const std::weak_ptr<SlabAllocator> alive = slabs;
  slabs.reset();
  EXPECT_FALSE(alive.expired());
  for (const MarkedBlock& marked : taken) EXPECT_TRUE(marked.is_whole());
  taken.clear();
  EXPECT_TRUE(alive.expired());
}

TEST(SlabAllocator, ThreadsCanShareIt) {
  const auto slabs = SlabAllocator::make(200);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&slabs, t] {
      std::vector<MarkedBlock> taken;
      for (int i = 0; i < 2000; ++i) {
        taken.push_back(take_marked(*slabs, 200, t));
        if (taken.size() > 10) {
          EXPECT_TRUE(taken.front().is_whole());
          taken.erase(taken.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SlabAllocator, RunningOutOfMemoryIsAnError) {
  const auto slabs = SlabAllocator::make(~std::size_t{0} - 4096);
  EXPECT_EQ(slabs->allocate(1).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace reverie
