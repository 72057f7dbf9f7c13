// Packed samples, written by packed_writer.h and read by packed_reader.h.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/codec/column_codec.h"
#include "reverie/native_wire/packed_reader.h"
#include "reverie/native_wire/packed_writer.h"
#include "reverie/reverb_wire/requests.h"
#include "tests/support/fake_grpc_call.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::float_chunk;

// Allocates blocks of an arena, which live as long as this object.
class ArenaBlocks final : public Allocator {
 public:
  Result<Buffer> allocate(std::size_t size_bytes) override {
    blocks_.push_back(arena_->allocate(size_bytes).value());
    return Buffer(blocks_.back()->bytes().data(), size_bytes, nullptr);
  }
  const SharedArena& arena() const { return *arena_; }
  // A view, as a reader in another process has it.
  std::shared_ptr<const ArenaView> view() const {
    return ArenaView::open(arena_->reader_fd(), arena_->id()).value();
  }

 private:
  const std::shared_ptr<SharedArena> arena_ =
      SharedArena::make("reverie-test", std::size_t{16} << 20).value();
  std::vector<std::shared_ptr<ArenaBlock>> blocks_;
};

// The samples that a test draws, and what the other end reads of them.
class PackedSamplesTest : public ::testing::Test {
 protected:
  // The schema of three columns: "x" float32 [], "y" uint8 [bytes], "z" int64 []; row r of chunk
  // `n` has n + r in each.
  static Ref<const ChunkSchema> schema(std::int64_t bytes) {
    return make_ref<ChunkSchema>(std::vector<TensorSpec>{
        {"x", DType::kFloat32, {}}, {"y", DType::kUInt8, {bytes}}, {"z", DType::kInt64, {}}});
  }
  static Ref<Chunk> raw_chunk(const Ref<const ChunkSchema>& schema, std::uint32_t rows, int n,
                              Chunk::Kind kind = Chunk::Kind::kRaw,
                              Allocator& memory = Allocator::heap()) {
    Ref<Chunk> made = Chunk::open(schema, {}, rows, 0, memory, kind).value();
    for (std::uint32_t row = 0; row < rows; ++row) {
      const int value = n + static_cast<int>(row);
      const auto x = static_cast<float>(value);
      const std::vector<std::uint8_t> y(schema->row_bytes(1), static_cast<std::uint8_t>(value));
      const std::int64_t z = value;
      made->set_row(0, row, std::as_bytes(std::span(&x, 1)));
      made->set_row(1, row, std::as_bytes(std::span(y)));
      made->set_row(2, row, std::as_bytes(std::span(&z, 1)));
    }
    made->publish(rows);
    return made;
  }
  static Chunk::EncodedColumns encode(const Chunk& raw, CodecId codec,
                                      Allocator& memory = Allocator::heap()) {
    std::vector<std::byte> bytes;
    Chunk::EncodedColumns made;
    for (std::size_t c = 0; c < raw.schema().column_count(); ++c) {
      std::vector<RowSpan> rows;
      for (std::uint32_t r = 0; r < raw.rows(); ++r) rows.push_back(raw.row_bytes(c, r));
      const std::size_t offset = bytes.size();
      REVERIE_CHECK(encode_column(codec, raw.schema().column(c), rows, bytes).ok());
      made.columns.push_back({codec, offset, bytes.size() - offset});
    }
    made.storage = memory.allocate(bytes.size()).value();
    std::copy(bytes.begin(), bytes.end(), made.storage.data());
    return made;
  }
  static Ref<Chunk> encoded_chunk(const Ref<const ChunkSchema>& schema, std::uint32_t rows, int n,
                                  CodecId codec) {
    Chunk::EncodedColumns made = encode(*raw_chunk(schema, rows, n), codec);
    return Chunk::encoded(schema, {}, rows, std::move(made.storage), std::move(made.columns));
  }
  static LayoutColumn column(const Ref<const ChunkSchema>& schema, std::uint16_t index,
                             std::uint16_t piece_begin, std::uint16_t piece_end,
                             bool squeezed = false) {
    return {schema->column(index), index, piece_begin, piece_end, squeezed};
  }
  // A layout whose three columns use the same pieces.
  static Ref<const Layout> layout(const Ref<const ChunkSchema>& schema, std::uint16_t pieces = 1) {
    return make_ref<Layout>(
        std::vector<LayoutColumn>{column(schema, 0, 0, pieces), column(schema, 1, 0, pieces),
                                  column(schema, 2, 0, pieces)},
        "s");
  }

