#include "reverie/adapters/reverb/chunk_sender.h"

#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "reverie/codec/column_codec.h"
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

// The rows that an item's slices name, by what was sent under their keys.
class Server {
 public:
  void take(const std::vector<ChunkSender::Due>& due) {
    for (const ChunkSender::Due& chunk : due) {
      Buffer buffer = Allocator::heap().allocate(chunk.bytes.size()).value();
      std::ranges::copy(chunk.bytes, buffer.data());
      Ref<Chunk> read = wire::read_chunk(std::move(buffer), schemas_).value();
      EXPECT_FALSE(chunks_.contains(read->key())) << "sent twice";
      chunks_[read->key()] = read;
      rows_ += read->rows();
    }
  }
  std::vector<float> rows(const wire::WireItem& item) {
    std::vector<float> values;
    for (const wire::Slice& slice : item.slices) {
      const Chunk& chunk = *chunks_.at(slice.chunk_key);
      const auto rows = decode_column(chunk.encoded_column(0).codec, chunk.schema().column(0),
                                      chunk.rows(), chunk.encoded_bytes(0))
                            .value();
      for (std::int32_t r = slice.offset; r < slice.offset + slice.length; ++r) {
        float value = 0;
        std::memcpy(&value, rows[static_cast<std::size_t>(r)].data(), sizeof(value));
        values.push_back(value);
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
  wire::SchemaCache schemas_;
  std::map<ChunkKey, Ref<Chunk>> chunks_;
  std::size_t rows_ = 0;
};

TEST(ChunkSender, EachRowTravelsOnceWhileItsChunkGrows) {
  ChunkSender sender(3);
  Server server;
  const Ref<Chunk> chunk = open_chunk(1);
  for (std::uint32_t published = 1; published <= 10; ++published) {
    chunk->publish(published);
    const std::uint32_t begin = published < 4 ? 0 : published - 4;
    const Item item = item_over(*chunk, published, 1.0, begin, published - begin);
    const wire::WireItem sent = added(sender, item);
    server.take(sender.take_due().value());
    std::vector<float> expected;
    for (std::uint32_t r = begin; r < published; ++r) expected.push_back(static_cast<float>(r));
    EXPECT_EQ(server.rows(sent), expected);
  }
  EXPECT_EQ(server.rows(), 10u);
}

TEST(ChunkSender, RowsThatNoItemNeededYetComeWithTheFirstThatDoes) {
  ChunkSender sender(3);
  Server server;
  const Ref<Chunk> chunk = open_chunk(10);
  const Item late = item_over(*chunk, 1, 1.0, 6, 2);
  EXPECT_EQ(server.rows(), 0u);
  const wire::WireItem sent_late = added(sender, late);
  server.take(sender.take_due().value());
  EXPECT_EQ(server.rows(sent_late), (std::vector<float>{6, 7}));
  EXPECT_EQ(server.rows(), 4u) << "what follows may be needed soon, what came before not";
  const Item early = item_over(*chunk, 2, 1.0, 2, 6);
  const wire::WireItem sent_early = added(sender, early);
  server.take(sender.take_due().value());
  EXPECT_EQ(server.rows(sent_early), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(server.rows(), 8u);
}

TEST(ChunkSender, KeepsTheKeysOfChunksThatSomebodyStillHolds) {
  ChunkSender sender(3);
  Server server;
  Ref<Chunk> chunk = open_chunk(10);
  Item item = item_over(*chunk, 1, 1.0, 0, 10);
  added(sender, item);
  server.take(sender.take_due().value());
  EXPECT_EQ(sender.keep_keys(), server.keys());
  item = Item();
  EXPECT_EQ(sender.keep_keys(), server.keys()) << "the writer may make another item of it";
  chunk = Ref<Chunk>();
  EXPECT_TRUE(sender.keep_keys().empty());
}

TEST(ChunkSender, OnANewStreamEverythingIsSentAgain) {
  ChunkSender sender(3);
  Server first;
  const Ref<Chunk> chunk = open_chunk(10);
  const Item item = item_over(*chunk, 1, 1.0, 3, 4);
  added(sender, item);
  first.take(sender.take_due().value());
  sender.restart();
  EXPECT_TRUE(sender.take_due().value().empty()) << "nothing is due before an item needs it";
  Server second;
  const wire::WireItem again = added(sender, item);
  second.take(sender.take_due().value());
  EXPECT_EQ(second.rows(again), (std::vector<float>{3, 4, 5, 6}));
}

TEST(ChunkSender, AChunkThatCameOverTheWireGoesOnAsItIs) {
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
  const auto due = sender.take_due().value();
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(wire::text_of(due[0].bytes), bytes);
}

}  // namespace
}  // namespace reverie
