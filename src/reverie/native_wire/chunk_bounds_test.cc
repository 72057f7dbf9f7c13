#include "reverie/native_wire/chunk_bounds.h"

#include <gtest/gtest.h>

#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr auto kMost = static_cast<std::uint32_t>(kRowsMax);

// A chunk with room for that many rows without bytes, of which some are there.
Ref<Chunk> chunk_of(std::uint32_t capacity, std::uint32_t rows) {
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kFloat32, {0}}});
  Ref<Chunk> chunk = Chunk::open(schema, {}, capacity, 0, Allocator::heap()).value();
  chunk->publish(rows);
  return chunk;
}

TEST(ChunkBounds, AnItemOverTooManyRowsIsRefusedWithNumberBoundAndRemedy) {
  const Ref<Chunk> full = chunk_of(kMost, kMost);
  EXPECT_TRUE(check_chunk_rows(testing::item_over(*full, 1, 1.0, 0, 1), true).ok());
  const Ref<Chunk> large = chunk_of(kMost + 1, kMost + 1);
  for (const bool counts_room : {true, false}) {
    expect_refused(check_chunk_rows(testing::item_over(*large, 1, 1.0, 0, 1), counts_room),
                   StatusCode::kInvalidArgument,
                   {"16777217 rows", "16777216", "insert_rows", "chunk_length"});
  }
}

TEST(ChunkBounds, RoomForFurtherRowsCountsOnlyWhereItIsSentToo) {
  const Ref<Chunk> chunk = chunk_of(kMost + 1, 1);
  const Item item = testing::item_over(*chunk, 1, 1.0, 0, 1);
  EXPECT_TRUE(check_chunk_rows(item, /*counts_room=*/false).ok());
  EXPECT_FALSE(check_chunk_rows(item, /*counts_room=*/true).ok());
}

}  // namespace
}  // namespace reverie