  void draw(const Ref<const Layout>& layout, std::vector<Piece> pieces) {
    held_.emplace_back(layout, pieces);
    SampledItem item;
    item.key = 100 + drawn_.size();
    item.probability = 0.25;
    item.priority = static_cast<double>(drawn_.size());
    item.inserted_at_ns = -5;
    item.table_size = 9;
    item.version = 3;
    item.times_sampled = 2;
    item.trajectory = held_.back().view();
    drawn_.add(item);
  }
  // Writes all samples as responses.
  std::vector<std::string> write() {
    std::vector<std::string> messages;
    for (std::size_t next = 0; next < drawn_.size();) {
      messages.push_back(writer_.write(drawn_, &next).value().flat());
    }
    return messages;
  }
  Status read(const std::string& message, std::size_t count_max = 1u << 20) {
    const Ref<GrpcMessage> received = grpc_message(message);
    const auto packed = wire::read_packed_response(received->bytes());
    if (!packed.ok()) return packed.status();
    if (packed->samples.empty()) return data_loss("there are no packed samples");
    sampler_mass_ = packed->sampler_mass;
    return read_packed(received, packed->samples, names_, count_max, read_,
                       samples_.emplace_back());
  }
  // Writes them for a reader that maps the arena.
  std::string write_mapped(MappedChunks& mapped) {
    std::size_t next = 0;
    return writer_.write_bare(drawn_, &next, &mapped).value().build().flat();
  }
  Status read_mapped(const std::string& packed, const ArenaView& view) {
    const auto part = [](std::span<const std::byte> bytes) {
      return Buffer(const_cast<std::byte*>(bytes.data()), bytes.size(), nullptr);
    };
    const auto find = [&](const packed::Mapped& at) {
      return view.bytes({view.id(), at.offset, at.size_bytes, at.generation});
    };
    read_.clear();
    return read_packed(std::as_bytes(std::span(packed)), part, names_, 1u << 20, read_,
                       samples_.emplace_back(), find);
  }
  // Compares everything with what was drawn, by column and row.
  void expect_all() {
    for (const std::string& message : write()) ASSERT_TRUE(read(message).ok());
    ASSERT_EQ(read_.size(), drawn_.size());
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(read_.keys()[i], drawn_.keys()[i]);
      EXPECT_EQ(read_.tickets()[i], drawn_.keys()[i]) << "a ticket is a key";
      EXPECT_EQ(read_.priorities()[i], drawn_.priorities()[i]);
      EXPECT_EQ(read_.versions()[i], 3);
      EXPECT_EQ(read_.times_sampled()[i], 2);
      EXPECT_EQ(read_.inserted_at_ns()[i], -5);
      const TrajectoryView& a = drawn_.trajectories()[i];
      const TrajectoryView& b = read_.trajectories()[i];
      ASSERT_TRUE(check_trajectory(b).ok());
      ASSERT_EQ(a.layout->columns().size(), b.layout->columns().size());
      for (std::size_t c = 0; c < a.layout->columns().size(); ++c) {
        EXPECT_EQ(a.layout->columns()[c].squeezed, b.layout->columns()[c].squeezed);
        EXPECT_EQ(rows_of(a, c), rows_of(b, c)) << "column " << c;
      }
    }
  }
  static std::vector<std::string> rows_of(const TrajectoryView& trajectory, std::size_t c) {
    std::vector<std::string> rows;
    const LayoutColumn& column = trajectory.layout->columns()[c];
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      const Piece& piece = trajectory.pieces()[p];
      const Chunk& chunk = *piece.chunk;
      for (std::uint32_t r = piece.offset; r < piece.offset + piece.length; ++r) {
        if (chunk.is_raw()) {
          const auto row = chunk.row_bytes(column.chunk_column, r);
          rows.emplace_back(reinterpret_cast<const char*>(row.data()), row.size());
          continue;
        }
        const ColumnRows all = decode_column(chunk.encoded_column(column.chunk_column).codec,
                                             chunk.schema().column(column.chunk_column),
                                             chunk.rows(), chunk.encoded_bytes(column.chunk_column))
                                   .value();
        rows.emplace_back(reinterpret_cast<const char*>(all[r].data()), all[r].size());
      }
    }
    return rows;
  }

  PackedWriter writer_;
  std::vector<Trajectory> held_;
  SampleBatch drawn_;
  wire::ColumnNames names_;
  SampleBatch read_;
  std::vector<PackedSamples> samples_;
  double sampler_mass_ = 0;
};

