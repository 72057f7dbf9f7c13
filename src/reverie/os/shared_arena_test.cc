#include "reverie/os/shared_arena.h"

#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "tests/scale.h"

namespace reverie {
namespace {

std::shared_ptr<SharedArena> arena_of(std::size_t size_bytes) {
  auto arena = SharedArena::make("arena-test", size_bytes);
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  return std::move(arena).value();
}

std::shared_ptr<const ArenaView> view_of(const SharedArena& arena) {
  auto view = ArenaView::open(arena.reader_fd(), arena.id());
  EXPECT_TRUE(view.ok()) << view.status().to_string();
  return std::move(view).value();
}

std::vector<std::byte> filled(std::size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

// The memory that the arena's file takes.
std::size_t resident_bytes(const SharedArena& arena) {
  struct stat about {};
  EXPECT_EQ(fstat(arena.reader_fd(), &about), 0);
  return static_cast<std::size_t>(about.st_blocks) * 512;
}

TEST(SharedArena, AReaderReadsWhatTheOwnerWrites) {
  const auto arena = arena_of(1 << 20);
  const auto view = view_of(*arena);
  std::vector<std::shared_ptr<ArenaBlock>> blocks;
  for (const std::size_t size : {1ul, 63ul, 64ul, 4096ul, 40'000ul}) {
    blocks.push_back(arena->allocate(size).value());
    ASSERT_EQ(blocks.back()->bytes().size(), size);
    ASSERT_TRUE(blocks.back()->write(0, filled(size, static_cast<int>(size % 251))).ok());
  }
  for (const auto& block : blocks) {
    const std::size_t size = block->bytes().size();
    if (size >= 4096) {
      EXPECT_EQ(block->range().offset % 4096, 0u);
    }
    std::vector<std::byte> copied(size);
    ASSERT_TRUE(view->copy(block->range(), copied).ok());
    EXPECT_EQ(copied, filled(size, static_cast<int>(size % 251)));
    const auto bytes = view->bytes(block->range());
    ASSERT_TRUE(bytes.ok());
    EXPECT_NE(bytes->data(), block->bytes().data());
    EXPECT_EQ(std::memcmp(bytes->data(), copied.data(), size), 0);
  }
}

TEST(SharedArena, AReaderCannotWrite) {
  const auto arena = arena_of(1 << 16);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena->reader_fd(), 0),
            MAP_FAILED);
  EXPECT_LT(pwrite(arena->reader_fd(), "x", 1, 0), 0);
  EXPECT_NE(ftruncate(arena->reader_fd(), 4096), 0);
  EXPECT_NE(fallocate(arena->reader_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  // A private mapping can be written to; the owner does not see it.
  const auto block = arena->allocate(5000).value();
  ASSERT_TRUE(block->write(0, filled(5000, 1)).ok());
  const auto own =
      ArenaView::open(arena->reader_fd(), arena->id(), SharedMemory::Mapping::kCopyOnWrite);
  ASSERT_TRUE(own.ok());
  (*(*own)->bytes(block->range()))[0] = std::byte{9};
  EXPECT_EQ(block->bytes()[0], std::byte{1});
}

TEST(SharedArena, RefusesSizesThatDoNotFit) {
  const auto arena = arena_of(1 << 16);
  EXPECT_EQ(arena->allocate(0).status().code(), StatusCode::kInvalidArgument);
  for (const std::size_t size : {std::size_t{1} << 16, std::size_t{1} << 40, ~std::size_t{0}}) {
    EXPECT_EQ(arena->allocate(size).status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(SharedArena::make("x", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedArena::make("x", ~std::size_t{0}).status().code(), StatusCode::kInvalidArgument);
  {
    const auto block = arena->allocate(40'000);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ(arena->allocate(40'000).status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(arena->allocate(40'000).ok());
  EXPECT_EQ(arena->used_bytes(), 0u);
}

TEST(SharedArena, ARangeOfAFreedBlockIsStale) {
  const auto arena = arena_of(1 << 16);
  const auto view = view_of(*arena);
  auto block = arena->allocate(5000).value();
  const ArenaRange old = block->range();
  block.reset();
  std::vector<std::byte> into(5000);
  EXPECT_EQ(view->copy(old, into).code(), StatusCode::kUnavailable);
  const auto next = arena->allocate(5000).value();
  ASSERT_EQ(next->range().offset, old.offset);
  EXPECT_EQ(view->copy(old, into).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(view->copy(next->range(), into).ok());
}

TEST(SharedArena, LeasesAreCountedAndBoundedByConnection) {
  const auto arena = arena_of(1 << 20);
  const std::shared_ptr<const ArenaBlock> shared = arena->allocate(1000).value();
  const std::shared_ptr<const ArenaBlock> large = arena->allocate(100'000).value();
  ArenaLeases first(100'500);
  ArenaLeases second(100'500);
  EXPECT_TRUE(first.lend(shared).ok());
  EXPECT_TRUE(first.lend(shared).ok());
  EXPECT_TRUE(second.lend(shared).ok());
  EXPECT_EQ(first.bytes(), 1000u);
  EXPECT_EQ(first.lend(large).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(first.count(), 1u);
  const std::array<ArenaRange, 2> both = {shared->range(), shared->range()};
  EXPECT_TRUE(first.give_back(both).ok());
  EXPECT_EQ(first.bytes(), 0u);
  EXPECT_EQ(first.give_back(both).code(), StatusCode::kDataLoss);
  ArenaRange forged = shared->range();
  forged.size_bytes += 1;
  EXPECT_EQ(second.give_back({&forged, 1}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(second.bytes(), 1000u);
}

TEST(SharedArena, AHangUpFreesTheLeasesOfItsConnection) {
  const auto arena = arena_of(1 << 20);
  {
    ArenaLeases leases(1 << 20);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(leases.lend(arena->allocate(5000).value()).ok());
    }
    EXPECT_GE(arena->used_bytes(), 50'000u);
    leases.drop_all();
    EXPECT_EQ(arena->used_bytes(), 0u);
    ASSERT_TRUE(leases.lend(arena->allocate(5000).value()).ok());
  }
  EXPECT_EQ(arena->used_bytes(), 0u);
}

TEST(SharedArena, TrimReleasesMemoryThatNoBlockUses) {
  const auto arena = arena_of(8 << 20);
  const std::size_t before = resident_bytes(*arena);
  const auto low = arena->allocate(4096).value();
  ASSERT_TRUE(low->write(0, filled(4096, 3)).ok());
  auto high = arena->allocate(4 << 20).value();
  ASSERT_TRUE(high->write(0, filled(4 << 20, 4)).ok());
  EXPECT_GE(resident_bytes(*arena), before + (4u << 20));
  arena->trim();
  EXPECT_GE(resident_bytes(*arena), before + (4u << 20));
  high.reset();
  arena->trim();
  EXPECT_LE(resident_bytes(*arena), before + 16'384);
  EXPECT_EQ(low->bytes()[4095], std::byte{3});
  high = arena->allocate(4 << 20).value();
  std::memset(high->bytes().data(), 5, high->bytes().size());  // directly, without write()
  high.reset();
  arena->trim();
  EXPECT_LE(resident_bytes(*arena), before + 16'384);
}

TEST(SharedArena, HostileMemoryIsRefused) {
  constexpr std::size_t kSize = 3 * kArenaPageBytes;
  const SharedMemory memory = std::move(SharedMemory::create("hostile", kSize)).value();
  const auto write = [&](ArenaHeader header) {
    std::memcpy(memory.bytes().data(), &header, sizeof(header));
  };
  const ArenaHeader right{kArenaMagic, 7, kSize};
  for (const ArenaHeader& wrong :
       {ArenaHeader{0, 7, kSize}, ArenaHeader{kArenaMagic, 8, kSize},
        ArenaHeader{kArenaMagic, 7, kSize + 1}, ArenaHeader{kArenaMagic, 7, ~std::uint64_t{0}}}) {
    write(wrong);
    EXPECT_EQ(ArenaView::open(memory.fd(), 7).status().code(), StatusCode::kInvalidArgument);
  }
  const SharedMemory tiny = std::move(SharedMemory::create("tiny", 8)).value();
  EXPECT_EQ(ArenaView::open(tiny.fd(), 7).status().code(), StatusCode::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(ArenaView::open(ends[0], 7).status().code(), StatusCode::kInvalidArgument);
  ::close(ends[0]);
  ::close(ends[1]);

  write(right);
  const auto view = ArenaView::open(memory.fd(), 7);
  ASSERT_TRUE(view.ok());
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  for (const ArenaRange& wrong :
       {ArenaRange{8, 8192, 1, 1}, ArenaRange{7, 0, 1, 1}, ArenaRange{7, 4096, 1, 1},
        ArenaRange{7, 8193, 1, 1}, ArenaRange{7, 8192, 4097, 1}, ArenaRange{7, 8192, kAll, 1},
        ArenaRange{7, kAll - 63, 1, 1}, ArenaRange{7, 8192, 0, 1}, ArenaRange{7, 8192, 1, 0}}) {
    EXPECT_EQ((*view)->bytes(wrong).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ((*view)->bytes({7, 8192, 1, 1}).status().code(), StatusCode::kUnavailable);
}

// Threads lease, read and return ranges, while the owner reuses the memory: each reader gets what
// its range was filled with, or an error that the lease has ended.
TEST(SharedArena, ThreadsThatAllocateAndReadSeeTheBytesOfTheirRange) {
  const auto arena = arena_of(256 << 10);
  const auto view = view_of(*arena);
  const auto turns = static_cast<int>(scaled(3'000, 100'000));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      Random draws(static_cast<std::uint64_t>(thread));
      for (int turn = 0; turn < turns; ++turn) {
        const std::size_t size = draws.below(20'000) + 1;
        const auto block = arena->allocate(size);
        if (!block.ok()) continue;
        const int value = static_cast<int>(draws.below(256));
        if (!(*block)->write(0, filled(size, value)).ok()) ++wrong;
        std::vector<std::byte> into(size);
        if (!view->copy((*block)->range(), into).ok() || into != filled(size, value)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(arena->used_bytes(), 0u);
}

// --- Processes that are killed or stopped at each step of the protocol.

ArenaStep stop_at;
int stop_signal;

void stop_here(ArenaStep at) {
  if (at == stop_at) ::kill(::getpid(), stop_signal);
}

// Runs `work` in a child that gets `signal` at a step; returns its pid once it is dead or stopped.
template <typename Work>
pid_t struck_child(ArenaStep at, int signal, Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    stop_at = at;
    stop_signal = signal;
    arena_hook.store(stop_here);
    work();
    ::_exit(3);  // the step was not reached
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(signal == SIGKILL ? WIFSIGNALED(status) : WIFSTOPPED(status)) << "step not reached";
  return child;
}

void end_stopped(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST(SharedArena, AReaderKilledOrStoppedAtAnyStepDoesNoHarm) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const ArenaStep at : {ArenaStep::kChecked, ArenaStep::kCopied}) {
      const auto arena = arena_of(1 << 20);
      const auto view = view_of(*arena);
      ArenaLeases leases(1 << 20);
      const std::shared_ptr<ArenaBlock> block = arena->allocate(10'000).value();
      ASSERT_TRUE(block->write(0, filled(10'000, 6)).ok());
      ASSERT_TRUE(leases.lend(block).ok());
      const ArenaRange range = block->range();
      const pid_t child = struck_child(at, signal, [&] {
        std::array<std::byte, 10'000> into;
        (void)view->copy(range, into).ok();
      });
      // The owner continues, and others can read.
      std::vector<std::byte> into(10'000);
      EXPECT_TRUE(view->copy(range, into).ok());
      EXPECT_EQ(into, filled(10'000, 6));
      leases.drop_all();  // the child's connection has ended
      EXPECT_TRUE(arena->allocate(10'000).ok());
      if (signal == SIGSTOP) end_stopped(child);
    }
  }
}

TEST(SharedArena, AnOwnerKilledOrStoppedAtAnyStepLeavesReadersTheirData) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const ArenaStep at : {ArenaStep::kAllocated, ArenaStep::kWritten, ArenaStep::kFreed}) {
      // Made before the fork, so that this process can read it after its owner, the child, is gone.
      auto arena = arena_of(1 << 20);
      const auto view = view_of(*arena);
      const std::shared_ptr<ArenaBlock> lent = arena->allocate(8192).value();
      ASSERT_TRUE(lent->write(0, filled(8192, 2)).ok());
      const pid_t child = struck_child(at, signal, [&] {
        const auto block = arena->allocate(5000);
        (void)(*block)->write(0, filled(5000, 1)).ok();
      });
      std::vector<std::byte> into(8192);
      EXPECT_TRUE(view->copy(lent->range(), into).ok());
      EXPECT_EQ(into, filled(8192, 2));
      if (signal == SIGSTOP) end_stopped(child);
    }
  }
}

// Another process writes random words into the arena while this one reads it.
TEST(SharedArena, RandomWritesMeanwhileDoNotHarmReaders) {
  const auto arena = arena_of(64 << 10);
  const auto view = view_of(*arena);
  const std::shared_ptr<ArenaBlock> block = arena->allocate(20'000).value();
  const std::span<std::byte> all(block->bytes().data() - block->range().offset,
                                 arena->size_bytes());
  const ArenaRange range = block->range();
  const pid_t child = ::fork();
  if (child == 0) {
    Random draws(std::uint64_t{1});
    while (true) {
      // Overwrites headers too.
      const std::uint64_t word = draws.below(2) == 0 ? range.generation : draws.next();
      std::memcpy(&all[draws.below(all.size() / 8) * 8], &word, sizeof(word));
      std::memcpy(&all[range.offset - 64], &word, sizeof(word));
    }
  }
  std::vector<std::byte> into(20'000);
  int copied = 0;
  int refused = 0;
  for (int turn = 0; turn < scaled(5'000, 200'000); ++turn) {
    const Status status = view->copy(range, into);
    if (status.ok()) {
      ++copied;
    } else {
      ++refused;
      ASSERT_EQ(status.code(), StatusCode::kUnavailable);
    }
    (void)ArenaView::open(arena->reader_fd(), arena->id()).ok();
  }
  end_stopped(child);
  EXPECT_EQ(copied + refused, scaled(5'000, 200'000));
}

TEST(SharedArena, OnlyBytesOfABlockHaveARange) {
  const auto arena = arena_of(1 << 20);
  const auto view = view_of(*arena);
  const auto block = arena->allocate(10'000).value();
  const std::span<const std::byte> bytes = block->bytes();
  EXPECT_EQ(arena->range_of(bytes), block->range());
  ASSERT_TRUE(block->write(0, filled(10'000, 7)).ok());
  const ArenaRange part = arena->range_of(bytes.first(100)).value();
  std::vector<std::byte> copied(100);
  ASSERT_TRUE(view->copy(part, copied).ok());
  EXPECT_EQ(copied, filled(100, 7));
  const std::vector<std::byte> elsewhere(100);
  EXPECT_FALSE(arena->range_of(elsewhere));
  EXPECT_FALSE(arena->range_of(bytes.subspan(1, 100))) << "no block begins there";
  EXPECT_FALSE(arena->range_of({}));
}

TEST(SharedArena, UnusedMemoryIsReleasedOnceMostIsUnused) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  constexpr std::size_t kCount = 160;
  const auto arena = arena_of(2 * kCount * kBlock);
  std::vector<std::shared_ptr<ArenaBlock>> blocks;
  for (std::size_t i = 0; i < kCount; ++i) {
    blocks.push_back(arena->allocate(kBlock).value());
    std::memset(blocks.back()->bytes().data(), 1, kBlock);
  }
  const std::size_t full = resident_bytes(*arena);
  EXPECT_GE(full, kCount * kBlock);
  // A free third in the middle keeps its memory for later blocks.
  blocks.erase(blocks.begin() + kCount / 3, blocks.begin() + 2 * kCount / 3);
  arena->give_back_unused();
  EXPECT_GE(resident_bytes(*arena), full);
  blocks.resize(10);
  arena->give_back_unused();
  EXPECT_LT(resident_bytes(*arena), full / 4);
  for (const auto& block : blocks) EXPECT_EQ(block->bytes().front(), std::byte{1});
}

TEST(SharedArena, AForkedChildThatDropsABlockDoesNotFreeItForItsParent) {
  const auto arena = arena_of(1 << 20);
  const auto view = view_of(*arena);
  auto block = arena->allocate(100).value();
  const ArenaRange range = block->range();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    block = nullptr;
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(view->bytes(range).ok());
}

}  // namespace
}  // namespace reverie
