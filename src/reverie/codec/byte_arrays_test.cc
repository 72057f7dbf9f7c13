#include "reverie/codec/byte_arrays.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(ByteArrays, ReadWhatWasWritten) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  const std::array<float, 3> floats{1.5f, -0.0f, 3e38f};
  write_array<float>(floats, out);
  write_array<std::uint64_t>({}, out);
  EXPECT_EQ(bytes.size(), 8 + 12 + 8u);
  ByteReader in(bytes);
  EXPECT_EQ(read_array<float>(in), (std::vector<float>{1.5f, -0.0f, 3e38f}));
  EXPECT_EQ(read_array<std::uint64_t>(in), std::vector<std::uint64_t>());
  EXPECT_TRUE(check_done(in, "it").ok());
}

TEST(ByteArrays, RefuseACountThatTheBytesCannotHold) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).u64(std::uint64_t{1} << 60).u32(7);
  ByteReader in(bytes);
  EXPECT_TRUE(read_array<float>(in).empty());
  EXPECT_EQ(check_done(in, "it").code(), StatusCode::kDataLoss);
}

TEST(ByteArrays, EveryTruncatedPrefixIsRefused) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  const std::array<std::uint32_t, 4> numbers{1, 2, 3, 4};
  write_array<std::uint32_t>(numbers, out);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ByteReader in(std::span<const std::byte>(bytes).first(size));
    (void)read_array<std::uint32_t>(in);
    EXPECT_EQ(check_done(in, "it").code(), StatusCode::kDataLoss) << size;
  }
  bytes.push_back(std::byte{0});
  ByteReader in(bytes);
  (void)read_array<std::uint32_t>(in);
  EXPECT_EQ(check_done(in, "it").code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reverie
