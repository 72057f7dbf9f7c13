#include "reverie/client/chunk_packer.h"

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/support/frames.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

constexpr std::size_t kSide = 20;

const Ref<ChunkSchema>& schema() {
  static const auto* const made = new Ref<ChunkSchema>(
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"frame", DType::kUInt8, {kSide, kSide}},
                                                    {"action", DType::kInt64, {}},
                                                    {"features", DType::kFloat32, {100}}}));
  return *made;
}

class PackerTest {
 public:
  explicit PackerTest(CodecChoice choice) : packer_(choice) {}

  // Seals a chunk of 10 rows, of images or of noise, as a writer does. Returns the codec of each
  // column; empty if the chunk stays raw.
  std::vector<CodecId> seal(bool noise, std::uint32_t rows = 10) {
    const auto kind = packer_.wants(*schema()) ? Chunk::Kind::kCompressible : Chunk::Kind::kRaw;
    const Ref<Chunk> chunk = Chunk::open(schema(), {}, 10, 0, Allocator::heap(), kind).value();
    for (std::uint32_t r = 0; r < rows; ++r) {
      std::vector<std::byte> frame = testing::frame(r, kSide);
      if (noise) {
        for (std::byte& b : frame) b = static_cast<std::byte>(random_.below(256));
      }
      chunk->set_row(0, r, frame);
      chunk->set_row(1, r, i64(r).bytes);
      chunk->set_row(2, r, f32s(std::vector<float>(100, 0.5f)).bytes);
    }
    chunk->publish(rows);
    if (kind == Chunk::Kind::kRaw) {
      packer_.note_unpacked();
      return {};
    }
    packer_.pack(*chunk, Allocator::heap());
    if (chunk->is_raw()) return {};
    std::vector<CodecId> codecs;
    for (std::size_t c = 0; c < 3; ++c) codecs.push_back(chunk->encoded_column(c).codec);
    return codecs;
  }
  const ChunkPacker& packer() const { return packer_; }

 private:
  ChunkPacker packer_;
  Random random_{std::uint64_t{1}};
};

TEST(ChunkPacker, AutoCompressesLargeIntegersAndLeavesTheRestRaw) {
  PackerTest test(CodecChoice::kAuto);
  EXPECT_EQ(test.seal(false), (std::vector<CodecId>{CodecId::kLz4, CodecId::kRaw, CodecId::kRaw}));
  EXPECT_GT(test.packer().packed_row_bytes(), 408);
  EXPECT_LT(test.packer().packed_row_bytes(), 808 * 0.7);
}

TEST(ChunkPacker, AChosenCodecIsUsedForColumnsThatShrink) {
  for (const auto& [choice, codec] : {std::pair(CodecChoice::kLz4, CodecId::kLz4),
                                      std::pair(CodecChoice::kZstd, CodecId::kZstd)}) {
    PackerTest test(choice);
    EXPECT_EQ(test.seal(false), (std::vector<CodecId>{codec, codec, codec}));
    EXPECT_EQ(test.seal(true), (std::vector<CodecId>{CodecId::kRaw, codec, codec})) << "noise";
  }
  PackerTest raw(CodecChoice::kRaw);
  EXPECT_TRUE(raw.seal(false).empty());
}

TEST(ChunkPacker, NoiseIsSkippedAfterThreeTriesAndTriedAgainLater) {
  PackerTest test(CodecChoice::kAuto);
  std::vector<int> tried;  // the chunks for which the packer tried the column
  for (int chunk = 0; chunk < 400; ++chunk) {
    if (test.packer().wants(*schema())) tried.push_back(chunk);
    EXPECT_TRUE(test.seal(true).empty());
  }
  EXPECT_EQ(tried, (std::vector<int>{0, 1, 2, 67, 196}));
  for (int chunk = 0; chunk < 300; ++chunk) {
    if (!test.seal(false).empty()) return;
  }
  FAIL() << "pictures that came later were never found";
}

TEST(ChunkPacker, APartlyFilledChunkIsPackedAndAnEmptyOneIsNot) {
  PackerTest test(CodecChoice::kAuto);
  EXPECT_FALSE(test.seal(false, 3).empty());
  EXPECT_TRUE(test.seal(false, 0).empty());
}

}  // namespace
}  // namespace reverie
