#include "reverie/os/arena_link.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace reverie {
namespace {

constexpr std::size_t kBulk = 200'000;

// Both sides of a link; the test carries what each would send.
struct Sides {
  Sides() {
    auto made = SharedArena::make("arena-link-test", 2'000'000);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    arena = *made;
    out = std::make_unique<ArenaSender>(arena);
    EXPECT_TRUE(in->open(arena->reader_fd(), arena->id()).ok());
  }
  // A block filled with `value`; null if there is no room.
  std::shared_ptr<ArenaBlock> block_of(int value) const {
    const auto room = out->room_for(kBulk, {});
    if (!room) return nullptr;
    const auto block = room->allocate(kBulk);
    if (!block.ok()) return nullptr;
    const std::vector<std::byte> bytes(kBulk, static_cast<std::byte>(value));
    EXPECT_TRUE((*block)->write(0, bytes).ok());
    return *block;
  }
  std::shared_ptr<SharedArena> arena;
  std::unique_ptr<ArenaSender> out;
  int due = 0;
  std::shared_ptr<ArenaReceiver> in = std::make_shared<ArenaReceiver>([this] { ++due; });
};

TEST(ArenaLink, NothingIsAllocatedUntilTheOtherSideHasMappedTheArena) {
  Sides sides;
  EXPECT_EQ(sides.block_of(1), nullptr);
  sides.out->set_taken();
  EXPECT_NE(sides.block_of(1), nullptr);
}

TEST(ArenaLink, ARangeIsReturnedAndReusedOnceItsBytesAreReleased) {
  Sides sides;
  sides.out->set_taken();
  for (int i = 0; i < 100; ++i) {
    auto block = sides.block_of(i);
    ASSERT_NE(block, nullptr) << i;
    ASSERT_TRUE(sides.out->lend(block));
    Result<ArenaBytes> piece = sides.in->at(block->range());
    ASSERT_TRUE(piece.ok());
    block.reset();  // the receiver still holds it
    ASSERT_EQ(piece->bytes.size(), kBulk);
    EXPECT_EQ(piece->bytes[0], static_cast<std::byte>(i));
    EXPECT_EQ(piece->bytes[kBulk - 1], static_cast<std::byte>(i));
    // The receiver's mapping is private: what it writes there is gone with the next array.
    std::memset(piece->bytes.data(), 0xee, kBulk);
    EXPECT_FALSE(sides.in->has_returns());
    *piece = {};
    ASSERT_TRUE(sides.in->has_returns());
    ASSERT_TRUE(sides.out->give_back(sides.in->take_returns()).ok());
    EXPECT_EQ(sides.arena->used_bytes(), 0u);
  }
}

// The last page of an array is not shared, so that writes to it do not hide the next array.
TEST(ArenaLink, WritingToAKeptArrayDoesNotHideTheNext) {
  Sides sides;
  sides.out->set_taken();
  std::vector<ArenaBytes> kept;
  for (int i = 0; i < 5; ++i) {
    const auto block = sides.block_of(i);
    ASSERT_TRUE(sides.out->lend(block));
    Result<ArenaBytes> piece = sides.in->at(block->range());
    ASSERT_TRUE(piece.ok()) << piece.status().to_string();
    EXPECT_EQ(piece->bytes[kBulk - 1], static_cast<std::byte>(i));
    std::memset(piece->bytes.data(), 0x77, kBulk);
    kept.push_back(std::move(*piece));
  }
  for (const ArenaBytes& piece : kept) EXPECT_EQ(piece.bytes[kBulk - 1], std::byte{0x77});
}

TEST(ArenaLink, ReturnsAreDueOnceManyBytesArePending) {
  Sides sides;
  sides.out->set_taken();
  std::vector<ArenaRange> ranges;
  auto block = sides.block_of(1);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(sides.out->lend(block));
    (void)sides.in->at(block->range()).ok();  // and releases it at once
  }
  EXPECT_EQ(sides.due, 1);
  EXPECT_TRUE(sides.out->give_back(sides.in->take_returns()).ok());
}

TEST(ArenaLink, AForkedChildReturnsNothing) {
  Sides sides;
  sides.out->set_taken();
  const auto block = sides.block_of(1);
  std::vector<ArenaBytes> kept;
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(sides.out->lend(block));
    kept.push_back(*sides.in->at(block->range()));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    kept.clear();
    ::_exit(sides.due == 0 && !sides.in->has_returns() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  kept.clear();
  EXPECT_EQ(sides.due, 1);
}

TEST(ArenaLink, AFullArenaGivesNoBlock) {
  Sides sides;
  sides.out->set_taken();
  std::vector<std::shared_ptr<ArenaBlock>> kept;
  while (auto block = sides.block_of(1)) kept.push_back(std::move(block));
  EXPECT_EQ(kept.size(), 9u);
  kept.pop_back();
  EXPECT_NE(sides.block_of(2), nullptr);
}

TEST(ArenaLink, OnlyLentRangesCanBeReturned) {
  Sides sides;
  sides.out->set_taken();
  const auto block = sides.block_of(1);
  const auto range = encode_range(block->range());
  EXPECT_EQ(sides.out->give_back(range).code(), StatusCode::kDataLoss);
  ASSERT_TRUE(sides.out->lend(block));
  EXPECT_EQ(sides.out->give_back(std::span(range).first(23)).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(sides.out->give_back(range).ok());
  EXPECT_EQ(sides.out->give_back(range).code(), StatusCode::kDataLoss);
}

TEST(ArenaLink, InvalidRangesFromTheOtherSideAreRefused) {
  Sides sides;
  sides.out->set_taken();
  const auto block = sides.block_of(1);
  ArenaRange wrong = block->range();
  wrong.size_bytes = std::size_t{1} << 40;
  EXPECT_EQ(sides.in->at(wrong).status().code(), StatusCode::kDataLoss);
  wrong = block->range();
  ++wrong.generation;
  EXPECT_EQ(sides.in->at(wrong).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sides.in->open(sides.arena->reader_fd(), sides.arena->id()).code(),
            StatusCode::kInvalidArgument);
  const auto empty = std::make_shared<ArenaReceiver>([] {});
  EXPECT_EQ(empty->at(wrong).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(empty->open(sides.arena->reader_fd(), 1).code(), StatusCode::kInvalidArgument);
}

TEST(ArenaLink, ArraysOutliveTheLinkOnEitherSide) {
  Sides sides;
  sides.out->set_taken();
  auto block = sides.block_of(7);
  ASSERT_TRUE(sides.out->lend(block));
  Result<ArenaBytes> piece = sides.in->at(block->range());
  ASSERT_TRUE(piece.ok());
  block.reset();
  sides.out->end();
  sides.in->end();
  EXPECT_EQ(sides.block_of(8), nullptr);  // the arena accepts no more writes
  EXPECT_EQ(sides.arena->allocate(kBulk).status().code(), StatusCode::kFailedPrecondition);
  sides.out.reset();
  sides.arena.reset();
  sides.in.reset();
  EXPECT_EQ(piece->bytes[0], std::byte{7});
  EXPECT_EQ(piece->bytes[kBulk - 1], std::byte{7});
}

}  // namespace
}  // namespace reverie
