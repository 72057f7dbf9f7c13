#include "reverie/os/byte_ring.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/clock.h"
#include "reverie/base/random.h"
#include "reverie/os/futex.h"
#include "reverie/os/shared_memory.h"
#include "tests/scale.h"

namespace reverie {
namespace {

constexpr std::size_t kRing = 4096;

std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>(position * 31 + (position >> 9u));
}

struct Ring {
  SharedMemory memory =
      std::move(SharedMemory::create("byte-ring-test", kRingPageBytes + kRing)).value();
  RingPage& page = *reinterpret_cast<RingPage*>(memory.bytes().data());
  RingWriter writer{memory.bytes()};
  RingReader reader{memory.bytes()};
};

// Writes up to `size` bytes of the pattern, from `position` on, in two pieces.
std::size_t write_pattern(RingWriter& writer, std::uint64_t position, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = byte_at(position + i);
  const std::span<const std::byte> all(bytes);
  const std::array<std::span<const std::byte>, 2> pieces = {all.first(size / 3),
                                                            all.subspan(size / 3)};
  const Result<std::size_t> written = writer.write(pieces);
  EXPECT_TRUE(written.ok()) << written.status().to_string();
  return written.ok() ? *written : 0;
}

TEST(ByteRing, GivesTheBytesInOrderHoweverTheyAreCut) {
  Ring ring;
  Random draws(std::uint64_t{7});
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  std::vector<std::byte> into(kRing);
  for (int turn = 0; turn < scaled(20'000, 500'000); ++turn) {
    const std::size_t wanted = draws.next() % (kRing + 100);
    const std::size_t room = kRing - static_cast<std::size_t>(written - read);
    const std::size_t size = write_pattern(ring.writer, written, wanted);
    ASSERT_EQ(size, std::min(wanted, room));
    written += size;
    ASSERT_EQ(ring.reader.has_input(), written > read);
    const Result<std::size_t> got =
        ring.reader.read(std::span(into).first(draws.next() % (kRing + 1)));
    ASSERT_TRUE(got.ok());
    for (std::size_t i = 0; i < *got; ++i) ASSERT_EQ(into[i], byte_at(read + i));
    read += *got;
  }
}

TEST(ByteRing, RefusesInvalidPositions) {
  std::array<std::byte, kRing> into;
  for (const std::uint64_t rubbish : {std::uint64_t{kRing + 1}, ~std::uint64_t{0}}) {
    Ring ring;
    ring.page.tail.store(rubbish);
    EXPECT_TRUE(ring.reader.has_input());
    EXPECT_EQ(ring.reader.read(into).status().code(), StatusCode::kDataLoss);
    ring.page.head.store(rubbish);
    const std::array<std::span<const std::byte>, 1> piece = {into};
    EXPECT_EQ(ring.writer.write(piece).status().code(), StatusCode::kDataLoss);
  }
  Ring ring;  // for positions that go back
  ASSERT_EQ(write_pattern(ring.writer, 0, 100), 100u);
  ASSERT_EQ(*ring.reader.read(std::span(into).first(50)), 50u);
  ring.page.tail.store(10);
  EXPECT_EQ(ring.reader.read(into).status().code(), StatusCode::kDataLoss);
  ASSERT_EQ(write_pattern(ring.writer, 100, 10), 10u);
  ring.page.head.store(10);
  const std::array<std::span<const std::byte>, 1> piece = {into};
  EXPECT_EQ(ring.writer.write(piece).status().code(), StatusCode::kDataLoss);
}

TEST(ByteRing, TellsOneCallerThatTheOtherSideSleeps) {
  Ring ring;
  EXPECT_FALSE(ring.writer.needs_doorbell());
  EXPECT_TRUE(ring.reader.request_doorbell());
  ASSERT_EQ(write_pattern(ring.writer, 0, kRing), kRing);
  EXPECT_TRUE(ring.writer.needs_doorbell());
  EXPECT_FALSE(ring.writer.needs_doorbell());
  EXPECT_FALSE(ring.reader.request_doorbell());  // there is something to read
  EXPECT_TRUE(ring.writer.request_doorbell());
  std::array<std::byte, kRing> into;
  ASSERT_EQ(*ring.reader.read(std::span(into).first(100)), 100u);
  EXPECT_FALSE(ring.reader.needs_doorbell());  // too little room to ring for
  ASSERT_EQ(*ring.reader.read(into), kRing - 100);
  EXPECT_TRUE(ring.reader.needs_doorbell());
  EXPECT_FALSE(ring.reader.needs_doorbell());
}

// Two threads that sleep as soon as they may: a lost wake-up would stop the test for ever.
TEST(ByteRing, LosesNoWakeUp) {
  Ring ring;
  const auto total = static_cast<std::uint64_t>(scaled(2'000'000, 100'000'000));
  FutexWord reader_bell{0};
  FutexWord writer_bell{0};
  const auto ring_doorbell = [](FutexWord& bell) {
    bell.fetch_add(1);
    futex_wake_all(bell);
  };
  constexpr Duration kLong = std::chrono::seconds(60);
  std::uint64_t lost = 0;
  std::thread writes([&] {
    Random draws(std::uint64_t{1});
    std::uint64_t written = 0;
    while (written < total) {
      const std::uint32_t seen = writer_bell.load();
      const std::size_t size = std::min<std::uint64_t>(draws.next() % 1000 + 1, total - written);
      const std::size_t done = write_pattern(ring.writer, written, size);
      written += done;
      if (ring.writer.needs_doorbell()) ring_doorbell(reader_bell);
      if (done == 0 && ring.writer.request_doorbell()) futex_wait(writer_bell, seen, kLong);
    }
  });
  Random draws(std::uint64_t{2});
  std::uint64_t read = 0;
  std::array<std::byte, 1500> into;
  while (read < total) {
    const std::uint32_t seen = reader_bell.load();
    const Result<std::size_t> got =
        ring.reader.read(std::span(into).first(draws.next() % into.size() + 1));
    ASSERT_TRUE(got.ok());
    for (std::size_t i = 0; i < *got; ++i) lost += into[i] == byte_at(read + i) ? 0 : 1;
    read += *got;
    if (ring.reader.needs_doorbell()) ring_doorbell(writer_bell);
    if (*got == 0 && ring.reader.request_doorbell()) futex_wait(reader_bell, seen, kLong);
  }
  writes.join();
  EXPECT_EQ(lost, 0u);
}

}  // namespace
}  // namespace reverie
