#include "reverie/codec/crc32c.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/codec/byte_stream.h"

namespace reverie {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Computes the checksum bit by bit from the polynomial.
std::uint32_t by_bits(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

// The vectors of RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, MatchesThePublishedVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, AgreesInAllImplementationsAndContinuesFromAPrefix) {
  Random random(7);
  std::vector<std::byte> bytes(300);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  for (std::size_t size = 0; size <= bytes.size(); size += 1 + random.below(7)) {
    const auto part = std::span(bytes).first(size);
    ASSERT_EQ(crc32c(part), by_bits(part));
    ASSERT_EQ(crc32c_portable(part), by_bits(part));
    const std::size_t cut = random.below(size + 1);
    ASSERT_EQ(crc32c(part.subspan(cut), crc32c(part.first(cut))), crc32c(part));
    ASSERT_EQ(crc32c_portable(part.subspan(cut), crc32c(part.first(cut))), crc32c(part));
  }
}

TEST(ByteStream, ReadsWhatWasWrittenLittleEndian) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).u8(7).u32(0x01020304).i64(-2).f64(0.5).f32(-1.5f).text("name");
  EXPECT_EQ(bytes[1], std::byte{4});
  ByteReader in(bytes);
  EXPECT_EQ(in.u8(), 7);
  EXPECT_EQ(in.u32(), 0x01020304u);
  EXPECT_EQ(in.i64(), -2);
  EXPECT_EQ(in.f64(), 0.5);
  EXPECT_EQ(in.f32(), -1.5f);
  EXPECT_EQ(in.text(), "name");
  EXPECT_TRUE(in.is_done());
}

TEST(ByteStream, AReaderThatRunsOutReportsItAndReturnsZeros) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).u32(1'000'000).u32(5);
  ByteReader in(bytes);
  EXPECT_EQ(in.count32(4), 0u);  // fewer bytes are left than such a count needs
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.u32(), 0u);
  EXPECT_EQ(in.text(), "");
  ByteReader text(bytes);
  EXPECT_EQ(text.text(), "");
  EXPECT_FALSE(text.is_done());
}

}  // namespace
}  // namespace reverie
