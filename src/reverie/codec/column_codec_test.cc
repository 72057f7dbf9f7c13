#include "reverie/codec/column_codec.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/codec/block_codec.h"
#include "tests/conformance/codec_suite.h"
#include "tests/support/no_more_memory.h"
#include "tests/support/resident.h"

namespace reverie {
namespace {

INSTANTIATE_TEST_SUITE_P(Raw, CodecSuite, ::testing::Values(CodecId::kRaw));
INSTANTIATE_TEST_SUITE_P(Lz4, CodecSuite, ::testing::Values(CodecId::kLz4));
INSTANTIATE_TEST_SUITE_P(Zstd, CodecSuite, ::testing::Values(CodecId::kZstd));
INSTANTIATE_TEST_SUITE_P(Reverb, CodecSuite, ::testing::Values(CodecId::kReverb));
INSTANTIATE_TEST_SUITE_P(ReverbDelta, CodecSuite, ::testing::Values(CodecId::kReverbDelta));

TEST(RawCodec, FixedSizeRowsAreStoredAsTheirBytes) {
  const TensorSpec spec{"x", DType::kFloat32, {2}};
  const auto a = f32s({1, 2}).bytes;
  const auto b = f32s({3, 4}).bytes;
  const std::vector<RowSpan> rows = {a, b};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kRaw, spec, rows, out).ok());
  EXPECT_EQ(out, f32s({1, 2, 3, 4}).bytes);
}

TEST(RawCodec, VaryingSizeRowsAreStoredAfterTheirSizes) {
  const TensorSpec spec{"x", DType::kBytes, {}};
  const auto row = text("ab").bytes;
  const std::vector<RowSpan> rows = {row, {}};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_column(CodecId::kRaw, spec, rows, out).ok());
  const std::vector<std::uint8_t> expected = {6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b'};
  EXPECT_EQ(out, value_of(DType::kUInt8, {14}, expected).bytes);
}

// Wrong lengths, and any mistake of a Snappy block, are found without decoding.
TEST(ColumnCodec, DetectsWrongLengthsWithoutDecoding) {
  const auto row = f32s({1, 2, 3, 4}).bytes;
  const std::vector<RowSpan> rows(5, row);
  const TensorSpec spec{"x", DType::kFloat32, {4}};
  for (const CodecId codec : {CodecId::kRaw, CodecId::kLz4, CodecId::kZstd, CodecId::kReverb}) {
    std::vector<std::byte> bytes;
    ASSERT_TRUE(encode_column(codec, spec, rows, bytes).ok());
    EXPECT_TRUE(check_column(codec, spec, 5, bytes).ok());
    EXPECT_FALSE(check_column(codec, spec, 6, bytes).ok()) << static_cast<int>(codec);
    EXPECT_FALSE(check_column(codec, {"x", DType::kFloat32, {5}}, 5, bytes).ok());
    EXPECT_FALSE(check_column(codec, spec, 5, {}).ok());
    EXPECT_FALSE(check_column(codec, spec, 5, std::span(bytes).first(3)).ok());
  }
}

TEST(ColumnCodec, DetectsAnyDamageToASnappyBlockWithoutDecoding) {
  const TensorSpec spec{"x", DType::kFloat32, {4}};
  std::vector<float> numbers(40);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7);
  std::vector<RowSpan> rows;
  for (std::size_t r = 0; r < 10; ++r) {
    rows.push_back(std::as_bytes(std::span(numbers).subspan(4 * r, 4)));
  }
  std::vector<std::byte> whole;
  ASSERT_TRUE(encode_column(CodecId::kReverb, spec, rows, whole).ok());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const auto flip : {0x01, 0x80, 0xff}) {
      std::vector<std::byte> changed = whole;
      changed[i] ^= static_cast<std::byte>(flip);
      EXPECT_EQ(check_column(CodecId::kReverb, spec, 10, changed).ok(),
                decode_column(CodecId::kReverb, spec, 10, changed).ok())
          << i;
    }
  }
  const TensorSpec strings{"s", DType::kBytes, {}};
  const auto a = text("abc").bytes;
  std::vector<std::byte> texts;
  ASSERT_TRUE(encode_column(CodecId::kReverb, strings, std::vector<RowSpan>{a, a}, texts).ok());
  EXPECT_TRUE(check_column(CodecId::kReverb, strings, 2, texts).ok());
  EXPECT_FALSE(check_column(CodecId::kReverb, strings, 3, texts).ok());
  texts.pop_back();
  EXPECT_FALSE(check_column(CodecId::kReverb, strings, 2, texts).ok());
}

TEST(ColumnCodec, BoundsTheDecodedSizeOfAChunk) {
  EXPECT_TRUE(may_unfold_to(kUnfoldedBytesMax, 1));
  EXPECT_FALSE(may_unfold_to(kUnfoldedBytesMax + 8, kUnfoldedBytesMax / kUnfoldedRatioMax));
  EXPECT_TRUE(may_unfold_to(kUnfoldedBytesMax * 4, kUnfoldedBytesMax / 2));
}

// No byte of the row is read, so the system gives it no memory.
TEST(ColumnCodec, AColumnThatIsTooLargeToBeCompressedIsRefusedWithItsBound) {
  constexpr std::size_t kBound = kBlockBytesMax / 2;
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(kBound + 1);
  const TensorSpec spec{"x", DType::kUInt8, {kBound + 1}};
  const RowSpan row(memory.get(), kBound + 1);
  std::vector<std::byte> out;
  expect_refused(encode_column(CodecId::kLz4, spec, {&row, 1}, out), StatusCode::kResourceExhausted,
                 {"'x'", std::to_string(kBound + 1), "may have " + std::to_string(kBound) + ";"});
}

// Whether a block is refused while the process gets no more memory, and compressed afterwards.
bool is_refused_without_memory() {
  const std::vector<std::byte> plain(1 << 20, std::byte{7});
  std::vector<std::byte> block;
  block.reserve(4 << 20);
  bool is_refused = false;
  struct Taken {
    Taken* next;
  };
  Taken* taken = nullptr;
  {
    const testing::NoMoreMemory none;
    // Also what the process still has, except for small pieces.
    for (std::size_t size = 1 << 20; size >= std::size_t{1} << 16; size /= 2) {
      while (void* const memory = ::operator new(size, std::nothrow)) {
        taken = new (memory) Taken{taken};
      }
    }
    try {
      compress_block(CodecId::kZstd, plain, block);
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
  }
  while (taken != nullptr) ::operator delete(std::exchange(taken, taken->next));
  block.clear();
  compress_block(CodecId::kZstd, plain, block);
  std::vector<std::byte> again(plain.size());
  return is_refused && decompress_block(CodecId::kZstd, block, again) && again == plain;
}

// In a process of its own: contexts of earlier calls have their memory already.
TEST(BlockCodecDeathTest, WithoutMemoryForZstdABlockIsRefused) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "a sanitizer maps memory of its own";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(is_refused_without_memory() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(ColumnCodec, RefusesAnUnknownCodec) {
  const auto unknown = static_cast<CodecId>(77);
  const TensorSpec spec{"x", DType::kFloat32, {}};
  expect_refused(decode_column(unknown, spec, 0, {}).status(), StatusCode::kDataLoss,
                 {"'x'", "77"});
  std::vector<std::byte> out;
  EXPECT_FALSE(encode_column(unknown, spec, {}, out).ok());
}

}  // namespace
}  // namespace reverie
