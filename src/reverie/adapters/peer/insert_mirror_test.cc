#include "reverie/adapters/peer/insert_mirror.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/insert_ledger.h"
#include "reverie/record/compact.h"
#include "tests/scale.h"
#include "tests/support/eventually.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

using testing::float_chunk;
using testing::item_over;
using testing::value_of;

const wire::ColumnNames& no_names(std::string_view) {
  static const auto* const none = new wire::ColumnNames;
  return *none;
}

// A payload in the form in which it arrives, with its bulk in one piece.
Payload arrived(const Payload& sent) {
  Payload payload;
  payload.head = sent.head;
  if (sent.bulk.empty()) return payload;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const BulkPiece& piece : sent.bulk) {
    bytes->resize(Payload::padded(bytes->size()));
    bytes->insert(bytes->end(), piece.bytes.begin(), piece.bytes.end());
  }
  payload.bulk.push_back({*bytes, bytes});
  return payload;
}

class InsertMirrorTest : public ::testing::Test {
 protected:
  static InsertMirror::Options options(std::size_t kept_bytes_max = std::size_t{1} << 30) {
    return {.memory = Allocator::heap(), .names = no_names, .kept_bytes_max = kept_bytes_max};
  }
  // Sends one item.
  std::vector<InsertMirror::Taken> send(const Item& item, std::string_view table = "t") {
    ledger_.begin(1, number_++, 1);
    ledger_.add(item, table, true, {});
    std::vector<InsertMirror::Taken> taken;
    const Status status = mirror_.take(arrived(ledger_.finish()), taken);
    EXPECT_TRUE(status.ok()) << status.message();
    return taken;
  }

  InsertLedger ledger_;
  InsertMirror mirror_{options()};
  std::uint64_t number_ = 1;
};

// A chunk of `capacity` rows, of which `rows` are published.
Ref<Chunk> open_chunk(std::uint32_t capacity, std::uint32_t rows, Chunk::Kind kind) {
  Ref<Chunk> chunk =
      Chunk::open(testing::float_schema(), {5, 6, 7}, capacity, 0, Allocator::heap(), kind).value();
  for (std::uint32_t r = 0; r < rows; ++r) {
    const auto x = static_cast<float>(r);
    chunk->set_row(0, r, std::as_bytes(std::span(&x, 1)));
  }
  chunk->publish(rows);
  return chunk;
}

void append_row(Chunk& chunk) {
  const std::uint32_t r = chunk.rows();
  const auto x = static_cast<float>(r);
  chunk.set_row(0, r, std::as_bytes(std::span(&x, 1)));
  chunk.publish(r + 1);
}

TEST_F(InsertMirrorTest, AnItemArrivesWithItsRowsAndNumbers) {
  const Ref<Chunk> chunk = float_chunk(3, 4, {11, 12, 13});
  Item item = item_over(*chunk, 77, 2.5, 1, 3);
  item.version = 9;
  const auto taken = send(item);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(*taken[0].table, "t");
  EXPECT_TRUE(taken[0].begins);
  EXPECT_FALSE(taken[0].timeout);
  EXPECT_EQ(taken[0].item.key, 77u);
  EXPECT_EQ(taken[0].item.priority, 2.5);
  EXPECT_EQ(taken[0].item.version, 9);
  const Piece& piece = taken[0].item.trajectory.pieces().front();
  EXPECT_EQ(piece.length, 3u);
  EXPECT_EQ(piece.chunk->key(), 11u);
  EXPECT_EQ(piece.chunk->episode(), 12u);
  EXPECT_EQ(piece.chunk->first_step(), 13u);
  EXPECT_EQ(value_of(taken[0].item.trajectory.view()), 4);
}

TEST_F(InsertMirrorTest, APriorityLeftToTheTableArrivesUnset) {
  const Ref<Chunk> chunk = float_chunk(0, 1);
  EXPECT_FALSE(send(item_over(*chunk, 1, std::nullopt, 0, 1))[0].item.priority);
}

