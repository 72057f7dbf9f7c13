#include "reverie/native_wire/stored_chunk.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/codec/column_codec.h"
#include "reverie/record/compact.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr std::uint32_t kRows = 9;

// Columns of several sizes, one of them empty; the large rows are similar.
Ref<const ChunkSchema> mixed_schema() {
  return make_ref<ChunkSchema>(std::vector<TensorSpec>{{"reward", DType::kFloat32, {}},
                                                       {"picture", DType::kUInt8, {24, 24}},
                                                       {"nothing", DType::kFloat32, {0}},
                                                       {"action", DType::kInt64, {2}}});
}

std::byte value_at(std::size_t column, std::uint32_t row, std::size_t i) {
  if (column == 1) return static_cast<std::byte>(i % 7 == row ? row : 0);
  return static_cast<std::byte>(17 * column + 31 * row + i);
}

// A chunk of kRows + 3 rows, of which `published` are published.
Ref<Chunk> mixed_chunk(std::uint32_t published, Chunk::Kind kind = Chunk::Kind::kRaw) {
  Ref<Chunk> chunk =
      Chunk::open(mixed_schema(), {7, 3, 40}, kRows + 3, 0, Allocator::heap(), kind).value();
  std::vector<std::byte> row;
  for (std::size_t c = 0; c < chunk->schema().column_count(); ++c) {
    for (std::uint32_t r = 0; r < published; ++r) {
      row.resize(chunk->schema().row_bytes(c));
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = value_at(c, r, i);
      chunk->set_row(c, r, row);
    }
  }
  chunk->publish(published);
  return chunk;
}

Result<Buffer> copied(wire::Bytes bytes) {
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer, Allocator::heap().allocate(bytes.size()));
  std::ranges::copy(bytes, buffer.data());
  return buffer;
}

// The content of the field for the stored chunk.
std::string written(const Chunk& chunk, std::uint32_t begin, std::uint32_t end) {
  PayloadBuilder message;
  EXPECT_TRUE(put_stored_chunk(message, chunk, begin, end, 99).ok());
  const std::string flat = message.build().flat();
  const auto request = wire::read_insert_request(wire::bytes_of(flat)).value();
  EXPECT_EQ(request.stored_chunks.size(), 1u);
  return std::string(wire::text_of(request.stored_chunks.front()));
}

Result<Ref<Chunk>> read(const std::string& bytes) {
  wire::SchemaCache schemas;
  return read_stored_chunk(wire::bytes_of(bytes), schemas, copied);
}

// Checks that `chunk` has the rows of the chunk above, from `begin` on.
void expect_rows(const Chunk& chunk, std::uint32_t begin) {
  EXPECT_EQ(chunk.key(), 99u);
  EXPECT_EQ(chunk.episode(), 3u);
  EXPECT_EQ(chunk.first_step(), 40 + begin);
  const Ref<const ChunkSchema> schema = mixed_schema();
  ASSERT_EQ(chunk.schema().column_count(), schema->column_count());
  for (std::size_t c = 0; c < schema->column_count(); ++c) {
    EXPECT_EQ(chunk.schema().column(c).dtype, schema->column(c).dtype);
    EXPECT_EQ(chunk.schema().column(c).shape, schema->column(c).shape);
    const RawRows raw(chunk);
    std::optional<ColumnRows> decoded;
    if (!raw) {
      auto rows = decode_column(chunk.encoded_column(c).codec, chunk.schema().column(c),
                                chunk.rows(), chunk.encoded_bytes(c));
      ASSERT_TRUE(rows.ok()) << rows.status().to_string();
      decoded.emplace(std::move(rows).value());
    }
    for (std::uint32_t r = 0; r < chunk.rows(); ++r) {
      const RowSpan row = raw ? chunk.row_bytes(c, r) : (*decoded)[r];
      ASSERT_EQ(row.size(), schema->row_bytes(c));
      for (std::size_t i = 0; i < row.size(); ++i) {
        ASSERT_EQ(row[i], value_at(c, begin + r, i)) << "column " << c << " row " << r;
      }
    }
  }
}

