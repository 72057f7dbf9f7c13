#include "reverie/grpc/field_scan.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/grpc/message_reader.h"
#include "reverie/reverb_wire/requests.h"

namespace reverie {
namespace {

using wire::bytes_of;
using wire::text_of;

constexpr std::size_t kMin = FieldScan::kApartBytesMin;

std::string bytes_field(std::uint32_t number, std::string_view content) {
  std::string text;
  wire::put_message(text, number, content);
  return text;
}

std::string content_of(std::size_t size_bytes, char first = 'a') {
  std::string text(size_bytes, ' ');
  for (std::size_t i = 0; i < size_bytes; ++i) text[i] = static_cast<char>(first + i * i % 23);
  return text;
}

// A received message: the part that is left, and the contents that were kept apart.
struct Received {
  std::string left;
  std::vector<std::pair<std::size_t, std::string>> parts;
  std::size_t memory_bytes = 0;

  friend bool operator==(const Received&, const Received&) = default;
};

enum class Way { kCopied, kInPlace };

// Feeds a reader the message in pieces of `piece` bytes, or as it asks for room.
Received receive(const std::string& message, std::size_t piece, Way way = Way::kCopied) {
  std::string bytes(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(message.size() >> static_cast<unsigned>(shift));
  }
  bytes += message;
  const auto budget = std::make_shared<ConnectionBudget>(std::size_t{1} << 30);
  MessageReader reader(std::size_t{1} << 30, make_ref<MessagePool>(), budget);
  reader.set_apart(1);
  Ref<GrpcMessage> whole;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t size = std::min(piece, bytes.size() - at);
    auto part = std::as_bytes(std::span(bytes)).subspan(at, size);
    if (const auto room = reader.room(); way == Way::kInPlace && !room.empty()) {
      size = std::min(size, room.size());
      std::copy_n(part.begin(), size, room.begin());
      part = room.first(size);
    }
    at += size;
    while (!part.empty()) {
      EXPECT_FALSE(whole);
      EXPECT_TRUE(reader.feed(&part, &whole).ok());
    }
  }
  EXPECT_TRUE(whole);
  EXPECT_EQ(budget->in_bytes(), message.size());
  reader.release(*whole);
  EXPECT_EQ(budget->in_bytes(), 0u);
  Received received{std::string(text_of(whole->bytes())), {}, whole->memory_bytes()};
  for (const auto& part : whole->take_parts()) {
    received.parts.emplace_back(part.at, text_of(part.content->bytes()));
  }
  return received;
}

// Sizes of pieces to cut a message into: all short ones, and some around the bounds for long ones.
std::vector<std::size_t> pieces_of(std::size_t size_bytes) {
  std::vector<std::size_t> pieces;
  for (std::size_t piece = 1; piece <= std::min<std::size_t>(size_bytes, 40); ++piece) {
    pieces.push_back(piece);
  }
  for (const std::size_t piece : {100u, 1000u, 8000u, 8192u, 8200u, 30'000u}) {
    pieces.push_back(piece);
  }
  pieces.push_back(size_bytes + 5);
  return pieces;
}

TEST(FieldScan, FindsLongContentsWhereverTheBytesAreCut) {
  const std::string first = content_of(kMin, 'a');
  const std::string second = content_of(3 * kMin, 'b');
  const std::string item = bytes_field(2, content_of(50));
  const std::string small = bytes_field(1, content_of(200));
  std::string numbers;
  wire::put_uint(numbers, 4, ~std::uint64_t{0});
  wire::put_double(numbers, 7, 1.5);
  numbers += std::string("\x45") + "four";  // field 8, a number of 32 bits
  const std::string message = bytes_field(1, first) + bytes_field(1, second) + item +
                              bytes_field(1, first) + numbers + small + bytes_field(3, second) +
                              bytes_field(1, second);
  const std::size_t last_at =
      item.size() + numbers.size() + small.size() + bytes_field(3, second).size();
  const Received wanted{
      item + numbers + small + bytes_field(3, second),
      {{0, first}, {0, second}, {item.size(), first}, {last_at, second}},
      // At the item the reader allocates memory for all that may still come.
      message.size() - bytes_field(1, first).size() - bytes_field(1, second).size()};
  for (const std::size_t piece : pieces_of(message.size())) {
    EXPECT_EQ(receive(message, piece), wanted) << piece;
    EXPECT_EQ(receive(message, piece, Way::kInPlace), wanted) << piece;
  }
}

TEST(FieldScan, LeavesAMessageWithoutLongContentsUnchanged) {
  for (const std::string& message :
       {std::string(), bytes_field(1, "small"), bytes_field(1, content_of(kMin - 1)),
        bytes_field(2, content_of(kMin)), bytes_field(2, bytes_field(1, content_of(kMin))),
        bytes_field(17, content_of(kMin))}) {
    const Received wanted{message, {}, message.size()};
    EXPECT_EQ(receive(message, 7), wanted);
    EXPECT_EQ(receive(message, message.size() + 5, Way::kInPlace), wanted);
  }
}

TEST(FieldScan, AMessageOfOneLongContentLeavesNoOtherBytes) {
  const std::string content = content_of(kMin);
  const Received wanted{"", {{0, content}}, 0};
  EXPECT_EQ(receive(bytes_field(1, content), 1), wanted);
  EXPECT_EQ(receive(bytes_field(1, content), 100'000), wanted);
}

TEST(FieldScan, GivesUpAtAnInvalidField) {
  const std::string good = bytes_field(1, content_of(kMin));
  const std::string long_one = content_of(2 * kMin);
  const std::string huge_length = "\x0a\xff\xff\xff\xff\x0f";
  const auto repeated = [](char byte, int count) { return std::string(count, byte); };
  for (const std::string& bad : {
           std::string("\x0b"),                  // the start of a group
           std::string("\x0c"),                  // the end of a group
           std::string("\x0e"),                  // wire type 6
           huge_length,                          // a length beyond the message
           "\x0a" + repeated('\xff', 5),         // a length without an end
           "\x08" + repeated('\xff', 10),        // a number without an end
           repeated('\xff', 20),                 // a tag without an end
           std::string("\xff\xff\xff\xff\x7f"),  // a tag of more than 32 bits
       }) {
    const std::string rest = bad + bytes_field(1, long_one);
    const Received wanted{rest, {{0, content_of(kMin)}}, rest.size()};
    for (const std::size_t piece : {1u, 2u, 3u, 1000u, 100'000u}) {
      EXPECT_EQ(receive(good + rest, piece), wanted);
      EXPECT_EQ(receive(good + rest, piece, Way::kInPlace), wanted);
    }
  }
}

// A request as text, to compare reading it at once with reading it in pieces with chunks apart.
std::string told(const Result<wire::InsertStreamRequest>& request) {
  if (!request.ok()) return request.status().to_string();
  std::string text = format("first {} settled {}", request->first_number, request->settled_below);
  for (const auto chunk : request->chunks)
    text += format("\nchunk {:x}", std::hash<std::string_view>()(text_of(chunk)));
  for (const auto& item : request->items) text += format("\nitem {} {}", item.key, item.table);
  for (const auto key : request->keep_chunk_keys) text += format("\nkeep {}", key);
  return text;
}

std::string told_apart(const std::string& message, std::size_t piece, Way way = Way::kCopied) {
  const Received received = receive(message, piece, way);
  std::vector<wire::ChunkApart> apart;
  for (const auto& [at, chunk] : received.parts) apart.push_back({at, bytes_of(chunk)});
  return told(wire::read_insert_request(bytes_of(received.left), apart));
}

std::string some_request(std::mt19937& rng) {
  std::string message;
  const std::size_t fields = 1 + rng() % 8;
  for (std::size_t i = 0; i < fields; ++i) {
    switch (rng() % 6) {
      case 0:
        message += bytes_field(1, content_of(kMin - 2 + rng() % 4));
        break;
      case 1:
        message += bytes_field(1, content_of(kMin + rng() % 20'000));
        break;
      case 2:
        message += bytes_field(1, content_of(rng() % 300));
        break;
      case 3: {
        wire::WireItem item;
        item.key = rng();
        item.table = "t";
        wire::put_item(message, item);
        break;
      }
      case 4:
        wire::put_packed(message, 3, std::vector<std::uint64_t>{rng(), rng()});
        break;
      default:
        wire::put_uint(message, static_cast<std::uint32_t>(1 + rng() % 20), rng());
    }
  }
  return message;
}

TEST(FieldScan, ARequestReadsTheSameWithLongChunksSeparated) {
  std::mt19937 rng(7);
  for (int round = 0; round < 200; ++round) {
    const std::string message = some_request(rng);
    const std::string wanted = told(wire::read_insert_request(bytes_of(message)));
    for (const std::size_t piece : {std::size_t{1}, 2 + rng() % 50, 2 + rng() % 20'000}) {
      ASSERT_EQ(told_apart(message, piece), wanted) << "round " << round << " piece " << piece;
      ASSERT_EQ(told_apart(message, piece, Way::kInPlace), wanted) << "round " << round;
    }
  }
}

TEST(FieldScan, ATruncatedRequestIsRefusedOrReadTheSame) {
  std::mt19937 rng(8);
  wire::WireItem item;
  item.key = 300;
  item.table = "t";
  std::string message = bytes_field(1, content_of(kMin)) + bytes_field(1, "small");
  wire::put_item(message, item);
  message += bytes_field(1, content_of(kMin + 1));
  wire::put_uint(message, 4, 1 << 20);
  for (std::size_t size = 0; size <= message.size(); ++size) {
    // Skips sizes within the long contents, which are all alike.
    if (size % 1000 > 40 && size + 40 < message.size() && (size < kMin || size > kMin + 80)) {
      continue;
    }
    const std::string cut = message.substr(0, size);
    const std::string wanted = told(wire::read_insert_request(bytes_of(cut)));
    ASSERT_EQ(told_apart(cut, 1 + rng() % 9000), wanted) << size;
    ASSERT_EQ(told_apart(cut, 1), wanted) << size;
  }
}

TEST(FieldScan, ACorruptRequestIsRefusedWithTheSameError) {
  std::mt19937 rng(9);
  for (int round = 0; round < 1'000; ++round) {
    std::string message = some_request(rng);
    // Changes bytes near the heads of fields; within contents they would mean nothing.
    for (std::size_t wrong = 0; wrong < 1 + rng() % 3; ++wrong) {
      const std::size_t at =
          rng() % 2 == 0 ? rng() % std::min<std::size_t>(message.size(), 6)
                         : message.size() - 1 - rng() % std::min<std::size_t>(message.size(), 40);
      message[at] = static_cast<char>(rng());
    }
    const std::string wanted = told(wire::read_insert_request(bytes_of(message)));
    ASSERT_EQ(told_apart(message, 1 + rng() % 100), wanted) << "round " << round;
    ASSERT_EQ(told_apart(message, 1 + rng() % 20'000, Way::kInPlace), wanted) << "round " << round;
  }
}

TEST(FieldScan, AMessageDroppedHalfwayReleasesItsBytesOnce) {
  const std::string message = bytes_field(1, content_of(kMin)) + bytes_field(2, content_of(100)) +
                              bytes_field(1, content_of(kMin));
  std::string bytes(5, '\0');
  bytes[3] = static_cast<char>(message.size() >> 8);
  bytes[4] = static_cast<char>(message.size());
  bytes += message;
  for (std::size_t size = 0; size < bytes.size(); size += 97) {
    const auto budget = std::make_shared<ConnectionBudget>(100'000);
    MessageReader reader(100'000, make_ref<MessagePool>(), budget);
    reader.set_apart(1);
    auto part = std::as_bytes(std::span(bytes)).first(size);
    Ref<GrpcMessage> whole;
    if (size > 0) {
      ASSERT_TRUE(reader.feed(&part, &whole).ok());
    }
    EXPECT_EQ(budget->in_bytes(), size < 5 ? 0 : size - 5);
    reader.reset();
    EXPECT_EQ(budget->in_bytes(), 0u);
    EXPECT_TRUE(reader.room().empty());
  }
}

}  // namespace
}  // namespace reverie
