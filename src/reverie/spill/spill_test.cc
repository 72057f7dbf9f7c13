#include "reverie/spill/spill.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "reverie/base/lost_bytes.h"
#include "reverie/base/random.h"
#include "tests/support/resident.h"

namespace reverie::spill {
namespace {

// The current folder, which is usually on a disk; the folder of temporary files often is not.
std::string disk() {
  return std::filesystem::current_path().string();
}

std::shared_ptr<Spill> spill_of(std::int64_t memory_bytes = kMemoryBytesMin) {
  auto opened = Spill::open({disk(), memory_bytes});
  return opened.ok() ? *opened : nullptr;
}

#define SKIP_WITHOUT_A_DISK(spill)                                             \
  if (testing::kIsSanitized) GTEST_SKIP() << "the sanitizer has another heap"; \
  if ((spill) == nullptr)                                                      \
  GTEST_SKIP() << "no disk here: " << Spill::open({disk()}).status().to_string()

void fill(Buffer& buffer, std::uint64_t number) {
  Random random(number);
  for (std::size_t at = 0; at + 8 <= buffer.size_bytes(); at += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(buffer.data() + at, &word, 8);
  }
}

bool holds(const Buffer& buffer, std::uint64_t number) {
  Random random(number);
  for (std::size_t at = 0; at + 8 <= buffer.size_bytes(); at += 8) {
    const std::uint64_t word = random.next();
    if (std::memcmp(buffer.data() + at, &word, 8) != 0) return false;
  }
  return true;
}

TEST(Spill, DataTenTimesLargerThanItsMemoryIsReadBackUnchanged) {
  const auto spill = spill_of();
  SKIP_WITHOUT_A_DISK(spill);
  const std::size_t before = testing::resident_bytes();
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 4'000; ++i) {
    buffers.push_back(spill->allocate(40'000).value());
    fill(buffers.back(), i);
    ASSERT_LE(spill->resident_bytes(), kMemoryBytesMin + 40'960);
  }
  EXPECT_GE(spill->file_bytes(), 160'000'000);
  // The kernel's figure, which includes the spill's bookkeeping and the test's memory.
  const auto grown = [&] { return static_cast<double>(testing::resident_bytes() - before); };
  EXPECT_LE(grown(), 1.5 * static_cast<double>(kMemoryBytesMin) + 8 * testing::kMiB);
  Random random(1);
  for (int batch = 0; batch < 40; ++batch) {
    std::vector<std::size_t> drawn;
    std::vector<ChunkMemory::Range> ranges;
    for (int i = 0; i < 64; ++i) {
      drawn.push_back(random.below(buffers.size()));
      ranges.push_back(buffers[drawn.back()].bytes());
    }
    spill->prefetch(ranges);
    for (const std::size_t i : drawn) ASSERT_TRUE(holds(buffers[i], i)) << i;
    ASSERT_LE(spill->resident_bytes(), kMemoryBytesMin);
  }
  EXPECT_LE(grown(), 1.5 * static_cast<double>(kMemoryBytesMin) + 8 * testing::kMiB);
  // Reading without prefetching works too.
  for (std::size_t i = 0; i < buffers.size(); i += 9) ASSERT_TRUE(holds(buffers[i], i)) << i;
  buffers.clear();
  EXPECT_LE(spill->file_bytes(), 40'000'000) << "what is free from end to end goes back";
}

TEST(Spill, EachGroupStaysWithinItsOwnBound) {
  const auto opened = Spill::open({disk(), std::nullopt});
  const auto spill = opened.ok() ? *opened : nullptr;
  SKIP_WITHOUT_A_DISK(spill);
  EXPECT_EQ(spill->set_bound(2, kMemoryBytesMin - 1).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(spill->set_bound(2, kMemoryBytesMin).ok());
  ASSERT_TRUE(spill->set_bound(3, 2 * kMemoryBytesMin).ok());
  std::vector<Buffer> buffers;
  const auto group_of = [](std::uint64_t i) { return static_cast<ChunkMemory::Group>(1 + i % 3); };
  for (std::uint64_t i = 0; i < 4'000; ++i) {
    buffers.push_back(spill->allocate(40'000).value());
    fill(buffers.back(), i);
    const ChunkMemory::Range range = buffers.back().bytes();
    spill->assign({&range, 1}, group_of(i));
    spill->shrink();
    ASSERT_LE(spill->resident_bytes(2), kMemoryBytesMin);
    ASSERT_LE(spill->resident_bytes(3), 2 * kMemoryBytesMin);
  }
  // A third of the 160 MB belongs to no bounded group and stays in memory.
  const std::int64_t bounded = spill->resident_bytes(2) + spill->resident_bytes(3);
  EXPECT_GE(spill->resident_bytes() - bounded, 53'000'000);
  EXPECT_GE(bounded, 2 * kMemoryBytesMin) << "more than half of what they may have";
  Random random(1);
  for (int batch = 0; batch < 40; ++batch) {
    std::vector<std::size_t> drawn;
    std::vector<ChunkMemory::Range> ranges;
    for (int i = 0; i < 64; ++i) {
      drawn.push_back(random.below(buffers.size()));
      ranges.push_back(buffers[drawn.back()].bytes());
    }
    spill->prefetch(ranges);
    for (const std::size_t i : drawn) ASSERT_TRUE(holds(buffers[i], i)) << i;
    ASSERT_LE(spill->resident_bytes(2), kMemoryBytesMin);
    ASSERT_LE(spill->resident_bytes(3), 2 * kMemoryBytesMin);
  }
  // A range that changes its group counts for the new one at once.
  const std::int64_t before = spill->resident_bytes(3);
  std::int64_t moved = 0;
  for (std::size_t i = 0; moved < 1'000'000; i += 3) {
    const ChunkMemory::Range range = buffers[i].bytes();
    spill->assign({&range, 1}, 3);
    moved += 40'000;
  }
  EXPECT_GE(spill->resident_bytes(3), before + 1'000'000);
  buffers.clear();
  EXPECT_LE(spill->file_bytes(), 40'000'000);
}

TEST(Spill, SpaceOfFreedBuffersOfAnySizeIsReused) {
  const auto spill = spill_of();
  SKIP_WITHOUT_A_DISK(spill);
  Random random(7);
  std::vector<std::pair<Buffer, std::uint64_t>> buffers;
  std::size_t bytes = 0;
  std::int64_t most = 0;
  for (std::uint64_t step = 0; step < 8'000; ++step) {
    if (bytes < 32'000'000 && random.below(5) > 0) {
      const std::size_t size = 8 * (1 + random.below(random.below(10) == 0 ? 30'000 : 500));
      buffers.emplace_back(spill->allocate(size).value(), step);
      fill(buffers.back().first, step);
      bytes += size;
    } else if (!buffers.empty()) {
      std::swap(buffers[random.below(buffers.size())], buffers.back());
      ASSERT_TRUE(holds(buffers.back().first, buffers.back().second)) << step;
      bytes -= buffers.back().first.size_bytes();
      buffers.pop_back();
    }
    most = std::max(most, spill->file_bytes());
  }
  for (const auto& [buffer, number] : buffers) ASSERT_TRUE(holds(buffer, number));
  EXPECT_LE(most, 32'000'000 * 2);
}

TEST(Spill, ThreadsThatAllocateReadAndFreeFindTheirOwnData) {
  const auto spill = spill_of();
  SKIP_WITHOUT_A_DISK(spill);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Random random(thread);
      std::vector<std::pair<Buffer, std::uint64_t>> buffers;
      for (std::uint64_t step = 0; step < 400; ++step) {
        const std::uint64_t number = thread * 1'000'000 + step;
        buffers.emplace_back(spill->allocate(8 * (1 + random.below(10'000))).value(), number);
        fill(buffers.back().first, number);
        const auto& [buffer, known] = buffers[random.below(buffers.size())];
        const ChunkMemory::Range range = buffer.bytes();
        spill->prefetch({&range, 1});
        if (!holds(buffer, known)) wrong.fetch_add(1);
        if (buffers.size() > 150) {
          std::swap(buffers[random.below(buffers.size())], buffers.back());
          buffers.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

// The descriptor of the file of the only spill in a folder.
int descriptor_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with(folder + "/")) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

// A file that is cut stands for a disk that cannot read: both are a signal to the reader.
TEST(Spill, AFailedReadIsReportedForItsBuffersAlone) {
  const std::string folder = disk() + "/spill-cut";
  std::filesystem::create_directory(folder);
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  const auto opened = Spill::open({folder, kMemoryBytesMin});
  const auto spill = opened.ok() ? *opened : nullptr;
  SKIP_WITHOUT_A_DISK(spill);
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    buffers.push_back(spill->allocate(40'000).value());
    fill(buffers.back(), i);
  }
  const int fd = descriptor_in(folder);
  ASSERT_GE(fd, 0);
  const off_t size = lseek(fd, 0, SEEK_END);
  ASSERT_EQ(ftruncate(fd, size / 2), 0);
  std::size_t lost = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const ChunkMemory::Range range = buffers[i].bytes();
    spill->prefetch({&range, 1});
    const bool is_right = holds(buffers[i], i);
    ASSERT_EQ(is_right, !LostBytes::overlap(range)) << i;
    lost += is_right ? 0 : 1;
  }
  EXPECT_GT(lost, 500u);
  EXPECT_LT(lost, 1'500u);
  EXPECT_LE(spill->resident_bytes(), kMemoryBytesMin + 40'960);
  // Blocks with lost pages are not used again, whether their regions are or not.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = round; i < buffers.size(); i += 2) {
      if (LostBytes::overlap(buffers[i].bytes())) buffers[i] = Buffer();
    }
    std::vector<Buffer> again;
    for (std::uint64_t i = 0; i < 1'000; ++i) {
      again.push_back(spill->allocate(40'000).value());
      fill(again.back(), i);
    }
    for (std::size_t i = 0; i < again.size(); ++i) {
      const ChunkMemory::Range range = again[i].bytes();
      spill->prefetch({&range, 1});
      ASSERT_TRUE(holds(again[i], i)) << i;
      ASSERT_FALSE(LostBytes::overlap(range)) << i;
    }
  }
}

TEST(Spill, LivesUntilItsLastBufferIsFreed) {
  auto spill = spill_of();
  SKIP_WITHOUT_A_DISK(spill);
  std::weak_ptr<Spill> watch = spill;
  Buffer buffer = spill->allocate(100'000).value();
  fill(buffer, 1);
  spill.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_TRUE(holds(buffer, 1));
  buffer = Buffer();
  EXPECT_TRUE(watch.expired());
}

TEST(Spill, LeavesNoFileNameBehind) {
  const std::string folder = disk() + "/spill-names";
  std::filesystem::create_directory(folder);
  {
    const auto spill = Spill::open({folder});
    if (spill.ok()) {
      const Buffer buffer = (*spill)->allocate(100'000).value();
      EXPECT_TRUE(std::filesystem::is_empty(folder));
    }
  }
  EXPECT_TRUE(std::filesystem::remove(folder));
}

TEST(Spill, RefusesAFolderThatIsNotOnADiskAndTooLittleMemory) {
  const Status small = Spill::open({disk(), kMemoryBytesMin - 1}).status();
  EXPECT_EQ(small.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(small.message().find("memory_bytes is 16777215"), std::string::npos);
  const Status missing = Spill::open({disk() + "/no-such-folder"}).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(missing.message().find("no-such-folder"), std::string::npos) << missing.message();
  if (std::filesystem::exists("/dev/shm")) {
    const Status memory = Spill::open({"/dev/shm"}).status();
    EXPECT_EQ(memory.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(memory.message().find("on a disk"), std::string::npos) << memory.message();
  }
}

}  // namespace
}  // namespace reverie::spill
