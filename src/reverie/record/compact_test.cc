#include "reverie/record/compact.h"

#include <gtest/gtest.h>

#include "reverie/codec/column_codec.h"
#include "tests/support/no_more_memory.h"
#include "tests/support/resident.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

TEST(Compact, HoldsTheSameRowsInTheMemoryTheyNeed) {
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{
      {"x", DType::kFloat32, {2}}, {"word", DType::kString, {}}, {"n", DType::kInt64, {}}});
  const ChunkOrigin origin{17, 18, 19};
  const Ref<Chunk> raw = Chunk::open(schema, origin, 100, 1'000, Allocator::heap()).value();
  std::vector<std::vector<Value>> rows;
  for (std::uint32_t r = 0; r < 5; ++r) {
    const auto x = static_cast<float>(r);
    rows.push_back({f32s({x, -x}), text(std::string(r, 'w')), i64(r)});
    for (std::size_t c = 0; c < 3; ++c) raw->set_row(c, r, rows.back()[c].bytes);
  }
  raw->publish(5);

  const Ref<Chunk> compacted = compact(*raw, CodecId::kRaw, Allocator::heap()).value();
  EXPECT_FALSE(compacted->is_raw());
  EXPECT_EQ(compacted->rows(), 5u);
  EXPECT_EQ(compacted->capacity(), 5u);
  EXPECT_EQ(compacted->key(), 17u);
  EXPECT_EQ(compacted->episode(), 18u);
  EXPECT_EQ(compacted->first_step(), 19u);
  EXPECT_LT(compacted->size_bytes(), raw->size_bytes() / 5);
  for (std::size_t c = 0; c < 3; ++c) {
    const auto decoded = decode_column(compacted->encoded_column(c).codec, schema->column(c), 5,
                                       compacted->encoded_bytes(c));
    ASSERT_TRUE(decoded.ok());
    for (std::size_t r = 0; r < 5; ++r) EXPECT_EQ(bytes_of((*decoded)[r]), rows[r][c].bytes);
  }
}

TEST(Compact, AcceptsAChunkWithoutRows) {
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kFloat32, {2}}});
  const Ref<Chunk> raw = Chunk::open(schema, {}, 4, 0, Allocator::heap()).value();
  const Ref<Chunk> compacted = compact(*raw, CodecId::kRaw, Allocator::heap()).value();
  EXPECT_EQ(compacted->rows(), 0u);
  EXPECT_TRUE(compacted->encoded_bytes(0).empty());
}

TEST(Compact, WithoutMemoryForTheEncodersItFailsAndTheChunkStaysRaw) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "a sanitizer maps memory of its own";
  constexpr std::int64_t kRowBytes = 48 << 20;  // two rows have to be mapped
  const auto schema =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kUInt8, {kRowBytes}}});
  const Ref<Chunk> raw = Chunk::open(schema, {}, 2, 0, Allocator::heap()).value();
  const std::vector<std::byte> row(kRowBytes, std::byte{7});
  for (std::uint32_t r = 0; r < 2; ++r) raw->set_row(0, r, row);
  raw->publish(2);
  for (const CodecId codec : {CodecId::kRaw, CodecId::kLz4, CodecId::kZstd}) {
    const ColumnTry tried{.codec = codec};
    Status status;
    {
      const testing::NoMoreMemory none;
      status = encode_columns(*raw, {&tried, 1}, Allocator::heap()).status();
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
    EXPECT_TRUE(encode_columns(*raw, {&tried, 1}, Allocator::heap()).ok());
  }
  EXPECT_TRUE(raw->is_raw());
}

}  // namespace
}  // namespace reverie
