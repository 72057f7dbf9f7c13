#include "reverie/codec/reverb_column.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

std::vector<std::byte> bytes_from(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// The bytes that a dm-reverb client was observed to send.
TEST(ReverbColumn, StringsAreEncodedAsLengthsFollowedByBytes) {
  const TensorSpec spec{"words", DType::kBytes, {3}};
  const std::vector<std::byte> row = strings({3}, {"a", "bcd", ""}).bytes;
  const std::vector<RowSpan> rows = {row};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kReverb, spec, rows, out).ok());
  EXPECT_EQ(out, bytes_from({1, 3, 0, 'a', 'b', 'c', 'd'}));
  const Result<ColumnRows> decoded = decode_column(CodecId::kReverb, spec, 1, out);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(bytes_of((*decoded)[0]), row);
}

TEST(ReverbColumn, AnEmptyColumnIsEncodedAsOneZeroByte) {
  const TensorSpec spec{"none", DType::kFloat32, {0}};
  const std::vector<RowSpan> rows = {{}};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kReverb, spec, rows, out).ok());
  EXPECT_EQ(out, bytes_from({0}));
}

TEST(ReverbColumn, DeltasAreFromThePreviousRowAndWrapAround) {
  const TensorSpec spec{"x", DType::kUInt8, {2}};
  const std::vector<std::byte> plain = bytes_from({250, 1, 4, 0, 3, 255});
  const std::vector<RowSpan> rows = {std::span(plain).subspan(0, 2), std::span(plain).subspan(2, 2),
                                     std::span(plain).subspan(4, 2)};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kReverbDelta, spec, rows, out).ok());
  const Result<ColumnRows> differences = decode_column(CodecId::kReverb, spec, 3, out);
  ASSERT_TRUE(differences.ok());
  EXPECT_EQ(bytes_of((*differences)[0]), bytes_from({250, 1}));
  EXPECT_EQ(bytes_of((*differences)[1]), bytes_from({10, 255}));
  EXPECT_EQ(bytes_of((*differences)[2]), bytes_from({255, 255}));
  const Result<ColumnRows> decoded = decode_column(CodecId::kReverbDelta, spec, 3, out);
  ASSERT_TRUE(decoded.ok());
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(bytes_of((*decoded)[r]), bytes_of(rows[r]));
}

TEST(ReverbColumn, DeltaAppliesToIntegersThatAreNotScalars) {
  EXPECT_TRUE(reverb_delta_applies({"", DType::kInt64, {1}}));
  EXPECT_TRUE(reverb_delta_applies({"", DType::kUInt8, {84, 84}}));
  EXPECT_FALSE(reverb_delta_applies({"", DType::kInt64, {}}));
  EXPECT_FALSE(reverb_delta_applies({"", DType::kFloat32, {3}}));
  EXPECT_FALSE(reverb_delta_applies({"", DType::kBool, {3}}));
  EXPECT_FALSE(reverb_delta_applies({"", DType::kString, {3}}));
}

TEST(ReverbColumn, ABlockThatClaimsMoreThanItCanHoldIsRefused) {
  // Snappy's varint for 2^31 bytes, and nothing after it.
  const std::vector<std::byte> bytes = bytes_from({0x80, 0x80, 0x80, 0x80, 0x08, 0});
  expect_refused(
      decode_column(CodecId::kReverb, {"x", DType::kUInt8, {1 << 20}}, 1 << 11, bytes).status(),
      StatusCode::kDataLoss, {"'x'", "2048 rows"});
}

}  // namespace
}  // namespace reverie
