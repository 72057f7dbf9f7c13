#include "reverie/adapters/reverb/chunk_sender.h"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "reverie/native_wire/stored_chunk.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

wire::WireItem added(ChunkSender& sender, const Item& item) {
  wire::WireItem made;
  sender.add(item.trajectory, made);
  return made;
}

using testing::float_schema;
using testing::item_over;

// A writer's chunk of 10 rows, of which some are published.
Ref<Chunk> open_chunk(std::uint32_t published) {
  Ref<Chunk> chunk = Chunk::open(float_schema(), {5, 1, 0}, 10, 0, Allocator::heap()).value();
  for (std::uint32_t row = 0; row < 10; ++row) {
    const auto x = static_cast<float>(row);
    chunk->set_row(0, row, std::as_bytes(std::span(&x, 1)));
  }
  chunk->publish(published);
  return chunk;
}

TEST(ChunkSender, RowsThatAreNotPublishedAreRefused) {
  const Ref<Chunk> chunk = open_chunk(3);
  for (const bool takes_stored : {false, true}) {
    ChunkSender sender(7);
    (void)added(sender, item_over(*chunk, 1, 1.0, 1, 3));
    PayloadBuilder message;
    const Status status = sender.put_due(message, takes_stored);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(),
              "an item has 4 rows of a chunk that has 3 so far: the replay buffer that writes it "
              "goes on; draw its items in its own process, or by a client of Reverie");
  }
}

// Finds the rows of an item's slices in what was sent under their keys.
class Server {
 public:
  explicit Server(bool takes_stored) : takes_stored_(takes_stored) {}

  // Takes the chunks that the sender has to send.
  void take_from(ChunkSender& sender) {
    PayloadBuilder message;
    ASSERT_TRUE(sender.put_due(message, takes_stored_).ok());
    const std::string bytes = message.build().flat();
    const auto request = wire::read_insert_request(wire::bytes_of(bytes)).value();
    EXPECT_TRUE((takes_stored_ ? request.chunks : request.stored_chunks).empty());
    for (const wire::Bytes chunk : request.chunks) {
      keep(wire::read_chunk(copy_of(chunk), schemas_).value());
    }
    for (const wire::Bytes chunk : request.stored_chunks) {
      keep(read_stored_chunk(chunk, schemas_, [](wire::Bytes part) -> Result<Buffer> {
             return copy_of(part);
           }).value());
    }
  }
  std::vector<float> rows(const wire::WireItem& item) {
    std::vector<float> values;
    for (const wire::Slice& slice : item.slices) {
      const Chunk& chunk = *chunks_.at(slice.chunk_key);
      for (std::int32_t r = slice.offset; r < slice.offset + slice.length; ++r) {
        values.push_back(testing::float_row(chunk, static_cast<std::uint32_t>(r)));
      }
    }
    return values;
  }
  std::size_t rows() const { return rows_; }
  std::vector<std::uint64_t> keys() const {
    std::vector<std::uint64_t> keys;
    for (const auto& [key, chunk] : chunks_) keys.push_back(key);
    return keys;
  }

 private:
  static Buffer copy_of(wire::Bytes bytes) {
    Buffer buffer = Allocator::heap().allocate(bytes.size()).value();
    std::ranges::copy(bytes, buffer.data());
    return buffer;
  }
  void keep(Ref<Chunk> chunk) {
    EXPECT_FALSE(chunks_.contains(chunk->key())) << "sent twice";
    rows_ += chunk->rows();
    const ChunkKey key = chunk->key();
    chunks_[key] = std::move(chunk);
  }

  const bool takes_stored_;
  wire::SchemaCache schemas_;
  std::map<ChunkKey, Ref<Chunk>> chunks_;
  std::size_t rows_ = 0;
};

bool is_nothing_due(ChunkSender& sender) {
  PayloadBuilder message;
  return sender.put_due(message, true).ok() && message.message().size_bytes() == 0;
}

// Whether the server accepts stored chunks; Reverb's does not.
class ChunkSenderTo : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(BothServers, ChunkSenderTo, ::testing::Bool());

