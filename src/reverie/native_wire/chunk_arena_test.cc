#include "reverie/native_wire/chunk_arena.h"

#include <cstring>
#include <utility>

#include <gtest/gtest.h>

namespace reverie {
namespace {

constexpr std::size_t kLarge = ChunkArena::kBlockBytesMin;

TEST(ChunkArena, SmallChunksAndThoseWithoutRoomAreAllocatedElsewhere) {
  ChunkArena memory(Allocator::heap(), 4 * kLarge);
  const Buffer small = memory.allocate(kLarge - 1).value();
  EXPECT_FALSE(memory.arena()) << "none is made for them";
  const Buffer large = memory.allocate(kLarge).value();
  EXPECT_TRUE(memory.arena()->range_of(large.bytes()));
  const Buffer without_room = memory.allocate(8 * kLarge).value();
  EXPECT_FALSE(memory.arena()->range_of(without_room.bytes()));
}

TEST(ChunkArena, ABlockIsFreedWithItsBuffer) {
  ChunkArena memory(Allocator::heap(), 4 * kLarge);
  for (int i = 0; i < 20; ++i) {
    const Buffer buffer = memory.allocate(2 * kLarge).value();
    EXPECT_TRUE(memory.arena()->range_of(buffer.bytes())) << i;
  }
  EXPECT_EQ(memory.arena()->used_bytes(), 0u);
}

TEST(ChunkArena, MemoryThatMayStillBeReadIsNotReused) {
  ChunkArena memory(Allocator::heap(), 4 * kLarge);
  Buffer read = memory.allocate(kLarge).value();
  std::memset(read.data(), 7, kLarge);
  const auto left = memory.arena();
  const auto view = ArenaView::open(left->reader_fd(), left->id()).value();
  const std::span<const std::byte> seen = view->bytes(*left->range_of(read.bytes())).value();
  memory.leave();
  read = Buffer();
  for (int i = 0; i < 8; ++i) {
    Buffer next = memory.allocate(kLarge).value();
    std::memset(next.data(), 9, kLarge);
    EXPECT_FALSE(left->range_of(next.bytes()));
    EXPECT_EQ(seen.front(), std::byte{7});
  }
  EXPECT_NE(memory.arena(), left);
}

TEST(ChunkArena, BuffersOutliveTheArena) {
  Buffer buffer;
  {
    ChunkArena memory(Allocator::heap(), 4 * kLarge);
    buffer = memory.allocate(kLarge).value();
  }
  std::memset(buffer.data(), 5, kLarge);
  EXPECT_EQ(buffer.bytes().back(), std::byte{5});
}

}  // namespace
}  // namespace reverie