TEST(StoredChunk, RawRowsOfAnOpenChunkArriveRaw) {
  for (const std::uint32_t published : {1u, 4u, kRows, kRows + 3}) {
    const Ref<Chunk> chunk = mixed_chunk(published);
    for (std::uint32_t begin = 0; begin < published; ++begin) {
      const Ref<Chunk> back = read(written(*chunk, begin, published)).value();
      EXPECT_TRUE(back->is_raw_for_good());
      EXPECT_EQ(back->rows(), published - begin);
      expect_rows(*back, begin);
    }
  }
}

TEST(StoredChunk, LargeColumnsOfACompressibleChunkAreCompressed) {
  const Ref<Chunk> chunk = mixed_chunk(kRows, Chunk::Kind::kCompressible);
  const std::string bytes = written(*chunk, 2, kRows);
  EXPECT_LT(bytes.size(), (kRows - 2) * chunk->schema().step_bytes() / 2);
  const Ref<Chunk> back = read(bytes).value();
  EXPECT_EQ(back->encoded_column(0).codec, CodecId::kRaw);
  EXPECT_EQ(back->encoded_column(1).codec, CodecId::kLz4);
  expect_rows(*back, 2);
}

TEST(StoredChunk, EncodedColumnsArriveUnchangedOrInPart) {
  for (const CodecId codec : {CodecId::kRaw, CodecId::kLz4, CodecId::kZstd, CodecId::kReverb}) {
    const Ref<Chunk> chunk = compact(*mixed_chunk(kRows), codec, Allocator::heap()).value();
    const Ref<Chunk> whole = read(written(*chunk, 0, kRows)).value();
    for (std::size_t c = 0; c < chunk->schema().column_count(); ++c) {
      EXPECT_EQ(whole->encoded_column(c).codec, codec);
      EXPECT_TRUE(std::ranges::equal(whole->encoded_bytes(c), chunk->encoded_bytes(c)));
    }
    expect_rows(*whole, 0);
    expect_rows(*read(written(*chunk, 3, 5)).value(), 3);
  }
}

TEST(StoredChunk, RowsReplacedMeanwhileAreKeptUntilTheMessageIsSent) {
  Ref<const ChunkSchema> schema =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"noise", DType::kFloat32, {4096}}});
  const Ref<Chunk> chunk =
      Chunk::open(schema, {7, 3, 0}, 1, 0, Allocator::heap(), Chunk::Kind::kCompressible).value();
  std::vector<std::byte> row(schema->row_bytes(0));
  Random random(1);
  for (std::byte& b : row) b = static_cast<std::byte>(random.next());
  chunk->set_row(0, 0, row);
  chunk->publish(1);
  PayloadBuilder message;
  ASSERT_TRUE(put_stored_chunk(message, *chunk, 0, 1, 99).ok());
  const std::vector<ColumnTry> tries(1, {.codec = CodecId::kLz4});
  chunk->replace_rows(encode_columns(*chunk, tries, Allocator::heap()).value());
  EXPECT_FALSE(chunk->is_raw());
  const std::string flat = message.build().flat();
  const auto request = wire::read_insert_request(wire::bytes_of(flat)).value();
  const Ref<Chunk> back = read(std::string(wire::text_of(request.stored_chunks.at(0)))).value();
  EXPECT_TRUE(std::ranges::equal(back->row_bytes(0, 0), row));
}

TEST(StoredChunk, IsRefusedIfCutAtAnyByte) {
  for (const Chunk::Kind kind : {Chunk::Kind::kRaw, Chunk::Kind::kCompressible}) {
    const std::string bytes = written(*mixed_chunk(kRows, kind), 0, kRows);
    ASSERT_TRUE(read(bytes).ok());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto cut = read(bytes.substr(0, size));
      ASSERT_FALSE(cut.ok()) << size;
      EXPECT_EQ(cut.status().code(), StatusCode::kInvalidArgument);
    }
  }
}

