#include "reverie/base/stream_copy.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 9u));
  return bytes;
}

TEST(StreamCopy, CopiesAnySizeAtAnyAlignmentWithoutWritingOutside) {
  constexpr std::size_t kMargin = 128;
  const std::vector<std::byte> from = pattern(kStreamCopyMin + 3 * kMargin);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, kStreamCopyMin - 1, kStreamCopyMin,
        kStreamCopyMin + 1, kStreamCopyMin + 63, kStreamCopyMin + 129}) {
    for (const std::size_t to_offset : {0u, 1u, 15u, 63u, 64u}) {
      for (const std::size_t from_offset : {0u, 7u, 16u}) {
        std::vector<std::byte> to(size + 2 * kMargin, std::byte{0xee});
        const auto source = std::span(from).subspan(from_offset, size);
        stream_copy(std::span(to).subspan(to_offset, size), source);
        EXPECT_TRUE(std::equal(source.begin(), source.end(), to.begin() + to_offset))
            << size << " bytes from " << from_offset << " to " << to_offset;
        const auto is_margin = [](std::byte byte) { return byte == std::byte{0xee}; };
        EXPECT_TRUE(std::all_of(to.begin(), to.begin() + to_offset, is_margin));
        EXPECT_TRUE(std::all_of(to.begin() + to_offset + size, to.end(), is_margin));
      }
    }
  }
}

TEST(StreamCopy, AnotherThreadSeesTheBytesAfterAReleaseStore) {
  constexpr std::size_t kSize = kStreamCopyMin * 2;
  std::vector<std::byte> to(kSize);
  std::atomic<int> round{0};
  std::jthread reader([&] {
    for (int i = 1; i <= 200; ++i) {
      int seen = 0;
      while ((seen = round.load(std::memory_order_acquire)) != 2 * i - 1) round.wait(seen);
      EXPECT_TRUE(std::all_of(to.begin(), to.end(),
                              [i](std::byte byte) { return byte == static_cast<std::byte>(i); }));
      round.store(2 * i, std::memory_order_release);
      round.notify_all();
    }
  });
  for (int i = 1; i <= 200; ++i) {
    const std::vector<std::byte> from(kSize, static_cast<std::byte>(i));
    stream_copy(to, from);
    round.store(2 * i - 1, std::memory_order_release);
    round.notify_all();
    int seen = 0;
    while ((seen = round.load(std::memory_order_acquire)) != 2 * i) round.wait(seen);
  }
}

}  // namespace
}  // namespace reverie
