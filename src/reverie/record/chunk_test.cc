#include "reverie/record/chunk.h"

#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "reverie/codec/column_codec.h"
#include "reverie/record/compact.h"
#include "tests/scale.h"
#include "tests/support/eventually.h"
#include "tests/support/frames.h"
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

TEST(Chunk, ReturnsRowsOfFixedAndOfVaryingSize) {
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

TEST(Chunk, RefusesSizesThatMemoryCannotHold) {
  const auto schema = schema_of({{"x", DType::kFloat64, {std::int64_t{1} << 40}}});
  EXPECT_EQ(Chunk::open(schema, {}, ~0u, 0, Allocator::heap()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Chunk::open(schema, {}, 1, std::size_t{1} << 32, Allocator::heap()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Chunk, ReportsItsFirstItemAndItsLast) {
  const Ref<Chunk> chunk =
      Chunk::open(schema_of({{"x", DType::kBool, {}}}), {}, 1, 0, Allocator::heap()).value();
  EXPECT_TRUE(chunk->add_item());
  EXPECT_FALSE(chunk->add_item());
  EXPECT_EQ(chunk->item_count(), 2u);
  EXPECT_FALSE(chunk->remove_item());
  EXPECT_TRUE(chunk->remove_item());
}

// Counts the bytes that are allocated.
class CountingAllocator final : public Allocator, public BufferOwner {
 public:
  Result<Buffer> allocate(std::size_t size_bytes) override {
    out_ += size_bytes;
    return Buffer(new std::byte[size_bytes], size_bytes, this);
  }
  void take_back(std::byte* data, std::size_t size_bytes) noexcept override {
    delete[] data;
    out_ -= size_bytes;
  }
  std::size_t out() const { return out_; }

 private:
  std::atomic<std::size_t> out_{0};
};

Ref<Chunk> compressible_chunk(std::uint32_t rows, Allocator& allocator) {
  Ref<Chunk> chunk = Chunk::open(schema_of({{"frame", DType::kUInt8, {20, 20}}}), {}, rows, 0,
                                 allocator, Chunk::Kind::kCompressible)
                         .value();
  for (std::uint32_t r = 0; r < rows; ++r) chunk->set_row(0, r, testing::frame(r, 20));
  chunk->publish(rows);
  return chunk;
}

void compress(Chunk& chunk, Allocator& allocator) {
  const ColumnTry lz4{.codec = CodecId::kLz4};
  chunk.replace_rows(encode_columns(chunk, {&lz4, 1}, allocator).value());
}

TEST(CompressibleChunk, FreesItsRawRowsOnceNoReaderUsesThem) {
  CountingAllocator allocator;
  const Ref<Chunk> chunk = compressible_chunk(10, allocator);
  EXPECT_EQ(allocator.out(), 4'000u);
  auto first = std::make_optional<RawRows>(*chunk);
  RawRows second(*chunk);
  ASSERT_TRUE(*first && second);
  compress(*chunk, allocator);
  EXPECT_FALSE(chunk->is_raw());
  EXPECT_FALSE(RawRows(*chunk)) << "who comes later reads the columns";
  const std::size_t both = allocator.out();
  EXPECT_GT(both, 4'000u);
  EXPECT_EQ(bytes_of(chunk->row_bytes(0, 7)), testing::frame(7, 20)) << "a reader is not disturbed";
  first.reset();
  EXPECT_EQ(allocator.out(), both);
  second = RawRows();
  EXPECT_EQ(allocator.out(), both - 4'000);
  const auto rows = decode_column(chunk->encoded_column(0).codec, chunk->schema().column(0), 10,
                                  chunk->encoded_bytes(0));
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(bytes_of((*rows)[7]), testing::frame(7, 20));
}

TEST(CompressibleChunk, MayBeReplacedByColumnsOfMoreRowsThanItHasRaw) {
  CountingAllocator allocator;
  const Ref<Chunk> whole = compressible_chunk(10, allocator);
  const ColumnTry lz4{.codec = CodecId::kLz4};
  const Ref<Chunk> chunk =
      Chunk::open(whole->shared_schema(), {}, 10, 0, allocator, Chunk::Kind::kCompressible).value();
  for (std::uint32_t r = 0; r < 4; ++r) chunk->set_row(0, r, testing::frame(r, 20));
  chunk->publish(4);
  const RawRows reader(*chunk);
  EXPECT_EQ(chunk->rows(), 4u);
  chunk->replace_rows(encode_columns(*whole, {&lz4, 1}, allocator).value(), 10);
  EXPECT_EQ(chunk->rows(), 10u);
  EXPECT_FALSE(RawRows(*chunk)) << "not all of these rows are raw";
  EXPECT_EQ(bytes_of(chunk->row_bytes(0, 3)), testing::frame(3, 20)) << "a reader is not disturbed";
  const auto rows = decode_column(chunk->encoded_column(0).codec, chunk->schema().column(0),
                                  chunk->rows(), chunk->encoded_bytes(0));
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(bytes_of((*rows)[9]), testing::frame(9, 20));
}

TEST(CompressibleChunk, AccountsFollowItsSize) {
  CountingAllocator allocator;
  const Ref<ByteAccount> one = make_ref<ByteAccount>();
  const Ref<ByteAccount> two = make_ref<ByteAccount>();
  int told = 0;
  one->set_on_shrunk([&](const Chunk&) { ++told; });
  const Ref<Chunk> chunk = compressible_chunk(10, allocator);
  chunk->charge(*one);
  const auto raw = static_cast<std::int64_t>(chunk->size_bytes());
  EXPECT_EQ(one->bytes(), raw);
  compress(*chunk, allocator);
  const auto packed = static_cast<std::int64_t>(chunk->size_bytes());
  EXPECT_LT(packed, raw / 2);
  EXPECT_EQ(one->bytes(), packed);
  EXPECT_EQ(told, 1);
  chunk->charge(*two);
  EXPECT_EQ(two->bytes(), packed);
  chunk->discharge(*one);
  chunk->discharge(*two);
  EXPECT_EQ(one->bytes(), 0);
  EXPECT_EQ(two->bytes(), 0);
}

TEST(CompressibleChunk, IsReadAndCompressedWithoutALock) {
  CountingAllocator allocator;
  for (int round = 0; round < scaled(50, 1'000); ++round) {
    const Ref<Chunk> chunk = compressible_chunk(10, allocator);
    std::vector<std::thread> readers;
    std::atomic<int> ready{0};
    for (int t = 0; t < 3; ++t) {
      readers.emplace_back([&, t] {
        ready.fetch_add(1);
        for (std::uint32_t r = 0; r < 10; ++r) {
          const std::uint32_t row = (r + static_cast<std::uint32_t>(t)) % 10;
          std::vector<std::byte> bytes;
          if (const RawRows raw(*chunk); raw) {
            bytes = bytes_of(chunk->row_bytes(0, row));
          } else {
            const auto rows = decode_column(chunk->encoded_column(0).codec,
                                            chunk->schema().column(0), 10, chunk->encoded_bytes(0));
            bytes = bytes_of(rows.value()[row]);
          }
          EXPECT_EQ(bytes, testing::frame(row, 20));
        }
      });
    }
    EXPECT_TRUE(test::eventually([&] { return ready.load() == 3; }));
    compress(*chunk, allocator);
    for (std::thread& reader : readers) reader.join();
    EXPECT_LT(allocator.out(), 4'000u) << "the rows went with their last reader";
  }
  EXPECT_EQ(allocator.out(), 0u);
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