TEST_F(PackedSamplesTest, AResponseCarriesTheMassOfItsTable) {
  const auto kind = schema(5'000);
  const Ref<Chunk> chunk = raw_chunk(kind, 8, 10);
  draw(layout(kind), {{chunk.get(), 2, 3}});
  ASSERT_TRUE(read(write().front()).ok());
  EXPECT_EQ(sampler_mass_, 0) << "unless nothing is known of it";
  drawn_.set_sampler_mass(12.5);
  ASSERT_TRUE(read(write().front()).ok());
  EXPECT_EQ(sampler_mass_, 12.5);
}

TEST_F(PackedSamplesTest, RedeliveredItemsAreMarkedForReadersThatSupportIt) {
  const auto kind = schema(5'000);
  const Ref<Chunk> chunk = raw_chunk(kind, 8, 10);
  for (std::uint32_t i = 0; i < 3; ++i) draw(layout(kind), {{chunk.get(), i, 1}});
  drawn_.set_redelivered(1);
  for (const std::uint64_t version : {packed::kFirstVersion, packed::kVersion}) {
    read_.clear();
    std::size_t next = 0;
    ASSERT_TRUE(read(writer_.write(drawn_, &next, version).value().flat()).ok());
    ASSERT_EQ(read_.size(), 3u);
    const bool is_told = version >= packed::kRedeliveredVersion;
    EXPECT_EQ(read_.redelivered().empty(), !is_told);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(read_.is_redelivered(i), is_told && i == 1) << i;
  }
  std::string message = write().front();
  read_.clear();
  message.resize(message.size() / 2);
  EXPECT_FALSE(read(message).ok());
  EXPECT_TRUE(read_.empty());
}

TEST_F(PackedSamplesTest, RawRowsSurviveARoundTripInAnyLayout) {
  const auto small = schema(3);
  const auto large = schema(5'000);  // rows that messages refer to instead of copying them
  for (const auto& kind : {small, large}) {
    const Ref<Chunk> a = raw_chunk(kind, 8, 10);
    const Ref<Chunk> b = raw_chunk(kind, 4, 50);
    draw(layout(kind), {{a.get(), 2, 3}});
    draw(layout(kind), {{a.get(), 2, 3}});
    draw(layout(kind), {{b.get(), 0, 4}});
    draw(layout(kind, 2), {{a.get(), 7, 1}, {b.get(), 0, 2}});
  }
  expect_all();
}

TEST_F(PackedSamplesTest, RowsOfAsManyAxesAsWritersMaySendSurviveARoundTrip) {
  const Shape shape(kAxesMax, 1);
  const Ref<const ChunkSchema> made =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kFloat32, shape}});
  const Ref<Chunk> chunk = Chunk::open(made, {}, 1, 0, Allocator::heap()).value();
  const float value = 7;
  chunk->set_row(0, 0, std::as_bytes(std::span(&value, 1)));
  chunk->publish(1);
  draw(make_ref<Layout>(std::vector<LayoutColumn>{column(made, 0, 0, 1)}, "s"),
       {{chunk.get(), 0, 1}});
  expect_all();
  ASSERT_EQ(read_.size(), 1u);
  EXPECT_EQ(read_.trajectories()[0].layout->columns()[0].spec.shape, shape);
}

TEST_F(PackedSamplesTest, TextMayBeReadAsTheOtherTextType) {
  for (const DType stored : {DType::kBytes, DType::kString}) {
    const auto kind = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"s", stored, {}}});
    const Ref<Chunk> chunk = Chunk::open(kind, {}, 1, 6, Allocator::heap()).value();
    const std::byte text[6] = {std::byte{2}, {}, {}, {}, std::byte{'a'}, std::byte{'b'}};
    chunk->set_row(0, 0, text);
    chunk->publish(1);
    for (const DType read_as : {DType::kBytes, DType::kString}) {
      for (const bool squeezed : {false, true}) {
        draw(make_ref<Layout>(std::vector<LayoutColumn>{{{"s", read_as, {}}, 0, 0, 1, squeezed}},
                              "s"),
             {{chunk.get(), 0, 1}});
      }
    }
  }
  expect_all();
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    EXPECT_EQ(read_.trajectories()[i].layout->columns()[0].spec.dtype,
              drawn_.trajectories()[i].layout->columns()[0].spec.dtype)
        << i;
  }
}

