#include "reverie/grpc/message_reader.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

namespace reverie {
namespace {

std::string prefixed(std::string_view message, char flag = 0) {
  std::string bytes = {flag};
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(message.size() >> static_cast<unsigned>(shift));
  }
  return bytes + std::string(message);
}

std::string gzipped(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct Outcome {
  Status status;
  std::vector<std::string> messages;
  bool is_between = false;
  std::size_t held_bytes = 0;
};

std::string pattern(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * i % 23);
  return text;
}

// Reads `bytes` in pieces of `piece`.
Outcome read_all(const std::string& bytes, std::size_t piece, bool gzip = false,
                 std::size_t message_bytes_max = 1'000'000,
                 std::size_t held_bytes_max = 2'000'000) {
  Outcome outcome;
  auto budget = std::make_shared<ConnectionBudget>(held_bytes_max);
  MessageReader reader(message_bytes_max, make_ref<MessagePool>(), budget);
  if (gzip) reader.allow_gzip();
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    auto part = std::as_bytes(std::span(bytes)).subspan(at, std::min(piece, bytes.size() - at));
    while (!part.empty()) {
      Ref<GrpcMessage> message;
      outcome.status = reader.feed(&part, &message);
      if (!outcome.status.ok()) return outcome;
      if (!message) continue;
      outcome.messages.emplace_back(reinterpret_cast<const char*>(message->bytes().data()),
                                    message->bytes().size());
      reader.release(*message);
    }
  }
  outcome.is_between = reader.is_between_messages();
  reader.reset();
  outcome.held_bytes = budget->in_bytes();
  return outcome;
}

