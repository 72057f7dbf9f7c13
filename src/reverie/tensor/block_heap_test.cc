#include "reverie/tensor/block_heap.h"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/tensor/block_memory.h"
#include "reverie/tensor/map_memory.h"
#include "tests/support/marked_block.h"
#include "tests/support/resident.h"

namespace reverie {
namespace {

using test::MarkedBlock;
using test::take_marked;

// Random sizes of all magnitudes, most of them small.
std::size_t some_size(Random& random) {
  return 1 + random.below(std::size_t{1} << (2 + random.below(15)));
}

TEST(BlockHeap, BlocksOfAnySizeAndOrderNeverOverlap) {
  BlockHeap heap;
  {
    Random random(std::uint64_t{3});
    std::vector<MarkedBlock> taken;
    for (int step = 0; step < 20'000; ++step) {
      if (taken.size() < 500 && random.below(5) < 3) {
        const std::size_t size = some_size(random);
        taken.push_back(take_marked(heap, size, random.next()));
        const auto address = reinterpret_cast<std::uintptr_t>(taken.back().buffer.data());
        EXPECT_EQ(address % (size >= 4096 ? 64 : 16), 0u);
      } else if (!taken.empty()) {
        std::swap(taken[random.below(taken.size())], taken.back());
        ASSERT_TRUE(taken.back().is_whole());
        taken.pop_back();
      }
    }
    for (const MarkedBlock& marked : taken) EXPECT_TRUE(marked.is_whole());
  }
}

TEST(BlockHeap, EverySizeGetsABlockThatIsLittleLarger) {
  for (std::size_t size = 1; size <= 50'000; ++size) {
    const std::size_t block = BlockHeap::block_bytes(size);
    ASSERT_GE(block, size);
    const std::size_t waste = size <= 128 ? 15 : size / 8;
    ASSERT_LE(block, size + waste) << size;
    ASSERT_EQ(BlockHeap::block_bytes(block), block)
        << "a size that fits a block belongs to its class";
  }
  EXPECT_EQ(BlockHeap::block_bytes(0), 0u);
  EXPECT_EQ(BlockHeap().allocate(0).value().size_bytes(), 0u);
}

// Compression allocates a large block each time and keeps a small copy: holes in the C heap.
TEST(BlockHeap, FreedLargeBlocksBesideSmallOnesLeaveNoHoles) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "others' memory is resident too";
  BlockHeap heap;
  const double before = testing::resident_mib();
  std::vector<MarkedBlock> stays;
  for (unsigned i = 0; i < 1000; ++i) {
    const MarkedBlock rows = take_marked(heap, 280'000 + i % 7 * 1000, i);
    stays.push_back(take_marked(heap, 100 + i % 2000, i));
  }
  // 1 MB is kept; 280 MB were allocated and freed.
  EXPECT_LE(testing::resident_mib() - before, 10);
}

// Fills the heap to a budget many times over: each new block frees the oldest, or random ones.
class Turnover {
 public:
  Turnover(BlockHeap& heap, std::size_t budget_bytes, bool is_random)
      : heap_(heap), budget_bytes_(budget_bytes), is_random_(is_random) {
    taken_.reserve(kCountMax);
    for (std::size_t i = 0; i < kCountMax; ++i) taken_.emplace_back();  // touches all its memory
    taken_.clear();
  }
  // Allocates blocks in this range of sizes, of twice the budget in total.
  void run(std::size_t size_min, std::size_t size_max) {
    for (std::size_t written = 0; written < 2 * budget_bytes_;) {
      const std::size_t size = size_min + random_.below(size_max - size_min);
      Buffer block = heap_.allocate(size).value();
      std::memset(block.data(), 1, size);
      written += size;
      used_bytes_ += BlockHeap::block_bytes(size);
      taken_.push_back(std::move(block));
      while (used_bytes_ > budget_bytes_) drop_one();
    }
  }

 private:
  static constexpr std::size_t kCountMax = 300'000;