TEST_F(InsertMirrorTest, RowsOfAGrowingChunkAreSentOnceIntoOneCopy) {
  const Ref<Chunk> chunk = open_chunk(8, 2, Chunk::Kind::kRaw);
  const auto first = send(item_over(*chunk, 1, 1.0, 0, 2));
  append_row(*chunk);
  append_row(*chunk);
  const auto second = send(item_over(*chunk, 2, 1.0, 1, 3));
  const Chunk* const copy = first[0].item.trajectory.pieces()[0].chunk;
  EXPECT_EQ(second[0].item.trajectory.pieces()[0].chunk, copy);
  EXPECT_EQ(copy->rows(), 4u);
  for (std::uint32_t r = 0; r < 4; ++r) EXPECT_EQ(testing::float_row(*copy, r), r);
  EXPECT_EQ(mirror_.chunk_count(), 1u);
}

TEST_F(InsertMirrorTest, ColumnsThatTheWriterCompressedReplaceTheRows) {
  const Ref<Chunk> chunk = open_chunk(8, 2, Chunk::Kind::kCompressible);
  const auto first = send(item_over(*chunk, 1, 1.0, 0, 2));
  append_row(*chunk);
  const ColumnTry lz4{.codec = CodecId::kLz4};
  chunk->replace_rows(encode_columns(*chunk, {&lz4, 1}, Allocator::heap()).value());
  const auto second = send(item_over(*chunk, 2, 1.0, 2, 1));
  const Chunk& copy = *first[0].item.trajectory.pieces()[0].chunk;
  EXPECT_FALSE(copy.is_raw());
  EXPECT_EQ(copy.rows(), 3u);
  EXPECT_EQ(value_of(first[0].item.trajectory.view()), 0);
  EXPECT_EQ(value_of(second[0].item.trajectory.view()), 2);
}

// As a checkpoint does: it counts the rows, then reads those that are raw.
TEST_F(InsertMirrorTest, AReaderFindsNoRawRowsThatArriveOnlyCompressed) {
  for (std::int64_t round = 0; round < scaled(300, 10'000); ++round) {
    const Ref<Chunk> chunk = open_chunk(8, 2, Chunk::Kind::kCompressible);
    const auto first = send(item_over(*chunk, 1, 1.0, 0, 2));
    const Chunk& copy = *first[0].item.trajectory.pieces()[0].chunk;
    while (chunk->rows() < 8) append_row(*chunk);
    const ColumnTry lz4{.codec = CodecId::kLz4};
    chunk->replace_rows(encode_columns(*chunk, {&lz4, 1}, Allocator::heap()).value());
    std::atomic<bool> reads{false};
    std::uint32_t raw_rows = 0;
    std::thread reader([&] {
      while (true) {
        const std::uint32_t rows = copy.rows();
        const RawRows raw(copy);
        if (!raw) return;
        raw_rows = std::max(raw_rows, rows);
        reads = true;
      }
    });
    ASSERT_TRUE(test::eventually([&] { return reads.load(); }));
    send(item_over(*chunk, 2, 1.0, 7, 1));
    reader.join();
    ASSERT_EQ(raw_rows, 2u) << "round " << round;
    ASSERT_EQ(copy.rows(), 8u);
  }
}

TEST_F(InsertMirrorTest, ACompressedChunkArrivesCompressed) {
  const Ref<Chunk> chunk = open_chunk(300, 300, Chunk::Kind::kCompressible);
  const ColumnTry lz4{.codec = CodecId::kLz4};
  chunk->replace_rows(encode_columns(*chunk, {&lz4, 1}, Allocator::heap()).value());
  const auto taken = send(item_over(*chunk, 1, 1.0, 299, 1));
  EXPECT_FALSE(taken[0].item.trajectory.pieces()[0].chunk->is_raw());
  EXPECT_EQ(value_of(taken[0].item.trajectory.view()), 299);
}

TEST_F(InsertMirrorTest, LongRowsSentAsBulkArriveUnchanged) {
  const Ref<Chunk> chunk = float_chunk(0, 5000);
  const auto taken = send(item_over(*chunk, 1, 1.0, 4999, 1));
  EXPECT_EQ(value_of(taken[0].item.trajectory.view()), 4999);
}

// A cell that holds one text: its length, then its bytes.
std::string text_cell(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string cell(sizeof(size), '\0');
  std::memcpy(cell.data(), &size, sizeof(size));
  return cell + text;
}

// An item over a chunk of these cells, and of numbers.
Item item_of_cells(const std::vector<std::string>& cells) {
  const auto schema = make_ref<ChunkSchema>(
      std::vector<TensorSpec>{{"text", DType::kString, {}}, {"x", DType::kInt32, {2}}});
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{schema->column(0), 0, 0, 1}, {schema->column(1), 1, 0, 1}}, "s");
  const auto count = static_cast<std::uint32_t>(cells.size());
  const Ref<Chunk> chunk = Chunk::open(schema, {}, 4, 64, Allocator::heap()).value();
  for (std::uint32_t r = 0; r < count; ++r) {
    chunk->set_row(0, r, std::as_bytes(std::span(cells[r])));
    const std::int32_t numbers[2] = {static_cast<std::int32_t>(r), -1};
    chunk->set_row(1, r, std::as_bytes(std::span(numbers)));
  }
  chunk->publish(count);
  const Piece piece{chunk.get(), 0, count};
  return {1, 1.0, Trajectory(layout, {&piece, 1})};
}

