#include "reverie/codec/column_codec.h"

#include <gtest/gtest.h>

#include "tests/conformance/codec_suite.h"

namespace reverie {
namespace {

INSTANTIATE_TEST_SUITE_P(Raw, CodecSuite, ::testing::Values(CodecId::kRaw));

TEST(RawCodec, RowsOfFixedSizeAreTheBytesThemselves) {
  const TensorSpec spec{"x", DType::kFloat32, {2}};
  const auto a = f32s({1, 2}).bytes;
  const auto b = f32s({3, 4}).bytes;
  const std::vector<RowSpan> rows = {a, b};
  std::vector<std::byte> out(encoded_size_bytes(CodecId::kRaw, spec, rows).value());
  encode_column(CodecId::kRaw, spec, rows, out);
  EXPECT_EQ(out, f32s({1, 2, 3, 4}).bytes);
}

TEST(RawCodec, RowsOfVaryingSizeStandBehindTheirSizes) {
  const TensorSpec spec{"x", DType::kBytes, {}};
  const auto row = text("ab").bytes;
  const std::vector<RowSpan> rows = {row, {}};
  std::vector<std::byte> out(encoded_size_bytes(CodecId::kRaw, spec, rows).value());
  encode_column(CodecId::kRaw, spec, rows, out);
  const std::vector<std::uint8_t> expected = {6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b'};
  EXPECT_EQ(out, value_of(DType::kUInt8, {14}, expected).bytes);
}

TEST(ColumnCodec, RefusesACodecThatItDoesNotKnow) {
  const auto unknown = static_cast<CodecId>(77);
  const TensorSpec spec{"x", DType::kFloat32, {}};
  expect_refused(decode_column(unknown, spec, 0, {}).status(), StatusCode::kDataLoss,
                 {"'x'", "77"});
  EXPECT_FALSE(encoded_size_bytes(unknown, spec, {}).ok());
}

}  // namespace
}  // namespace reverie
