#include "reverie/record/chunk.h"

#include <gtest/gtest.h>

#include "tests/support/values.h"

namespace reverie {
namespace {

Ref<ChunkSchema> schema_of(std::vector<TensorSpec> columns) {
  return make_ref<ChunkSchema>(std::move(columns));
}

TEST(ChunkSchema, PutsLargeElementsFirstSoThatEveryRowIsAligned) {
  const auto schema = schema_of({{"flag", DType::kBool, {3}},
                                 {"id", DType::kInt64, {}},
                                 {"word", DType::kString, {}},
                                 {"half", DType::kFloat16, {5}},
                                 {"wide", DType::kComplex128, {1}}});
  EXPECT_EQ(schema->step_bytes(), 3u + 8 + 8 + 10 + 16);
  for (const std::uint32_t capacity : {1u, 2u, 3u, 7u, 64u}) {
    const Ref<Chunk> chunk = Chunk::open(schema, {}, capacity, 10, Allocator::heap()).value();
    for (std::size_t c = 0; c < schema->column_count(); ++c) {
      const std::size_t element =
          schema->is_variable(c)
              ? 4
              : std::min<std::size_t>(8, dtype_size_bytes(schema->column(c).dtype));
      for (std::uint32_t r = 0; r < capacity; ++r) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(chunk->row(c, r)) % element, 0u)
            << schema->column(c).name << " row " << r << " of " << capacity;
      }
    }
  }
}

TEST(Chunk, GivesRowsBackOfFixedAndOfVaryingSize) {
  const auto schema = schema_of({{"x", DType::kFloat32, {2}}, {"word", DType::kBytes, {}}});
  const Ref<Chunk> chunk = Chunk::open(schema, {1, 2, 3}, 3, 30, Allocator::heap()).value();
  EXPECT_EQ(chunk->rows(), 0u);
  for (std::uint32_t r = 0; r < 3; ++r) {
    const auto x = static_cast<float>(r);
    chunk->set_row(0, r, f32s({x, x + 1}).bytes);
    chunk->set_row(1, r, text(std::string(2 * r, 'w')).bytes);
    chunk->publish(r + 1);
  }
  EXPECT_EQ(chunk->rows(), 3u);
  for (std::uint32_t r = 0; r < 3; ++r) {
    const auto x = static_cast<float>(r);
    EXPECT_EQ(bytes_of(chunk->row_bytes(0, r)), f32s({x, x + 1}).bytes);
    EXPECT_EQ(bytes_of(chunk->row_bytes(1, r)), text(std::string(2 * r, 'w')).bytes);
  }
  EXPECT_TRUE(chunk->has_var_room(30 - 18));
  EXPECT_FALSE(chunk->has_var_room(30 - 18 + 1));
  EXPECT_EQ(chunk->size_bytes(), sizeof(Chunk) + 3 * 16 + 30);
}

TEST(Chunk, RefusesWhatNoMemoryHolds) {
  const auto schema = schema_of({{"x", DType::kFloat64, {std::int64_t{1} << 40}}});
  EXPECT_EQ(Chunk::open(schema, {}, ~0u, 0, Allocator::heap()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Chunk::open(schema, {}, 1, std::size_t{1} << 32, Allocator::heap()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Chunk, TellsTheFirstItemAndTheLast) {
  const Ref<Chunk> chunk =
      Chunk::open(schema_of({{"x", DType::kBool, {}}}), {}, 1, 0, Allocator::heap()).value();
  EXPECT_TRUE(chunk->add_item());
  EXPECT_FALSE(chunk->add_item());
  EXPECT_EQ(chunk->item_count(), 2u);
  EXPECT_FALSE(chunk->remove_item());
  EXPECT_TRUE(chunk->remove_item());
}

TEST(ChunkDeathTest, RefusesEncodedColumnsOutsideItsBytes) {
  const auto schema = schema_of({{"x", DType::kBool, {}}});
  const auto encoded = [&](std::vector<Chunk::EncodedColumn> columns) {
    return Chunk::encoded(schema, {}, 1, Allocator::heap().allocate(8).value(), std::move(columns));
  };
  EXPECT_EQ(encoded({{CodecId::kRaw, 7, 1}})->encoded_bytes(0).size(), 1u);
  EXPECT_DEATH(encoded({{CodecId::kRaw, 8, 1}}), "invariant broken");
  EXPECT_DEATH(encoded({{CodecId::kRaw, 1, ~std::size_t{0}}}), "invariant broken");
  EXPECT_DEATH(encoded({}), "invariant broken");
}

}  // namespace
}  // namespace reverie
