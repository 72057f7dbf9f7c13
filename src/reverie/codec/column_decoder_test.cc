#include "reverie/codec/column_decoder.h"

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/codec/compressed_column.h"
#include "tests/support/frames.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kSide = 20;
const TensorSpec kFrames{"frame", DType::kUInt8, {kSide, kSide}};

Bytes encode(CodecId codec, const TensorSpec& spec, const std::vector<Bytes>& rows) {
  const std::vector<RowSpan> spans(rows.begin(), rows.end());
  Bytes out;
  EXPECT_TRUE(encode_column(codec, spec, spans, out).ok());
  return out;
}

std::vector<Bytes> frames(std::size_t count) {
  std::vector<Bytes> rows;
  for (std::size_t f = 0; f < count; ++f) rows.push_back(testing::frame(f, kSide));
  return rows;
}

TEST(ColumnDecoder, GivesRowsInAnyOrder) {
  Random random(std::uint64_t{1});
  const TensorSpec counts{"counts", DType::kInt32, {4}};
  std::vector<Bytes> numbers;
  for (std::int32_t r = 0; r < 30; ++r) {
    numbers.push_back(value_of<std::int32_t>(DType::kInt32, {4}, {r, 2 * r, -r, 1000}).bytes);
  }
  ColumnDecoder decoder;  // reused, to test that no state of a column is left
  for (const CodecId codec : {CodecId::kRaw, CodecId::kLz4, CodecId::kZstd}) {
    for (const bool wide : {false, true}) {
      const std::vector<Bytes> rows = wide ? numbers : frames(30);
      const TensorSpec& spec = wide ? counts : kFrames;
      const Bytes bytes = encode(codec, spec, rows);
      ASSERT_TRUE(decoder.open(codec, spec, rows.size(), bytes).ok());
      for (int i = 0; i < 100; ++i) {
        const std::size_t r = random.below(rows.size());
        const Result<RowSpan> row = decoder.row(r);
        ASSERT_TRUE(row.ok()) << row.status().to_string();
        ASSERT_EQ(bytes_of(*row), rows[r]) << r;
      }
    }
  }
}

TEST(ColumnDecoder, ImagesAndCountersCompressToAFractionOfTheirSize) {
  for (const CodecId codec : {CodecId::kLz4, CodecId::kZstd}) {
    EXPECT_LT(encode(codec, kFrames, frames(40)).size(), 40 * kSide * kSide / 4);
    std::vector<Bytes> counters;
    for (std::int64_t i = 0; i < 200; ++i) counters.push_back(i64(1'000'000 + 3 * i).bytes);
    EXPECT_LT(encode(codec, {"step", DType::kInt64, {}}, counters).size(), 200 * 8 / 20);
  }
}

TEST(ColumnDecoder, NoiseGrowsByNoMoreThanAHeader) {
  Random random(std::uint64_t{2});
  std::vector<Bytes> rows(10, Bytes(kSide * kSide));
  for (Bytes& row : rows) {
    for (std::byte& b : row) b = static_cast<std::byte>(random.below(256));
  }
  for (const CodecId codec : {CodecId::kLz4, CodecId::kZstd}) {
    EXPECT_LE(encode(codec, kFrames, rows).size(), 10 * kSide * kSide + 5);
  }
}

TEST(ColumnDecoder, ColumnsThatShrinkBeyondTheBoundStayDecodable) {
  // Rows without changes would be encoded to nearly nothing, which a reader could not tell from a
  // decompression bomb.
  const TensorSpec spec{"still", DType::kUInt8, {1'000'000}};
  const std::vector<Bytes> rows(50, Bytes(1'000'000));
  for (const CodecId codec : {CodecId::kLz4, CodecId::kZstd}) {
    const Bytes bytes = encode(codec, spec, rows);
    EXPECT_GE(bytes.size(), 50'000'000 / kExpansionMax);
    EXPECT_LE(bytes.size(), 50'000'000 / 400);
    const Result<ColumnRows> decoded = decode_column(codec, spec, rows.size(), bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(bytes_of((*decoded)[49]), rows[49]);
  }
}

TEST(ColumnDecoder, HeadersThatClaimMoreThanTheirBytesCanHoldTakeNoMemory) {
  const auto header = [](int first, std::uint32_t plain_bytes, std::size_t size) {
    Bytes bytes(size);
    bytes[0] = static_cast<std::byte>(first);
    std::memcpy(bytes.data() + 1, &plain_bytes, sizeof(plain_bytes));
    return bytes;
  };
  ColumnDecoder decoder;
  const auto open = [&](const TensorSpec& spec, std::size_t rows, const Bytes& bytes) {
    const Status status = decoder.open(CodecId::kLz4, spec, rows, bytes);
    EXPECT_LT(decoder.memory_bytes(), std::size_t{1} << 20);
    return status;
  };
  expect_refused(open(kFrames, 40, header(1, 2'000'000'000, 100)), StatusCode::kDataLoss,
                 {"'frame'", "2000000000"});
  const TensorSpec wide{"wide", DType::kUInt8, {std::int64_t{1} << 40}};
  expect_refused(open(wide, 1, header(1, 400'000, 100)), StatusCode::kDataLoss, {"'wide'"});
  expect_refused(open(wide, 0, header(1, 0, 5)), StatusCode::kDataLoss, {"'wide'"});
  expect_refused(open(kFrames, 40, header(3, 10, 100)), StatusCode::kDataLoss, {"filter 3"});
  expect_refused(open(kFrames, 40, header(2, 16'000, 100)), StatusCode::kDataLoss, {"'frame'"});
  expect_refused(open(kFrames, 1, header(0x80, 400, 404)), StatusCode::kDataLoss, {"'frame'"});
  EXPECT_TRUE(open(kFrames, 1, header(0x80, 400, 405)).ok());
}

TEST(ColumnDecoder, DamagedBytesAreRefusedOrGiveRowsOfTheRightSize) {
  Random random(std::uint64_t{3});
  ColumnDecoder decoder;
  for (const CodecId codec : {CodecId::kLz4, CodecId::kZstd}) {
    const Bytes bytes = encode(codec, kFrames, frames(12));
    int refused = 0;
    for (int i = 0; i < 2'000; ++i) {
      Bytes damaged = bytes;
      for (std::uint64_t n = 0; n <= random.below(3); ++n) {
        damaged[random.below(damaged.size())] = static_cast<std::byte>(random.below(256));
      }
      Status status = decoder.open(codec, kFrames, 12, damaged);
      for (std::size_t r = 0; r < 12 && status.ok(); ++r) {
        const Result<RowSpan> row = decoder.row(r);
        status = row.status();
        if (row.ok()) {
          EXPECT_EQ(row->size(), kSide * kSide);
        }
      }
      refused += status.ok() ? 0 : 1;
    }
    EXPECT_GT(refused, 100);
    // The decoder is still usable.
    ASSERT_TRUE(decoder.open(codec, kFrames, 12, bytes).ok());
    EXPECT_EQ(bytes_of(decoder.row(11).value()), testing::frame(11, kSide));
  }
}

}  // namespace
}  // namespace reverie
