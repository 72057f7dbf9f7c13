#include "reverie/codec/column_codec.h"

#include <gtest/gtest.h>

#include "tests/conformance/codec_suite.h"

namespace reverie {
namespace {

INSTANTIATE_TEST_SUITE_P(Raw, CodecSuite, ::testing::Values(CodecId::kRaw));
INSTANTIATE_TEST_SUITE_P(Lz4, CodecSuite, ::testing::Values(CodecId::kLz4));
INSTANTIATE_TEST_SUITE_P(Zstd, CodecSuite, ::testing::Values(CodecId::kZstd));
INSTANTIATE_TEST_SUITE_P(Reverb, CodecSuite, ::testing::Values(CodecId::kReverb));
INSTANTIATE_TEST_SUITE_P(ReverbDelta, CodecSuite, ::testing::Values(CodecId::kReverbDelta));

TEST(RawCodec, RowsOfFixedSizeAreTheBytesThemselves) {
  const TensorSpec spec{"x", DType::kFloat32, {2}};
  const auto a = f32s({1, 2}).bytes;
  const auto b = f32s({3, 4}).bytes;
  const std::vector<RowSpan> rows = {a, b};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kRaw, spec, rows, out).ok());
  EXPECT_EQ(out, f32s({1, 2, 3, 4}).bytes);
}

TEST(RawCodec, RowsOfVaryingSizeStandBehindTheirSizes) {
  const TensorSpec spec{"x", DType::kBytes, {}};
  const auto row = text("ab").bytes;
  const std::vector<RowSpan> rows = {row, {}};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kRaw, spec, rows, out).ok());
  const std::vector<std::uint8_t> expected = {6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b'};
  EXPECT_EQ(out, value_of(DType::kUInt8, {14}, expected).bytes);
}

TEST(ColumnCodec, RefusesACodecThatItDoesNotKnow) {
  const auto unknown = static_cast<CodecId>(77);
  const TensorSpec spec{"x", DType::kFloat32, {}};
  expect_refused(decode_column(unknown, spec, 0, {}).status(), StatusCode::kDataLoss,
                 {"'x'", "77"});
  std::vector<std::byte> out;
  EXPECT_FALSE(encode_column(unknown, spec, {}, out).ok());
}

}  // namespace
}  // namespace reverie
