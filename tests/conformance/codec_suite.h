// What every codec must do: return rows unchanged, and refuse bytes that it did not write, without
// reading outside of them. A codec joins with one line:
//
//     INSTANTIATE_TEST_SUITE_P(Raw, CodecSuite, ::testing::Values(CodecId::kRaw));
#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/codec/column_codec.h"
#include "reverie/codec/reverb_column.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {

class CodecSuite : public ::testing::TestWithParam<CodecId> {
 protected:
  using Rows = std::vector<std::vector<std::byte>>;

  static std::vector<std::byte> encode(const TensorSpec& spec, const Rows& rows) {
    const std::vector<RowSpan> spans(rows.begin(), rows.end());
    std::vector<std::byte> out;
    EXPECT_TRUE(encode_column(GetParam(), spec, spans, out).ok());
    return out;
  }
  static Result<ColumnRows> decode(const TensorSpec& spec, std::size_t rows,
                                   std::span<const std::byte> bytes) {
    Result<ColumnRows> decoded = decode_column(GetParam(), spec, rows, bytes);
    // Bytes that check_column() refuses must not be decodable.
    if (decoded.ok()) {
      const Status checked = check_column(GetParam(), spec, rows, bytes);
      EXPECT_TRUE(checked.ok()) << checked.to_string();
    }
    return decoded;
  }
  static void expect_round_trip(const TensorSpec& spec, const Rows& rows) {
    const std::vector<std::byte> bytes = encode(spec, rows);
    const Result<ColumnRows> decoded = decode(spec, rows.size(), bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      ASSERT_EQ(bytes_of((*decoded)[r]), rows[r]) << spec_text(spec) << " row " << r;
    }
  }
  // Random rows of `spec`: noise, or values that repeat.
  static Rows random_rows(const TensorSpec& spec, std::size_t count, bool noise, Random& random) {
    Rows rows(count);
    const auto elements = static_cast<std::size_t>(element_count(spec.shape));
    for (auto& row : rows) {
      if (has_variable_size(spec.dtype)) {
        std::vector<std::string> words;
        for (std::size_t e = 0; e < elements; ++e) {
          words.emplace_back(random.below(20),
                             static_cast<char>('a' + random.below(noise ? 26 : 2)));
        }
        row = strings(spec.shape, words).bytes;
      } else {
        row.resize(elements * dtype_size_bytes(spec.dtype));
        for (std::byte& b : row) b = static_cast<std::byte>(noise ? random.below(256) : 7);
      }
    }
    return rows;
  }
};

TEST_P(CodecSuite, RowsOfEveryTypeSurviveARoundTrip) {
  Random random(std::uint64_t{3});
  for (int dtype = 1; dtype <= static_cast<int>(DType::kString); ++dtype) {
    for (const Shape& shape : std::vector<Shape>{{}, {1}, {3}, {2, 5}, {0}, {4, 0, 2}}) {
      for (const std::size_t rows : {0u, 1u, 2u, 33u}) {
        const TensorSpec spec{"c", static_cast<DType>(dtype), shape};
        expect_round_trip(spec, random_rows(spec, rows, /*noise=*/false, random));
        expect_round_trip(spec, random_rows(spec, rows, /*noise=*/true, random));
      }
    }
  }
}

TEST_P(CodecSuite, UnsetCellsAmongRowsOfVaryingSizeAreDecodedAsEmpty) {
  if (is_reverb_codec(GetParam())) GTEST_SKIP() << "Reverb has no unset cells";
  const TensorSpec spec{"words", DType::kString, {2}};
  expect_round_trip(spec, {{}, strings({2}, {"a", "bc"}).bytes, {}, {}});
  expect_round_trip(spec, {{}, {}});
}

TEST_P(CodecSuite, TruncatedAndOverlongBytesAreRefused) {
  Random random(std::uint64_t{4});
  for (const TensorSpec& spec :
       {TensorSpec{"obs", DType::kFloat32, {3}}, TensorSpec{"words", DType::kBytes, {2}}}) {
    const std::vector<std::byte> bytes = encode(spec, random_rows(spec, 5, true, random));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // A separate allocation, so that the sanitizer detects a read past its end.
      const std::vector<std::byte> cut(bytes.begin(),
                                       bytes.begin() + static_cast<std::ptrdiff_t>(size));
      expect_refused(decode(spec, 5, cut).status(), StatusCode::kDataLoss, {spec.name});
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back(std::byte{0});
    expect_refused(decode(spec, 5, longer).status(), StatusCode::kDataLoss, {spec.name});
    EXPECT_FALSE(decode(spec, 4, bytes).ok());
    EXPECT_FALSE(decode(spec, 6, bytes).ok());
  }
}

TEST_P(CodecSuite, AnnouncedSizesBeyondTheBytesAreRefused) {
  const std::vector<std::byte> few(64);
  const std::size_t many = ~std::size_t{0};
  expect_refused(decode({"obs", DType::kFloat32, {3}}, many, few).status(), StatusCode::kDataLoss,
                 {"'obs'"});
  expect_refused(decode({"words", DType::kString, {}}, many, few).status(), StatusCode::kDataLoss,
                 {"'words'"});
  expect_refused(
      decode({"big", DType::kFloat64, {std::int64_t{1} << 50, 1 << 20}}, 1, few).status(),
      StatusCode::kDataLoss, {"'big'"});
  expect_refused(decode({"minus", DType::kFloat64, {-1}}, 1, few).status(), StatusCode::kDataLoss,
                 {"'minus'"});
  expect_refused(decode({"none", static_cast<DType>(0), {}}, 1, few).status(),
                 StatusCode::kDataLoss, {"'none'", "dtype"});
}

TEST_P(CodecSuite, DamagedBytesAreRefusedOrDecodedWithinBounds) {
  Random random(std::uint64_t{5});
  const TensorSpec spec{"words", DType::kString, {2}};
  const std::vector<std::byte> bytes = encode(spec, random_rows(spec, 6, true, random));
  for (int i = 0; i < 3'000; ++i) {
    std::vector<std::byte> damaged = bytes;
    for (std::uint64_t n = 0; n <= random.below(3); ++n) {
      damaged[random.below(damaged.size())] = static_cast<std::byte>(random.below(256));
    }
    const Result<ColumnRows> decoded = decode(spec, 6, damaged);
    if (!decoded.ok()) continue;
    for (std::size_t r = 0; r < 6; ++r) {
      const RowSpan row = (*decoded)[r];
      EXPECT_TRUE(row.empty() || are_sized_elements(row, 2));
    }
  }
}

}  // namespace reverie