TEST(MessageReader, AssemblesMessagesWhereverTheBytesAreCut) {
  const std::vector<std::string> messages = {"", "a", std::string(70'000, 'b'), "", "cd"};
  std::string bytes;
  for (const auto& message : messages) bytes += prefixed(message);
  for (const std::size_t piece : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 1000u, 70'000u, 1'000'000u}) {
    const Outcome outcome = read_all(bytes, piece);
    EXPECT_TRUE(outcome.status.ok());
    EXPECT_EQ(outcome.messages, messages) << piece;
    EXPECT_TRUE(outcome.is_between);
    EXPECT_EQ(outcome.held_bytes, 0u);
  }
}

TEST(MessageReader, AcceptsBytesReadDirectlyIntoTheMessage) {
  const std::string text = pattern(100'000);
  const std::string bytes = prefixed(text);
  auto budget = std::make_shared<ConnectionBudget>(1'000'000);
  MessageReader reader(1'000'000, make_ref<MessagePool>(), budget);
  EXPECT_TRUE(reader.room().empty()) << "there is no message yet";
  Ref<GrpcMessage> message;
  std::size_t at = 0;
  for (const std::size_t size : {7u, 40'000u, 1u, 59'997u}) {
    // The head and a little more are fed; the rest is written in place.
    std::span<const std::byte> part = std::as_bytes(std::span(bytes)).subspan(at, size);
    const std::span<std::byte> room = reader.room();
    if (!room.empty()) {
      std::copy(part.begin(), part.end(), room.begin());
      part = room.first(size);
    }
    ASSERT_TRUE(reader.feed(&part, &message).ok());
    EXPECT_TRUE(part.empty());
    at += size;
  }
  ASSERT_EQ(at, bytes.size());
  ASSERT_TRUE(message);
  EXPECT_TRUE(reader.room().empty());
  EXPECT_EQ(
      std::string(reinterpret_cast<const char*>(message->bytes().data()), message->bytes().size()),
      text);
}

TEST(MessageReader, KnowsAtEachByteWhetherTheStreamMayEnd) {
  const std::string bytes = prefixed("abc") + prefixed("") + prefixed("d");
  const std::vector<std::size_t> ends = {0, 8, 13, 19};
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const Outcome outcome = read_all(bytes.substr(0, size), 100);
    EXPECT_TRUE(outcome.status.ok());
    EXPECT_EQ(outcome.is_between, std::count(ends.begin(), ends.end(), size) == 1) << size;
    EXPECT_EQ(outcome.held_bytes, 0u);
  }
}

TEST(MessageReader, RefusesALengthBeforeAllocatingMemoryForIt) {
  EXPECT_EQ(read_all(std::string("\0\xff\xff\xff\xff", 5), 5).status.code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(
      read_all(prefixed(std::string(101, 'x')), 50, false, 100).status.message(),
      "a message of 101 bytes is larger than the 100 allowed; raise message_bytes of the server's "
      "limits, or send less at once");
  EXPECT_TRUE(read_all(prefixed(std::string(100, 'x')), 50, false, 100).status.ok());
}

TEST(MessageReader, SharesABudgetWithTheConnectionsOtherStreams) {
  const auto budget = std::make_shared<ConnectionBudget>(1000);
  const auto pool = make_ref<MessagePool>();
  MessageReader first(5000, pool, budget);
  MessageReader second(5000, pool, budget);
  const auto feed = [](MessageReader& reader, const std::string& text) {
    auto bytes = std::as_bytes(std::span(text));
    Ref<GrpcMessage> message;
    return reader.feed(&bytes, &message);
  };
  // A message alone may exceed the connection's bound: single messages have a separate bound.
  EXPECT_TRUE(feed(first, prefixed(std::string(2000, 'x')).substr(0, 10)).ok());
  EXPECT_EQ(budget->in_bytes(), 5u) << "what came, not what was promised";
  EXPECT_TRUE(feed(second, prefixed(std::string(1000, 'y')).substr(0, 15)).ok());
  EXPECT_EQ(budget->in_bytes(), 15u);
  EXPECT_EQ(second.here_bytes(), 10u);
  EXPECT_EQ(second.left_bytes(), 990u);
  first.reset();
  EXPECT_EQ(budget->in_bytes(), 10u);
  second.reset();
  EXPECT_EQ(budget->in_bytes(), 0u);
}

TEST(MessageReader, RefusesUnknownFlags) {
  EXPECT_EQ(read_all(prefixed("abc", 2), 100).status.code(), StatusCode::kInternal);
  EXPECT_EQ(read_all(prefixed("abc", 1), 100).status.code(), StatusCode::kInternal);
}

TEST(MessageReader, InflatesWithinTheBound) {
  const std::string text(100'000, 'z');
  const Outcome outcome = read_all(prefixed(gzipped(text), 1) + prefixed("plain"), 10, true);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_EQ(outcome.messages, (std::vector<std::string>{text, "plain"}));
  EXPECT_EQ(outcome.held_bytes, 0u);
  EXPECT_EQ(read_all(prefixed(gzipped(text), 1), 10, true, 99'999).status.code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(read_all(prefixed(gzipped(""), 1), 10, true).status.ok());
}

TEST(MessageReader, ACompressedMessageHasNoSeparateParts) {
  std::string text("\x0a\x80\x80\x01", 4);  // a field of 16 KiB
  text += pattern(16'384);
  for (const bool is_compressed : {false, true}) {
    const std::string bytes = is_compressed ? prefixed(gzipped(text), 1) : prefixed(text);
    const auto budget = std::make_shared<ConnectionBudget>(1'000'000);
    MessageReader reader(1'000'000, make_ref<MessagePool>(), budget);
    reader.allow_gzip();
    reader.set_apart(1);
    auto part = std::as_bytes(std::span(bytes));
    Ref<GrpcMessage> message;
    ASSERT_TRUE(reader.feed(&part, &message).ok());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->bytes().size(), is_compressed ? text.size() : 0);
    EXPECT_EQ(message->take_parts().size(), is_compressed ? 0 : 1);
    EXPECT_EQ(budget->in_bytes(), text.size());
    reader.release(*message);
    EXPECT_EQ(budget->in_bytes(), 0u);
  }
}

TEST(MessageReader, AFalseUncompressedSizeIsRefusedWithoutTheMemory) {
  std::string lie = gzipped("short");
  for (std::size_t i = lie.size() - 4; i < lie.size(); ++i) lie[i] = '\x7f';
  EXPECT_EQ(read_all(prefixed(lie, 1), 10, true, 0xffffffff).status.code(), StatusCode::kInternal);
  // A bomb whose stated size is too small: it decompresses to more than its trailer says.
  std::string bomb = gzipped(std::string(500'000, '\0'));
  for (std::size_t i = bomb.size() - 4; i < bomb.size(); ++i) bomb[i] = '\0';
  EXPECT_EQ(read_all(prefixed(bomb, 1), 10, true).status.code(), StatusCode::kInternal);
}

TEST(MessageReader, ACompressedMessageThatIsCutOrChangedAnywhereIsRefused) {
  const std::string whole = gzipped("some text, some text, some text");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read_all(prefixed(whole.substr(0, size), 1), 10, true).status.ok()) << size;
  }
  for (std::size_t i = 10; i < whole.size(); ++i) {  // after the header, whose time may be anything
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    const Outcome outcome = read_all(prefixed(changed, 1), 10, true);
    EXPECT_FALSE(outcome.status.ok()) << i;
  }
}

TEST(MessagePool, KeepsLargeMemoryUpToItsBound) {
  const auto pool = make_ref<MessagePool>(1 << 20);
  const std::byte* data = nullptr;
  {
    const auto message = GrpcMessage::make(pool, 400'000).value();
    data = message->bytes().data();
    EXPECT_EQ(pool->kept_bytes(), 0u);
  }
  EXPECT_GE(pool->kept_bytes(), 400'000u);
  EXPECT_LE(pool->kept_bytes(), 450'000u);
  const auto again = GrpcMessage::make(pool, 399'999).value();
  EXPECT_EQ(again->bytes().data(), data);
  EXPECT_EQ(pool->kept_bytes(), 0u);
  { const auto larger = GrpcMessage::make(pool, 2 << 20).value(); }
  EXPECT_EQ(pool->kept_bytes(), 0u);
  { const auto small = GrpcMessage::make(pool, 100).value(); }
  EXPECT_EQ(pool->kept_bytes(), 0u);
}

TEST(MessagePool, AViewKeepsItsMessage) {
  const auto pool = make_ref<MessagePool>();
  Buffer view;
  {
    const auto message = GrpcMessage::make(pool, 100'000).value();
    message->writable()[99'999] = std::byte{42};
    view = message->view(50'000, 50'000);
  }
  EXPECT_EQ(view.data()[49'999], std::byte{42});
  EXPECT_EQ(pool->kept_bytes(), 0u);
  view = Buffer();
  EXPECT_GT(pool->kept_bytes(), 0u);
}

TEST(GrpcPayload, KeepsItsPiecesAndReleasesEachOwnerOnce) {
  const auto shared = std::make_shared<const std::string>("shared");
  {
    GrpcPayload payload;
    payload.append("owned");
    payload.append(std::as_bytes(std::span(*shared)), shared);
    payload.append(std::as_bytes(std::span(*shared)), shared);
    EXPECT_EQ(shared.use_count(), 3);
    GrpcPayload moved = std::move(payload);
    EXPECT_EQ(moved.flat(), "ownedsharedshared");
    EXPECT_EQ(moved.size_bytes(), 17u);
    EXPECT_EQ(payload.size_bytes(), 0u);  // NOLINT(bugprone-use-after-move)
    payload = std::move(moved);
    EXPECT_EQ(payload.piece_count(), 3u);
    EXPECT_EQ(shared.use_count(), 3);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(ByteBudget, HoldsAtMostItsBoundUnderManyThreads) {
  ByteBudget budget(1000);
  std::atomic<int> most{0};
  const auto run = [&] {
    for (int i = 0; i < 20'000; ++i) {
      if (!budget.take(300).ok()) continue;
      const int held = static_cast<int>(budget.held_bytes());
      int seen = most.load();
      while (held > seen && !most.compare_exchange_weak(seen, held)) {
      }
      budget.give_back(300);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(run);
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most.load(), 1000);
  EXPECT_EQ(budget.held_bytes(), 0u);
}

}  // namespace
}  // namespace reverie
