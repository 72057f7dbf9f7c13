#include "reverie/codec/external_column.h"

#include <limits>

#include <gtest/gtest.h>

#include "reverie/codec/column_codec.h"

namespace reverie {
namespace {

const TensorSpec kExternalFrames{"frames", DType::kUInt8, {84, 84}};

std::vector<std::byte> external_bytes(const ExternalRange& range) {
  std::vector<std::byte> bytes;
  append_external(range, bytes);
  return bytes;
}

TEST(ExternalColumn, ARangeSurvivesARoundTrip) {
  const ExternalRange range{"videos/7.raw", 128, std::uint64_t{9} << 40, 12};
  const auto read = read_external(kExternalFrames, external_bytes(range));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, range);
}

TEST(ExternalColumn, InvalidRangesAreRefused) {
  const ExternalRange good{"a", 1, 2, 0};
  std::vector<ExternalRange> bad(5, good);
  bad[0].file = "";
  bad[1].file = std::string(ExternalRange::kFileBytesMax + 1, 'a');
  bad[2].file = std::string("a\0b", 3);
  bad[3].offset = std::numeric_limits<std::uint64_t>::max();
  bad[4].size_bytes = std::numeric_limits<std::int64_t>::max();
  for (const ExternalRange& range : bad) {
    EXPECT_EQ(check_external(range).code(), StatusCode::kInvalidArgument) << range.file;
    EXPECT_EQ(read_external(kExternalFrames, external_bytes(range)).status().code(),
              StatusCode::kDataLoss);
  }
  const std::vector<std::byte> whole = external_bytes(good);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = std::span(whole).first(size);
    EXPECT_EQ(check_column(CodecId::kExternal, kExternalFrames, 3, cut).code(),
              StatusCode::kDataLoss);
  }
  EXPECT_TRUE(check_column(CodecId::kExternal, kExternalFrames, 3, whole).ok());
}

TEST(ExternalColumn, IsNotDecodedWithoutAResolver) {
  const auto decoded =
      decode_column(CodecId::kExternal, kExternalFrames, 3, external_bytes({"a.raw", 0, 9, 0}));
  EXPECT_EQ(decoded.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(decoded.status().message().find("a.raw"), std::string::npos);
}

TEST(ExternalColumn, RowsOfVaryingSizeAreRefused) {
  const TensorSpec text{"text", DType::kString, {}};
  EXPECT_EQ(check_column(CodecId::kExternal, text, 3, external_bytes({"a.raw", 0, 9, 0})).code(),
            StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reverie