TEST_F(PackedSamplesTest, EncodedChunksAreSentOnceOrAsRows) {
  for (const CodecId codec :
       {CodecId::kRaw, CodecId::kLz4, CodecId::kZstd, CodecId::kReverb, CodecId::kReverbDelta}) {
    for (const std::int64_t bytes : {3, 9'000}) {
      const auto kind = schema(bytes);
      const Ref<Chunk> chunk = encoded_chunk(kind, 8, 20, codec);
      draw(layout(kind), {{chunk.get(), 1, 2}});
      draw(layout(kind), {{chunk.get(), 5, 3}});
    }
  }
  expect_all();
  // Rows of three bytes are gathered into one chunk per schema; other chunks are sent once.
  ASSERT_EQ(samples_.size(), 1u);
  EXPECT_EQ(samples_[0].chunks.size(), 10u);
}

TEST_F(PackedSamplesTest, UnusedColumnsAreNotSent) {
  const auto kind = schema(9'000);
  const Ref<Chunk> raw = raw_chunk(kind, 4, 1);
  const Ref<Chunk> encoded = encoded_chunk(kind, 4, 1, CodecId::kRaw);
  const auto two = make_ref<Layout>(
      std::vector<LayoutColumn>{column(kind, 2, 0, 1, true), column(kind, 0, 1, 2)}, "s");
  draw(two, {{raw.get(), 1, 1}, {raw.get(), 0, 2}});
  draw(two, {{encoded.get(), 1, 1}, {encoded.get(), 0, 2}});
  EXPECT_LT(write().front().size(), 1'000u) << "column y has 9000 bytes a row";
  expect_all();
}

TEST_F(PackedSamplesTest, AllColumnsAreSentIfPiecesWouldNumberOneDifferently) {
  const auto kind = schema(3);
  const Ref<Chunk> raw = raw_chunk(kind, 4, 1);
  // Piece 0 is used for x and z, piece 1 for z only, where z would become column 0.
  const auto odd = make_ref<Layout>(
      std::vector<LayoutColumn>{column(kind, 0, 0, 1), column(kind, 2, 0, 2)}, "s");
  draw(odd, {{raw.get(), 0, 1}, {raw.get(), 2, 2}});
  expect_all();
}

TEST_F(PackedSamplesTest, TextSurvivesARoundTrip) {
  const auto kind = Ref<const ChunkSchema>(
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"s", DType::kBytes, {2}}}));
  const auto lay =
      Ref<const Layout>(make_ref<Layout>(std::vector<LayoutColumn>{column(kind, 0, 0, 1)}, "s"));
  Ref<Chunk> chunk = Chunk::open(kind, {}, 2, 1'000, Allocator::heap()).value();
  const auto set = [&](std::uint32_t row, const std::string& a, const std::string& b) {
    std::string cell;
    for (const std::string& text : {a, b}) {
      const auto size = static_cast<std::uint32_t>(text.size());
      cell.append(reinterpret_cast<const char*>(&size), sizeof(size));
      cell += text;
    }
    chunk->set_row(0, row, std::as_bytes(std::span(cell)));
  };
  set(0, "one", "");
  set(1, "", "four");
  chunk->publish(2);
  draw(lay, {{chunk.get(), 1, 1}});
  draw(lay, {{chunk.get(), 0, 2}});
  expect_all();
}

TEST_F(PackedSamplesTest, RowsEncodedMeanwhileAreKeptForTheMessage) {
  const auto kind = schema(9'000);
  Ref<Chunk> chunk = raw_chunk(kind, 4, 1, Chunk::Kind::kCompressible);
  draw(layout(kind), {{chunk.get(), 0, 4}});
  std::size_t next = 0;
  Result<GrpcPayload> payload = writer_.write(drawn_, &next);
  chunk->replace_rows(encode(*chunk, CodecId::kLz4));
  ASSERT_TRUE(read(payload.value().flat()).ok());
  const std::vector<std::string> rows = rows_of(read_.trajectories()[0], 1);
  EXPECT_EQ(rows, rows_of(drawn_.trajectories()[0], 1));
}

TEST_F(PackedSamplesTest, LargeBatchesAreSplitIntoMessages) {
  const auto kind = schema(100'000);
  const Ref<Chunk> chunk = raw_chunk(kind, 2, 1);
  for (int i = 0; i < 100; ++i) draw(layout(kind), {{chunk.get(), 1, 1}});
  const std::vector<std::string> messages = write();
  EXPECT_GE(messages.size(), 4u);
  for (const std::string& message : messages) EXPECT_LT(message.size(), 3u << 20u);
  expect_all();
}

TEST_F(PackedSamplesTest, MoreRowsThanAChunkMayHaveAreSentAsSeveralChunks) {
  constexpr std::uint32_t kRows = 1u << 22u;
  const Ref<const ChunkSchema> empty = make_ref<ChunkSchema>(
      std::vector<TensorSpec>{{"x", DType::kFloat32, {0}}});  // rows without bytes
  const Ref<Chunk> chunk = Chunk::open(empty, {}, kRows, 0, Allocator::heap()).value();
  chunk->publish(kRows);
  const Ref<const Layout> whole =
      make_ref<Layout>(std::vector<LayoutColumn>{column(empty, 0, 0, 1)}, "s");
  for (int i = 0; i < 5; ++i) draw(whole, {{chunk.get(), 0, kRows}});  // the bound is 4 times that
  const std::vector<std::string> messages = write();
  ASSERT_EQ(messages.size(), 1u);
  const Status status = read(messages.front());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(read_.size(), 5u);
  for (const TrajectoryView& trajectory : read_.trajectories()) {
    EXPECT_EQ(trajectory.pieces().front().length, kRows);
  }
}

TEST_F(PackedSamplesTest, AnItemOfMoreRowsThanAChunkMayHaveIsRefusedAndOthersOfTheChunkAreSent) {
  constexpr std::uint32_t kRows = (1u << 24u) + 5;
  const Ref<const ChunkSchema> bytes =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kUInt8, {}}});
  const Ref<const Layout> whole =
      make_ref<Layout>(std::vector<LayoutColumn>{column(bytes, 0, 0, 1)}, "s");
  std::vector<std::byte> values(kRows);
  for (std::uint32_t row = 0; row < kRows; ++row) values[row] = static_cast<std::byte>(row % 251);
  const Ref<Chunk> raw = Chunk::open(bytes, {}, kRows, 0, Allocator::heap()).value();
  raw->set_rows(0, 0, values);
  raw->publish(kRows);
  Buffer storage = Allocator::heap().allocate(kRows).value();
  std::ranges::copy(values, storage.data());
  const Ref<Chunk> sealed =
      Chunk::encoded(bytes, {}, kRows, std::move(storage), {{CodecId::kRaw, 0, kRows}});
  for (const Ref<Chunk>& chunk : {raw, sealed}) {
    drawn_.clear();
    read_.clear();
    draw(whole, {{chunk.get(), kRows - 3, 3}});
    const std::vector<std::string> messages = write();
    ASSERT_EQ(messages.size(), 1u);
    ASSERT_TRUE(read(messages.front()).ok());
    const Chunk& sent = *read_.trajectories()[0].pieces()[0].chunk;
    EXPECT_EQ(sent.row_bytes(0, 2)[0], values.back());
    draw(whole, {{chunk.get(), 0, kRows}});
    std::size_t next = 0;
    expect_refused(writer_.write(drawn_, &next).status(), StatusCode::kFailedPrecondition,
                   {"16777221 rows", "16777216", "insert shorter arrays"});
  }
}