  void drop_one() {
    Buffer& place = taken_[is_random_ ? begin_ + random_.below(taken_.size() - begin_) : begin_];
    used_bytes_ -= BlockHeap::block_bytes(place.size_bytes());
    std::swap(place, taken_[begin_]);
    taken_[begin_++] = Buffer();
    if (taken_.size() < kCountMax) return;
    taken_.erase(taken_.begin(), taken_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }

  BlockHeap& heap_;
  const std::size_t budget_bytes_;
  const bool is_random_;
  std::size_t used_bytes_ = 0;
  std::size_t begin_ = 0;
  std::vector<Buffer> taken_;
  Random random_{std::uint64_t{9}};
};

constexpr std::size_t kBudget = std::size_t{32} << 20;
constexpr double kHeld = 1.15 * 32 + 8;  // MiB

// Like a table that replaces its items for long, with sizes that change between small and large.
TEST(BlockHeap, TurnoverOfChangingSizesHoldsOnlyMemoryInUse) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "others' memory is resident too";
  BlockHeap heap;
  {
    Turnover turnover(heap, kBudget, /*is_random=*/false);
    const double before = testing::resident_mib();
    for (int phase = 0; phase < 6; ++phase) {
      const std::size_t size = std::size_t{300} << (phase * 3 % 8);
      turnover.run(size, 2 * size);
      EXPECT_LE(testing::resident_mib() - before, kHeld) << "phase " << phase;
    }
  }
  EXPECT_LE(heap.use().used_bytes + heap.use().kept_bytes, std::size_t{12} << 20);
}

TEST(BlockHeap, TurnoverInRandomOrderHoldsOnlyMemoryInUse) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "others' memory is resident too";
  for (const std::size_t size : {200, 3'000, 20'000, 200'000}) {
    BlockHeap heap;
    Turnover turnover(heap, kBudget, /*is_random=*/true);
    const double before = testing::resident_mib();
    for (int round = 0; round < 3; ++round) turnover.run(size, 2 * size);
    EXPECT_LE(testing::resident_mib() - before, kHeld) << "sizes from " << size;
  }
}

TEST(BlockHeap, ThreadsCanShareIt) {
  BlockHeap heap;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&heap, t] {
      Random random(std::uint64_t{t});
      std::vector<MarkedBlock> taken;
      for (int i = 0; i < 5000; ++i) {
        taken.push_back(take_marked(heap, some_size(random), t));
        if (taken.size() < 20) continue;
        EXPECT_TRUE(taken.front().is_whole());
        taken.erase(taken.begin());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A lock that a thread of the parent held at the fork must not block the child for ever.
TEST(BlockHeap, AForkedChildCanKeepUsingIt) {
  if (kIsAddressSanitized) {
    GTEST_SKIP() << "blocks are the sanitizer's, whose locks a forked child may find taken";
  }
  BlockHeap& heap = BlockHeap::shared();
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) {
      const MarkedBlock small = take_marked(heap, 100, 1);
      const MarkedBlock large = take_marked(heap, 100'000, 2);
    }
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // ends a child that hangs
      const bool is_right =
          take_marked(heap, 100, 3).is_whole() && take_marked(heap, 100'000, 4).is_whole();
      _exit(is_right ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (status != 0) break;
  }
  is_over = true;
  other.join();
}

TEST(BlockHeap, RunningOutOfMemoryIsAnError) {
  EXPECT_EQ(BlockHeap::shared().allocate(~std::size_t{0} - 4096).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(BlockHeap, ContainersAndObjectsAreAllocatedInIt) {
  struct Thing : OnBlockHeap {
    std::array<int, 30> numbers{};
  };
  constexpr std::size_t kThings = 30'000;
  // Threads of earlier tests may free their last blocks meanwhile.
  constexpr std::size_t kOthers = std::size_t{512} << 10;
  const std::size_t before = BlockHeap::shared().use().used_bytes;
  std::vector<Thing*> things;
  for (std::size_t i = 0; i < kThings; ++i) things.push_back(new Thing);
  ByteBlock bytes(1 << 20);
  if (!kIsAddressSanitized) {
    EXPECT_GE(BlockHeap::shared().use().used_bytes + kOthers,
              before + kThings * sizeof(Thing) + (1 << 20));
  }
  for (Thing* thing : things) delete thing;
}

}  // namespace
}  // namespace reverie