TEST_F(InsertMirrorTest, RowsOfVaryingSizeKeepTheirBytes) {
  const std::vector<std::string> cells = {"", text_cell("longer than one word"), text_cell("z")};
  const auto taken = send(item_of_cells(cells));
  const Chunk& copy = *taken[0].item.trajectory.pieces()[0].chunk;
  for (std::uint32_t r = 0; r < 3; ++r) {
    const auto bytes = copy.row_bytes(0, r);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), cells[r]);
  }
}

TEST_F(InsertMirrorTest, RowsOfVaryingSizeWhoseLengthsAreWrongAreRefused) {
  const std::string good = text_cell("word");
  for (const std::string& bad : {good.substr(0, 3), good.substr(0, 7), good + "s", good + good}) {
    InsertLedger ledger;
    InsertMirror mirror(options());
    ledger.begin(1, 1, 1);
    ledger.add(item_of_cells({good, bad}), "t", true, {});
    std::vector<InsertMirror::Taken> taken;
    const Status status = mirror.take(arrived(ledger.finish()), taken);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bad.size();
    EXPECT_NE(status.message().find("lengths"), std::string::npos) << status.message();
  }
}

TEST_F(InsertMirrorTest, RowsOfAsManyAxesAsOtherWritersMaySendArriveAndMoreAreRefused) {
  for (const std::size_t axes : {kAxesMax, kAxesMax + 1}) {
    const TensorSpec spec{"x", DType::kFloat32, Shape(axes, 1)};
    const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{spec});
    const auto layout = make_ref<Layout>(std::vector<LayoutColumn>{{spec, 0, 0, 1}}, "x");
    const Ref<Chunk> chunk = Chunk::open(schema, {}, 1, 0, Allocator::heap()).value();
    const float value = 7;
    chunk->set_row(0, 0, std::as_bytes(std::span(&value, 1)));
    chunk->publish(1);
    const Piece piece{chunk.get(), 0, 1};
    InsertLedger ledger;
    InsertMirror mirror(options());
    ledger.begin(1, 1, 1);
    ledger.add({1, 1.0, Trajectory(layout, {&piece, 1})}, "t", true, {});
    std::vector<InsertMirror::Taken> taken;
    const Status status = mirror.take(arrived(ledger.finish()), taken);
    if (axes > kAxesMax) {
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
      continue;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(taken[0].item.trajectory.view().layout->columns()[0].spec.shape, spec.shape);
    EXPECT_EQ(value_of(taken[0].item.trajectory.view()), value);
  }
}