TEST_F(PackedSamplesTest, ADamagedColumnIsSentUnchanged) {
  const auto kind = schema(3);
  Ref<Chunk> good = encoded_chunk(kind, 4, 1, CodecId::kReverb);
  Chunk::EncodedColumns damaged = encode(*raw_chunk(kind, 4, 1), CodecId::kReverb);
  damaged.storage.data()[damaged.columns[1].offset] = std::byte{0xff};
  const Ref<Chunk> bad = Chunk::encoded(kind, {}, 4, std::move(damaged.storage), damaged.columns);
  draw(layout(kind), {{good.get(), 0, 1}});
  draw(layout(kind), {{bad.get(), 0, 1}});
  ASSERT_TRUE(read(write().front()).ok());
  EXPECT_EQ(rows_of(read_.trajectories()[0], 1), rows_of(drawn_.trajectories()[0], 1));
  const Chunk& sent = *read_.trajectories()[1].pieces()[0].chunk;
  ASSERT_FALSE(sent.is_raw());
  const auto decoded = decode_column(sent.encoded_column(1).codec, sent.schema().column(1),
                                     sent.rows(), sent.encoded_bytes(1));
  EXPECT_EQ(decoded.status().code(), StatusCode::kDataLoss) << "the reader finds the damage";
}