// A chunk of one column of two float32, with head fields as a client might send them.
struct Said {
  std::uint64_t dtype = static_cast<std::uint64_t>(DType::kFloat32);
  std::vector<std::uint64_t> extents = {2};
  std::uint64_t codec = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t first_step = 0;
  std::uint64_t rows = 3;
  int columns = 1;
  std::uint32_t storage_field = 6;
  std::string storage = std::string(24, 'x');

  std::string bytes() const {
    std::string column;
    wire::put_uint(column, 1, dtype);
    wire::put_packed(column, 2, extents);
    wire::put_uint(column, 3, codec);
    wire::put_uint(column, 4, size_bytes);
    std::string out;
    wire::put_uint(out, 1, 5);
    wire::put_uint(out, 3, first_step);
    wire::put_uint(out, 4, rows);
    for (int i = 0; i < columns; ++i) wire::put_message(out, 5, column);
    wire::put_message(out, storage_field, storage);
    return out;
  }
};

void expect_refusal(const Said& said, const std::vector<std::string>& words) {
  expect_refused(read(said.bytes()).status(), StatusCode::kInvalidArgument, words);
}

TEST(StoredChunk, RefusesInvalidDescriptions) {
  const std::uint64_t huge = std::uint64_t{1} << 63;
  EXPECT_TRUE(read(Said().bytes()).ok());
  expect_refusal({.columns = 0}, {"stored chunk 5", "no columns"});
  expect_refusal({.columns = 2}, {"24 bytes", "48"});
  expect_refusal({.columns = 70000, .storage = std::string(std::size_t{8} << 20, 'x')}, {"65535"});
  expect_refusal({.columns = 20000}, {"columns", "next to nothing"});
  expect_refusal({.rows = 0}, {"0 rows"});
  expect_refusal({.rows = 4}, {"24 bytes", "32"});
  expect_refusal({.rows = huge}, {"9223372036854775808 rows"});
  expect_refusal({.extents = {huge}}, {"shape"});
  expect_refusal({.extents = {std::uint64_t{1} << 40, std::uint64_t{1} << 40}}, {"shape"});
  expect_refusal({.extents = {std::uint64_t{1} << 32}}, {"bound is 4294967296"});
  expect_refusal({.extents = std::vector<std::uint64_t>(255, 1)}, {"255 axes"});
  expect_refusal({.dtype = 0}, {"dtype 0"});
  expect_refusal({.dtype = 21}, {"dtype 21"});
  expect_refusal({.dtype = huge}, {"dtype 9223372036854775808"});
  expect_refusal({.codec = 256}, {"codec 256"});
  expect_refusal({.first_step = std::uint64_t{1} << 32}, {"step 4294967296"});
  expect_refusal({.storage = ""}, {"0 bytes", "24"});
  expect_refusal({.size_bytes = 23, .storage_field = 7}, {"24 bytes", "23"});
  expect_refusal({.size_bytes = ~std::uint64_t{0}, .columns = 2, .storage_field = 7}, {"bytes"});
}

TEST(StoredChunk, ADamagedColumnIsReportedWhenItIsDecoded) {
  for (const std::uint64_t codec : {1u, 2u, 9u, 16u, 17u, 255u}) {
    const Said said{.codec = codec, .size_bytes = 24, .storage_field = 7};
    const Ref<Chunk> chunk = read(said.bytes()).value();
    const auto rows = decode_column(chunk->encoded_column(0).codec, chunk->schema().column(0),
                                    chunk->rows(), chunk->encoded_bytes(0));
    EXPECT_EQ(rows.status().code(), StatusCode::kDataLoss) << codec;
  }
}

}  // namespace
}  // namespace reverie