TEST_P(ChunkSenderTo, EachRowIsSentOnceWhileItsChunkGrows) {
  ChunkSender sender(3);
  Server server(GetParam());
  const Ref<Chunk> chunk = open_chunk(1);
  for (std::uint32_t published = 1; published <= 10; ++published) {
    chunk->publish(published);
    const std::uint32_t begin = published < 4 ? 0 : published - 4;
    const Item item = item_over(*chunk, published, 1.0, begin, published - begin);
    const wire::WireItem sent = added(sender, item);
    server.take_from(sender);
    std::vector<float> expected;
    for (std::uint32_t r = begin; r < published; ++r) expected.push_back(static_cast<float>(r));
    EXPECT_EQ(server.rows(sent), expected);
  }
  EXPECT_EQ(server.rows(), 10u);
}

TEST_P(ChunkSenderTo, RowsAreSentWithTheFirstItemThatNeedsThem) {
  ChunkSender sender(3);
  Server server(GetParam());
  const Ref<Chunk> chunk = open_chunk(10);
  const Item late = item_over(*chunk, 1, 1.0, 6, 2);
  EXPECT_EQ(server.rows(), 0u);
  const wire::WireItem sent_late = added(sender, late);
  server.take_from(sender);
  EXPECT_EQ(server.rows(sent_late), (std::vector<float>{6, 7}));
  EXPECT_EQ(server.rows(), 4u) << "what follows may be needed soon, what came before not";
  const Item early = item_over(*chunk, 2, 1.0, 2, 6);
  const wire::WireItem sent_early = added(sender, early);
  server.take_from(sender);
  EXPECT_EQ(server.rows(sent_early), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(server.rows(), 8u);
}

TEST_P(ChunkSenderTo, KeepsTheKeysOfChunksStillInUse) {
  ChunkSender sender(3);
  Server server(GetParam());
  Ref<Chunk> chunk = open_chunk(10);
  Item item = item_over(*chunk, 1, 1.0, 0, 10);
  added(sender, item);
  server.take_from(sender);
  EXPECT_EQ(sender.keep_keys(), server.keys());
  item = Item();
  EXPECT_EQ(sender.keep_keys(), server.keys()) << "the writer may make another item of it";
  chunk = Ref<Chunk>();
  EXPECT_TRUE(sender.keep_keys().empty());
}

TEST_P(ChunkSenderTo, ChunksAreSentAgainOnANewStream) {
  ChunkSender sender(3);
  Server first(GetParam());
  const Ref<Chunk> chunk = open_chunk(10);
  const Item item = item_over(*chunk, 1, 1.0, 3, 4);
  added(sender, item);
  first.take_from(sender);
  sender.restart();
  EXPECT_TRUE(is_nothing_due(sender)) << "nothing is due before an item needs it";
  Server second(GetParam());
  const wire::WireItem again = added(sender, item);
  second.take_from(sender);
  EXPECT_EQ(second.rows(again), (std::vector<float>{3, 4, 5, 6}));
}

TEST(ChunkSender, AReceivedChunkIsForwardedUnchanged) {
  const Ref<Chunk> chunk = open_chunk(10);
  const std::string bytes = wire::write_chunk(*chunk, 0, 10, 42).value();
  Buffer buffer = Allocator::heap().allocate(bytes.size()).value();
  std::ranges::copy(wire::bytes_of(bytes), buffer.data());
  wire::SchemaCache schemas;
  const Ref<Chunk> came = wire::read_chunk(std::move(buffer), schemas).value();
  ChunkSender sender(3);
  const Item item = item_over(*came, 1, 1.0, 5, 2);
  const wire::WireItem sent = added(sender, item);
  EXPECT_EQ(sent.slices, (std::vector<wire::Slice>{{42, 5, 2, 0}}));
  PayloadBuilder message;
  ASSERT_TRUE(sender.put_due(message, /*takes_stored=*/true).ok());
  const std::string flat = message.build().flat();
  const auto request = wire::read_insert_request(wire::bytes_of(flat)).value();
  ASSERT_EQ(request.chunks.size(), 1u);
  EXPECT_EQ(wire::text_of(request.chunks[0]), bytes);
}

}  // namespace
}  // namespace reverie