TEST_F(PackedSamplesTest, ColumnNamesComeFromTheTableIfTheCountsMatch) {
  const auto kind = schema(3);
  const Ref<Chunk> chunk = raw_chunk(kind, 2, 1);
  draw(layout(kind), {{chunk.get(), 0, 1}});
  const std::string message = write().front();
  ASSERT_TRUE(read(message).ok());
  EXPECT_EQ(read_.trajectories()[0].layout->columns()[2].spec.name, "2");
  names_ = {{"a", "b", "c"}, "nest"};
  ASSERT_TRUE(read(message).ok());
  EXPECT_EQ(read_.trajectories()[1].layout->columns()[2].spec.name, "c");
  EXPECT_EQ(read_.trajectories()[1].layout->structure(), "nest");
}

// --- Messages that our servers never send.

class HostilePackedSamples : public PackedSamplesTest {
 protected:
  // Two samples: one of gathered rows, one of a squeezed row of an encoded chunk.
  std::string good() {
    const auto kind = schema(3'000);
    chunk_ = encoded_chunk(kind, 4, 1, CodecId::kRaw);
    raw_ = raw_chunk(kind, 2, 1);
    const auto one = make_ref<Layout>(std::vector<LayoutColumn>{column(kind, 0, 0, 1, true)}, "s");
    draw(layout(kind), {{raw_.get(), 0, 2}});
    draw(one, {{chunk_.get(), 1, 1}});
    std::size_t next = 0;
    return writer_.write(drawn_, &next).value().flat();
  }
  // The packed bytes, which follow the response's head.
  static std::string body(const std::string& message) {
    const auto packed = wire::read_packed_response(wire::bytes_of(message)).value();
    return std::string(wire::text_of(packed.samples));
  }
  static std::string message_of(const std::string& body) {
    return wire::packed_response_head(body.size()) + body;
  }
  Ref<Chunk> chunk_;
  Ref<Chunk> raw_;
};

TEST_F(HostilePackedSamples, AreRefusedIfTruncatedAndLeaveTheBatchUnchanged) {
  const std::string whole = body(good());
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const Status status = read(message_of(whole.substr(0, size)));
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size << ": " << status.to_string();
    ASSERT_TRUE(read_.empty());
    samples_.clear();
  }
  EXPECT_EQ(read(message_of(whole + "x")).code(), StatusCode::kDataLoss) << "or too long";
  EXPECT_TRUE(read(message_of(whole)).ok());
}

