#include "reverie/rpc/frame.h"

#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace reverie {
namespace {

Message message_of(std::string name, std::size_t head, std::vector<std::size_t> bulk) {
  Message message;
  message.name = std::move(name);
  for (std::size_t i = 0; i < head; ++i) {
    message.payload.head.push_back(static_cast<std::byte>(i * 7));
  }
  for (const std::size_t size : bulk) {
    auto bytes = std::make_shared<std::vector<std::byte>>(size, static_cast<std::byte>(size));
    const std::span<const std::byte> view = *bytes;
    message.payload.bulk.push_back({view, std::move(bytes)});
  }
  return message;
}

// The bytes of a frame as a connection carries them.
std::vector<std::byte> bytes_of(const FrameHeader& header, const Message& message) {
  const auto head = encode_frame_header(header, message);
  std::vector<std::byte> bytes(head.begin(), head.end());
  const auto name = std::as_bytes(std::span(message.name));
  bytes.insert(bytes.end(), name.begin(), name.end());
  bytes.insert(bytes.end(), message.payload.head.begin(), message.payload.head.end());
  const std::size_t bulk = bytes.size();
  for (const BulkPiece& piece : message.payload.bulk) {
    bytes.resize(bulk + Payload::padded(bytes.size() - bulk));
    bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
  }
  return bytes;
}

TEST(FrameReader, RestoresFramesHoweverTheStreamIsCut) {
  const Message messages[] = {message_of("f", 5, {}), message_of("", 0, {}),
                              message_of("policy", 300, {1, 64, 100'000}),
                              message_of("g", 40'000, {7})};
  std::vector<std::byte> stream;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto bytes = bytes_of({FrameKind::kCall, i + 1, 10 * i, 100 * i}, messages[i]);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 rng(seed);
    FrameReader reader{FrameLimits()};
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < stream.size();) {
      const std::span<std::byte> direct = reader.direct();
      std::size_t size = std::min<std::size_t>(1 + rng() % 50'000, stream.size() - at);
      if (!direct.empty()) {
        size = std::min(size, direct.size());
        std::memcpy(direct.data(), stream.data() + at, size);
        reader.advance(size, frames);
      } else {
        ASSERT_TRUE(reader.feed(std::span(stream).subspan(at, size), frames).ok());
      }
      at += size;
    }
    ASSERT_EQ(frames.size(), 4u);
    for (std::uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(frames[i].header.sequence, i + 1);
      EXPECT_EQ(frames[i].header.received, 10 * i);
      EXPECT_EQ(frames[i].header.call, 100 * i);
      EXPECT_EQ(frames[i].message.name, messages[i].name);
      EXPECT_EQ(frames[i].message.payload.head, messages[i].payload.head);
      EXPECT_EQ(bytes_of(frames[i].header, frames[i].message),
                bytes_of({FrameKind::kCall, i + 1, 10 * i, 100 * i}, messages[i]));
    }
  }
}

TEST(FrameReader, AllocatesMemoryForALongHeadAsItArrives) {
  constexpr std::size_t kHead = std::size_t{3} << 20;
  std::vector<std::byte> stream = bytes_of({FrameKind::kCall, 1, 0, 1}, message_of("f", kHead, {}));
  FrameReader reader{FrameLimits()};
  std::vector<Frame> frames;
  std::size_t at = 0;
  while (at < stream.size()) {
    const std::span<std::byte> direct = reader.direct();
    EXPECT_LE(direct.size(), std::max(4 * at, std::size_t{64} << 10));
    const std::size_t size = std::min(direct.empty() ? 10'000 : direct.size(), stream.size() - at);
    if (direct.empty()) {
      ASSERT_TRUE(reader.feed(std::span(stream).subspan(at, size), frames).ok());
    } else {
      std::memcpy(direct.data(), &stream[at], size);
      reader.advance(size, frames);
    }
    at += size;
  }
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].message.payload.head, message_of("f", kHead, {}).payload.head);
}

TEST(FrameReader, RefusesInvalidFramesAndThoseBeyondItsLimits) {
  const auto good = bytes_of({FrameKind::kCall, 1, 0, 1}, message_of("f", 10, {}));
  const auto status_of = [](std::vector<std::byte> bytes, FrameLimits limits) {
    FrameReader reader(limits);
    std::vector<Frame> frames;
    return reader.feed(bytes, frames).code();
  };
  EXPECT_EQ(status_of(good, FrameLimits()), StatusCode::kOk);
  // Changes magic, kind, reserved bytes; and a bulk size to 2^63, for which no memory is allocated.
  for (const std::size_t at : {0u, 3u, 4u, 5u, 12u, 15u, 23u}) {
    auto bad = good;
    bad[at] ^= std::byte{0x80};
    const StatusCode code =
        at == 23 ? StatusCode::kResourceExhausted : StatusCode::kInvalidArgument;
    EXPECT_EQ(status_of(bad, FrameLimits()), code) << at;
  }
  EXPECT_EQ(status_of(good, FrameLimits::stranger()), StatusCode::kResourceExhausted);
}

TEST(FrameReader, BulkInAnArenaIsRequestedByItsRange) {
  const auto bulk = std::make_shared<std::vector<std::byte>>(1000, std::byte{5});
  Message message = message_of("f", 10, {1000});
  const ArenaRange range{.arena = 0, .offset = 8192, .size_bytes = 1000, .generation = 3};
  const auto header = encode_frame_header({FrameKind::kCall, 1, 0, 1}, message, true);
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.push_back(std::byte{'f'});
  bytes.insert(bytes.end(), message.payload.head.begin(), message.payload.head.end());
  const auto tail = encode_range(range);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  const auto next = bytes_of({FrameKind::kCall, 2, 0, 2}, message_of("g", 3, {70}));
  bytes.insert(bytes.end(), next.begin(), next.end());

  const auto status_of = [&](std::size_t step, FrameReader::BulkSource source,
                             std::vector<Frame>& frames) {
    FrameReader reader{FrameLimits()};
    if (source) reader.set_bulk_source(std::move(source));
    Status status;
    for (std::size_t at = 0; at < bytes.size() && status.ok(); at += step) {
      status = reader.feed(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)), frames);
    }
    return status.code();
  };
  const std::span<const std::byte> view = *bulk;
  for (const std::size_t step : {1ul, 7ul, 1000ul}) {
    std::vector<Frame> frames;
    EXPECT_EQ(status_of(
                  step,
                  [&](const ArenaRange& asked) -> Result<ArenaBytes> {
                    EXPECT_EQ(asked, range);
                    return ArenaBytes{*bulk, bulk};
                  },
                  frames),
              StatusCode::kOk);
    ASSERT_EQ(frames.size(), 2u);
    ASSERT_EQ(frames[0].message.payload.bulk.size(), 1u);
    EXPECT_EQ(frames[0].message.payload.bulk[0].bytes.data(), view.data());
    EXPECT_EQ(frames[1].message.payload.bulk[0].bytes.size(), 70u);
  }
  std::vector<Frame> frames;
  EXPECT_EQ(status_of(7, nullptr, frames), StatusCode::kInvalidArgument) << "no arena is shared";
  EXPECT_EQ(
      status_of(
          7, [](const ArenaRange&) -> Result<ArenaBytes> { return data_loss("no range"); }, frames),
      StatusCode::kDataLoss);
  bytes[48 + 1 + 10 + 8] ^= std::byte{1};  // a size that differs from the header's
  EXPECT_EQ(status_of(
                7,
                [&](const ArenaRange&) -> Result<ArenaBytes> {
                  return ArenaBytes{*bulk, bulk};
                },
                frames),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reverie