TEST_F(InsertMirrorTest, AChunkReleasedByTheWriterIsForgottenAndItsBytesReturned) {
  {
    const Ref<Chunk> chunk = float_chunk(0, 100);
    send(item_over(*chunk, 1, 1.0, 0, 1));
    EXPECT_GT(mirror_.kept_bytes(), 400u);
  }
  const Ref<Chunk> next = float_chunk(0, 1);
  send(item_over(*next, 2, 1.0, 0, 1));
  EXPECT_EQ(mirror_.chunk_count(), 1u);
  EXPECT_EQ(ledger_.chunk_count(), 1u);
  EXPECT_GT(mirror_.take_released_bytes(), 400u);
}

TEST_F(InsertMirrorTest, AWriterThatKeepsMoreBytesThanTheBoundIsRefused) {
  InsertMirror mirror(options(/*kept_bytes_max=*/10'000));
  const Ref<Chunk> chunk = float_chunk(0, 5000);
  ledger_.begin(1, 1, 1);
  ledger_.add(item_over(*chunk, 1, 1.0, 0, 1), "t", true, {});
  std::vector<InsertMirror::Taken> taken;
  const Status status = mirror.take(arrived(ledger_.finish()), taken);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("the bound is 10000"), std::string::npos) << status.message();
}

TEST_F(InsertMirrorTest, AfterARestartEverythingIsSentAgain) {
  const Ref<Chunk> chunk = float_chunk(5, 3);
  send(item_over(*chunk, 1, 1.0, 0, 3));
  ledger_.restart();
  InsertMirror fresh(options());
  ledger_.begin(1, 1, 1);
  ledger_.add(item_over(*chunk, 1, 1.0, 2, 1), "t", true, seconds(2));
  std::vector<InsertMirror::Taken> taken;
  ASSERT_TRUE(fresh.take(arrived(ledger_.finish()), taken).ok());
  EXPECT_EQ(value_of(taken[0].item.trajectory.view()), 7);
  EXPECT_EQ(taken[0].timeout, Duration(seconds(2)));
}

// Changes each byte of a message, and cuts it at each length: the result is refused or harmless.
TEST_F(InsertMirrorTest, DamagedMessagesAreRefusedOrHarmless) {
  const Ref<Chunk> chunk = float_chunk(0, 4);
  const Ref<Chunk> packed = open_chunk(300, 300, Chunk::Kind::kCompressible);
  const ColumnTry lz4{.codec = CodecId::kLz4};
  packed->replace_rows(encode_columns(*packed, {&lz4, 1}, Allocator::heap()).value());
  ledger_.begin(1, 1, 1);
  ledger_.add(item_over(*chunk, 1, 1.0, 0, 4), "t", true, {});
  ledger_.add(item_over(*packed, 2, 1.0, 0, 4), "t", true, {});
  const Payload good = arrived(ledger_.finish());
  const auto try_one = [](const Payload& payload) {
    InsertMirror mirror(
        {.memory = Allocator::heap(), .names = no_names, .kept_bytes_max = std::size_t{1} << 20});
    std::vector<InsertMirror::Taken> taken;
    (void)mirror.take(payload, taken).ok();
    for (const auto& item : taken) {
      for (const Piece& piece : item.item.trajectory.pieces()) {
        ASSERT_LE(piece.offset + piece.length, piece.chunk->rows());
      }
    }
  };
  for (std::size_t at = 0; at < good.head.size(); ++at) {
    for (const int change : {1, 0x80, 0xff}) {
      Payload bad = good;
      bad.head[at] ^= static_cast<std::byte>(change);
      try_one(bad);
    }
    Payload cut = good;
    cut.head.resize(at);
    try_one(cut);
  }
}

}  // namespace
}  // namespace reverie