TEST_F(HostilePackedSamples, NeverCauseReadsOutsideTheMessageWhateverNumberIsWrong) {
  const std::string whole = body(good());
  constexpr std::size_t kRowBytes = 2 * (4 + 3'000 + 8) + 4 * 4;
  ASSERT_GT(whole.size(), kRowBytes);
  const std::size_t tables = whole.size() - kRowBytes;
  int refused = 0;
  for (std::size_t at = 0; at < tables; ++at) {
    for (const char with : {'\x00', '\x01', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[at] = with;
      const Status status = read(message_of(changed));
      if (status.ok()) {
        for (const TrajectoryView& view : read_.trajectories()) {
          ASSERT_TRUE(check_trajectory(view).ok());
        }
      } else {
        ++refused;
        ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
      }
      read_.clear();
      samples_.clear();
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(HostilePackedSamples, MoreSamplesThanRequestedAreRefused) {
  const std::string message = good();
  expect_refused(read(message, 1), StatusCode::kDataLoss, {"2 packed samples", "between 1 and 1"});
}

TEST_F(HostilePackedSamples, CountsBeyondTheBytesAreRefused) {
  const std::string whole = body(good());
  for (std::size_t field = 0; field < 5; ++field) {
    std::string changed = whole;
    const std::uint32_t huge = 0xfffffff0u;
    std::memcpy(changed.data() + field * sizeof(huge), &huge, sizeof(huge));
    EXPECT_EQ(read(message_of(changed), ~std::size_t{0}).code(), StatusCode::kDataLoss) << field;
  }
}

// Three items over large chunks: raw rows, rows that their writer may replace, encoded columns.
TEST_F(PackedSamplesTest, ChunksOfAMappedArenaAreReadInPlace) {
  ArenaBlocks blocks;
  const auto large = schema(4000);
  const auto view = blocks.view();
  std::vector<Ref<Chunk>> chunks;
  chunks.push_back(raw_chunk(large, 6, 10, Chunk::Kind::kRaw, blocks));
  chunks.push_back(raw_chunk(large, 6, 20, Chunk::Kind::kCompressible, blocks));
  Chunk::EncodedColumns encoded = encode(*raw_chunk(large, 6, 30), CodecId::kZstd, blocks);
  chunks.push_back(
      Chunk::encoded(large, {}, 6, std::move(encoded.storage), std::move(encoded.columns)));
  const auto all = layout(large);
  for (const auto& chunk : chunks) draw(all, {{chunk.get(), 2, 3}});
  draw(all, {{chunks[0].get(), 0, 1}});  // the first chunk again
  MappedChunks mapped;
  mapped.arena = &blocks.arena();
  mapped.size_bytes_max = std::size_t{1} << 30;
  const std::string packed = write_mapped(mapped);
  EXPECT_LT(packed.size(), 1000u) << "no rows";
  EXPECT_EQ(mapped.chunks.size(), 3u) << "each chunk once";
  // Compressing a chunk meanwhile does not affect its reader.
  chunks[1]->replace_rows(encode(*chunks[1], CodecId::kZstd));
  ASSERT_TRUE(read_mapped(packed, *view).ok());
  ASSERT_EQ(read_.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(rows_of(read_.trajectories()[i], c), rows_of(drawn_.trajectories()[i], c)) << i;
    }
  }
  EXPECT_TRUE(samples_.back().is_mapped);
}

TEST_F(PackedSamplesTest, AReaderBeyondItsBoundGetsCopies) {
  ArenaBlocks blocks;
  const auto large = schema(4000);
  const auto first = raw_chunk(large, 6, 10, Chunk::Kind::kRaw, blocks);
  const auto second = raw_chunk(large, 6, 20, Chunk::Kind::kRaw, blocks);
  draw(layout(large), {{first.get(), 0, 2}});
  draw(layout(large), {{second.get(), 1, 2}});
  MappedChunks mapped;
  mapped.arena = &blocks.arena();
  mapped.size_bytes_max = first->size_bytes();
  const std::string packed = write_mapped(mapped);
  EXPECT_GT(packed.size(), 8000u);
  ASSERT_EQ(mapped.chunks.size(), 1u);
  EXPECT_LE(mapped.size_bytes, mapped.size_bytes_max);
  const auto view = blocks.view();
  ASSERT_TRUE(read_mapped(packed, *view).ok());
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(rows_of(read_.trajectories()[i], c), rows_of(drawn_.trajectories()[i], c)) << i;
    }
  }
}

TEST_F(PackedSamplesTest, InvalidReferencesToMappedMemoryAreRefusedOrHarmless) {
  ArenaBlocks blocks;
  const auto large = schema(4000);
  const auto view = blocks.view();
  const auto raw = raw_chunk(large, 6, 10, Chunk::Kind::kRaw, blocks);
  Chunk::EncodedColumns columns = encode(*raw_chunk(large, 6, 30), CodecId::kZstd, blocks);
  const auto encoded =
      Chunk::encoded(large, {}, 6, std::move(columns.storage), std::move(columns.columns));
  draw(layout(large), {{raw.get(), 2, 3}});
  draw(layout(large), {{encoded.get(), 2, 3}});
  MappedChunks mapped;
  mapped.arena = &blocks.arena();
  mapped.size_bytes_max = std::size_t{1} << 30;
  const std::string packed = write_mapped(mapped);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < packed.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = packed;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      if (!read_mapped(bad, *view).ok()) {
        ++refused;
        continue;
      }
      // Accepted samples can be read completely.
      for (const TrajectoryView& trajectory : read_.trajectories()) {
        ASSERT_TRUE(check_trajectory(trajectory).ok());
        const Piece& piece = trajectory.pieces().front();
        if (piece.chunk->is_raw()) (void)rows_of(trajectory, 0);
      }
    }
  }
  EXPECT_GT(refused, packed.size());
  for (std::size_t size = 0; size < packed.size(); ++size) {
    ASSERT_FALSE(read_mapped(packed.substr(0, size), *view).ok()) << size;
  }
}

}  // namespace
}  // namespace reverie
