// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/checkpoint/journal_records.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <unordered_set>

#include "reverie/base/lost_bytes.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/codec/column_codec.h"
#include "reverie/durable_files/little_endian.h"
#include "reverie/record/readable_rows.h"
#include "reverie/replay/table_image.h"

namespace reverie::checkpoint {
namespace {

// Copying fewer bytes takes about as long as keeping the chunk.
constexpr std::size_t kLateBytesMin = 4096;

// What the record of a draw takes, without its pieces; and one of these.
constexpr std::uint64_t kDrawBytes = 48;
constexpr std::uint64_t kPieceBytes = 12;

// The bits of a mark's rows; no chunk has more.
constexpr std::uint32_t kRowsMask = 0x7fffffff;

// Numbers that are appended as one, since each growth of a vector has its cost.
class Fields {
 public:
  Fields& u8(std::uint8_t value) { return number(value); }
  Fields& u32(std::uint32_t value) { return number(value); }
  Fields& u64(std::uint64_t value) { return number(value); }
  Fields& i64(std::int64_t value) { return number(static_cast<std::uint64_t>(value)); }
  Fields& f64(double value) { return number(std::bit_cast<std::uint64_t>(value)); }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  template <std::unsigned_integral T>
  Fields& number(T value) {
    put_number(bytes_.data() + size_, value);
    size_ += sizeof(T);
    return *this;
  }

  std::array<std::byte, 64> bytes_;
  std::size_t size_ = 0;
};

// What the chunks of these pieces take, each once.
std::uint64_t recorded_bytes(std::span<const Piece> pieces) {
  std::uint64_t size = 0;
  std::unordered_set<const Chunk*> known;
  for (const Piece& piece : pieces) {
    if (known.insert(piece.chunk).second) size += piece.chunk->size_bytes();
  }
  return size;
}

}  // namespace

// Appends while it lives.
class RecordWriter::Record {
 public:
  Record(RecordWriter& writer, RecordType type) : writer_(writer), out(writer.records) {
    out.raw(Fields().u8(static_cast<std::uint8_t>(type)).u32(0).bytes());
    begin_ = writer.size_bytes();
    size_at_ = writer.records.size() - sizeof(std::uint32_t);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record() {
    const std::size_t size = writer_.size_bytes() - begin_;
    put_number(writer_.records.data() + size_at_, static_cast<std::uint32_t>(size));
    ++writer_.count;
  }

  // Appends the rows of a chunk: at once, or later if there are many bytes.
  void rows(const Chunk& chunk, ChunkBytes bytes) {
    out.raw(bytes.head);
    const std::size_t size = bytes.size_bytes() - bytes.head.size();
    if (size < kLateBytesMin) {
      for (const auto part : bytes.parts) out.raw(part);
      return;
    }
    writer_.late_bytes += size;
    writer_.late.push_back(
        {writer_.records.size(), Ref<const Chunk>::share(&chunk), std::move(bytes)});
  }

 private:
  RecordWriter& writer_;
  std::size_t begin_ = 0;  // among all bytes
  std::size_t size_at_ = 0;

 public:
  ByteWriter out;
};

RecordWriter::RecordWriter(std::vector<TableOptions> tables, std::int64_t calendar_offset_ns)
    : log_([] {
        static std::atomic<std::uint32_t> last{0};
        return last.fetch_add(1) + 1;
      }()),
      tables_(std::move(tables)),
      calendar_offset_ns_(calendar_offset_ns) {}

bool join(std::span<const std::byte> records, std::span<const LateRows> late,
          std::vector<std::byte>& out) {
  std::size_t size = records.size();
  for (const LateRows& rows : late) {
    for (const auto part : rows.bytes.parts) size += part.size();
  }
  out.clear();
  out.reserve(size);
  const auto append = [&out](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  std::size_t at = 0;
  for (const LateRows& rows : late) {
    append(records.subspan(at, rows.at - at));
    for (const auto part : rows.bytes.parts) append(part);
    at = rows.at;
  }
  append(records.subspan(at));
  return std::ranges::none_of(late, [](const LateRows& rows) {
    return std::ranges::any_of(rows.bytes.parts, &LostBytes::overlap);
  });
}

Result<std::size_t> recordable_bytes(std::span<const Item> items, std::uint64_t item_bytes_max) {
  std::size_t size_bytes = 0;
  for (const Item& item : items) {
    const Chunk* last = nullptr;
    std::uint64_t item_bytes = 0;
    for (const Piece& piece : item.trajectory.pieces()) {
      size_bytes += piece.length * piece.chunk->schema().step_bytes();
      const std::uint64_t row_end = std::uint64_t{piece.offset} + piece.length;
      const std::uint32_t rows = piece.chunk->rows();
      if (row_end > rows) {
        return failed_precondition(
            "an item has {} rows of a chunk that has {} so far: the replay buffer that writes it "
            "goes on; give its table durability \"none\", and save it by write_replay_state()",
            row_end, rows);
      }
      if (std::exchange(last, piece.chunk) == piece.chunk) continue;
      // Once rows have been written, they may have to be again, in another file.
      const std::size_t size = piece.chunk->size_bytes();
      if (size > kRecordedChunkBytesMax) {
        return invalid_argument(
            "a chunk takes {} bytes; the bound for a table with durability is {}; insert its rows "
            "as several chunks, or give the table durability \"none\"",
            size, kRecordedChunkBytesMax);
      }
      item_bytes += size;
    }
    if (item_bytes <= item_bytes_max) continue;
    item_bytes = recorded_bytes(item.trajectory.pieces());
    if (item_bytes > item_bytes_max) {
      return invalid_argument(
          "the chunks of an item take {} bytes; the bound for a table with durability is {}; "
          "insert shorter items, or give the table durability \"none\"",
          item_bytes, item_bytes_max);
    }
  }
  return size_bytes;
}

std::vector<std::size_t> ends_of_parts(const SampleBatch& batch, std::size_t begin, std::size_t end,
                                       std::uint64_t bytes_max) {
  std::vector<std::size_t> ends;
  std::uint64_t size = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const auto pieces = batch.trajectories()[i].pieces();
    std::uint64_t added = kDrawBytes + pieces.size() * kPieceBytes;
    const Chunk* last = nullptr;
    for (const Piece& piece : pieces) {
      if (std::exchange(last, piece.chunk) != piece.chunk) added += piece.chunk->size_bytes();
    }
    if (i > begin && size + added > bytes_max) {
      ends.push_back(i);
      size = 0;
    }
    size += added;
  }
  if (begin < end) ends.push_back(end);
  return ends;
}

bool RecordWriter::join() {
  if (has_lost_rows) return false;
  if (late.empty()) return true;
  if (!checkpoint::join(records, late, joined_)) return false;
  records.swap(joined_);
  take_late();
  return true;
}

std::vector<LateRows> RecordWriter::take_late() {
  late_bytes = 0;
  return std::exchange(late, {});
}

void RecordWriter::begin_file() {
  ++file_;
  has_tables_ = false;
  last_schema_ = nullptr;
  last_layout_ = nullptr;
  schemas_.clear();
  layouts_.clear();
  chunks_.clear();
  sessions_.clear();
  next_chunk_ = 0;
}

// --- Definitions -----------------------------------------------------------------------------

std::uint32_t RecordWriter::schema_number(const Ref<const ChunkSchema>& schema) {
  if (schema.get() == last_schema_) return last_schema_number_;
  const auto number = static_cast<std::uint32_t>(schemas_.size());
  const auto [found, is_new] = schemas_.try_emplace(schema.get(), schema, number);
  if (is_new) {
    Record record(*this, RecordType::kSchema);
    write_schema(*schema, record.out);
  }
  last_schema_ = schema.get();
  return last_schema_number_ = found->second.second;
}

std::uint32_t RecordWriter::layout_number(const Layout* layout) {
  if (layout == last_layout_) return last_layout_number_;
  const auto number = static_cast<std::uint32_t>(layouts_.size());
  const auto [found, is_new] =
      layouts_.try_emplace(layout, Ref<const Layout>::share(layout), number);
  if (is_new) {
    Record record(*this, RecordType::kLayout);
    write_layout(*layout, record.out);
  }
  last_layout_ = layout;
  return last_layout_number_ = found->second.second;
}

Chunk::LogMark& RecordWriter::mark_of(const Chunk& chunk) {
  if (chunk.claim_log(log_)) return chunk.log_mark();
  KeptChunk& kept = chunks_[&chunk];
  if (!kept.chunk) kept.chunk = Ref<const Chunk>::share(&chunk);
  return kept.mark;
}

void RecordWriter::write_chunk(const Chunk& chunk, Chunk::LogMark& mark) {
  const std::uint32_t schema = schema_number(chunk.shared_schema());
  std::uint32_t rows = chunk.rows();
  mark.file = file_;
  mark.number = next_chunk_++;
  const auto describe = [&](ByteWriter& out, bool is_open) {
    const std::size_t fixed = chunk.capacity() * chunk.schema().step_bytes();
    mark.rows = rows & kRowsMask;
    mark.is_open = is_open ? 1 : 0;
    Fields fields;
    fields.u32(schema).u64(chunk.key()).u64(chunk.episode()).u32(chunk.first_step());
    fields.u32(rows).u32(is_open ? chunk.capacity() : 0);
    fields.u64(is_open ? chunk.raw_bytes() - fixed : 0);
    out.raw(fields.bytes());
  };
  // The usual case: rows of fixed size that stay raw. A few bytes are written directly to their
  // place.
  const bool is_small = rows * chunk.schema().step_bytes() < kLateBytesMin;
  if (is_small && chunk.is_raw_for_good() && !chunk.schema().has_variable()) {
    Record record(*this, RecordType::kChunk);
    describe(record.out, rows < chunk.capacity());
    write_raw_rows(chunk, rows, record.out);
    return check_read(chunk, 0, rows);
  }
  Result<ChunkBytes> bytes = chunk_bytes(chunk, rows);
  // Only raw rows of varying size could fail, for lack of memory.
  REVERIE_CHECK(bytes.ok());
  rows = bytes->rows;
  Record record(*this, RecordType::kChunk);
  describe(record.out, bytes->raw && rows < chunk.capacity());
  record.rows(chunk, std::move(*bytes));
  check_read(chunk, 0, rows);
}

// Only rows that are still raw: a chunk that was encoded meanwhile has no new rows since its items
// were written, or the whole chunk is written again.
void RecordWriter::write_rows(const Chunk& chunk, Chunk::LogMark& mark, std::uint32_t rows) {
  const RawRows raw(chunk);
  if (!raw || mark.is_open == 0) return write_chunk(chunk, mark);
  Record record(*this, RecordType::kRows);
  record.out.raw(Fields().u32(mark.number).u32(mark.rows).u32(rows - mark.rows).bytes());
  const ChunkSchema& schema = chunk.schema();
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    if (!schema.is_variable(c)) {
      const std::size_t size = (rows - mark.rows) * schema.row_bytes(c);
      record.out.u64(size).raw({chunk.row(c, mark.rows), size});
      continue;
    }
    std::vector<RowSpan> spans;
    for (std::uint32_t r = mark.rows; r < rows; ++r) spans.push_back(chunk.row_bytes(c, r));
    std::vector<std::byte> encoded;
    REVERIE_CHECK(encode_column(CodecId::kRaw, schema.column(c), spans, encoded).ok());
    record.out.u64(encoded.size()).raw(encoded);
  }
  check_read(chunk, mark.rows, rows - mark.rows);
  mark.rows = rows & kRowsMask;
}

void RecordWriter::check_read(const Chunk& chunk, std::uint32_t first, std::uint32_t rows) {
  if (!check_readable(chunk, first, rows).ok()) has_lost_rows = true;
}

std::uint32_t RecordWriter::chunk_number(const Chunk& chunk, std::uint32_t rows) {
  Chunk::LogMark& mark = mark_of(chunk);
  if (mark.file != file_) {
    write_chunk(chunk, mark);
  } else if (mark.rows < rows) {
    write_rows(chunk, mark, chunk.rows());
  }
  return mark.number;
}

std::uint32_t RecordWriter::session_number(std::string_view session) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(sessions_.size());
  sessions_.emplace(session, number);
  Record record(*this, RecordType::kSession);
  record.out.raw(std::as_bytes(std::span(session)));
  return number;
}

void RecordWriter::define(const TrajectoryView& trajectory) {
  if (!has_tables_) {
    has_tables_ = true;
    Record record(*this, RecordType::kTables);
    record.out.u32(static_cast<std::uint32_t>(tables_.size()));
    for (const TableOptions& options : tables_) {
      TableImage image;
      image.options = options;
      image.extension_states.resize(options.extensions.size());
      write_table(image, record.out);
    }
  }
  if (trajectory.layout == nullptr) return;
  layout_number(trajectory.layout);
  for (const Piece& piece : trajectory.pieces()) {
    chunk_number(*piece.chunk, piece.offset + piece.length);
  }
}

// Requires define().
void RecordWriter::write_trajectory(const TrajectoryView& trajectory, ByteWriter& out) {
  out.u32(layout_number(trajectory.layout));
  for (const Piece& piece : trajectory.pieces()) {
    Fields fields;
    fields.u32(chunk_number(*piece.chunk, piece.offset + piece.length));
    out.raw(fields.u32(piece.offset).u32(piece.length).bytes());
  }
}

// --- Changes ---------------------------------------------------------------------------------

void RecordWriter::insert(std::uint32_t table, TimePoint now, const LoggedInsert& item) {
  define(item.trajectory);
  if (!item.session.empty()) {
    const std::uint32_t session = session_number(item.session);
    Record record(*this, RecordType::kNumber);
    record.out.u32(session).u64(item.number);
  }
  Record record(*this, RecordType::kInsert);
  Fields fields;
  fields.u32(table).i64(calendar(now)).u64(item.key);
  fields.u8(item.priority ? 1 : 0).f64(item.priority.value_or(0)).i64(item.version);
  fields.u32(item.slot).u32(static_cast<std::uint32_t>(item.evicted.size()));
  record.out.raw(fields.bytes());
  for (const Slot slot : item.evicted) record.out.u32(slot);
  write_trajectory(item.trajectory, record.out);
}

void RecordWriter::update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
                          std::span<const double> priorities) {
  define({});
  Record record(*this, RecordType::kUpdate);
  record.out.u32(table).i64(calendar(now)).u32(static_cast<std::uint32_t>(slots.size()));
  for (std::size_t i = 0; i < slots.size(); ++i) record.out.u32(slots[i]).f64(priorities[i]);
}

void RecordWriter::erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys) {
  define({});
  Record record(*this, RecordType::kErase);
  record.out.u32(table).i64(calendar(now)).u32(static_cast<std::uint32_t>(keys.size()));
  for (const ItemKey key : keys) record.out.u64(key);
}

void RecordWriter::corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws) {
  define({});
  Record record(*this, RecordType::kCorrupt);
  record.out.u32(table).i64(calendar(now)).u64(key).u64(draws);
}

void RecordWriter::draws(std::uint32_t table, std::int64_t sample_count) {
  define({});
  Record record(*this, RecordType::kDraws);
  record.out.u32(table).i64(sample_count);
}

void RecordWriter::sample(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                          std::size_t begin, StoreLog::SampleKind kind) {
  define({});
  const auto tickets = batch.tickets().subspan(begin);
  if (kind == StoreLog::SampleKind::kCounted) {
    return draws(table, static_cast<std::int64_t>(tickets.size()));
  }
  const bool is_awaited = kind == StoreLog::SampleKind::kAwaited;
  Record record(*this, is_awaited ? RecordType::kAwaitedSample : RecordType::kSample);
  record.out.u32(table).i64(calendar(now)).u32(static_cast<std::uint32_t>(tickets.size()));
  for (const std::uint64_t ticket : tickets) record.out.u32(Ticket::unpack(ticket).slot);
}

void RecordWriter::settled(std::string_view session, std::uint64_t below) {
  define({});
  const std::uint32_t number = session_number(session);
  Record record(*this, RecordType::kSettled);
  record.out.u32(number).u64(below);
}

void RecordWriter::numbers(std::string_view session, const NumberSet& in) {
  define({});
  const std::uint32_t number = session_number(session);
  Record record(*this, RecordType::kNumbers);
  record.out.u32(number).u32(static_cast<std::uint32_t>(in.run_count()));
  for (const NumberSet::Run& run : in.runs()) record.out.u64(run.begin).u64(run.end);
}

void RecordWriter::receipt(std::uint32_t table, std::span<const DrawId> draws) {
  define({});
  Record record(*this, RecordType::kReceipt);
  record.out.u32(table).u32(static_cast<std::uint32_t>(draws.size()));
  for (const DrawId& draw : draws) {
    record.out.u64(draw.ticket).u32(static_cast<std::uint32_t>(draw.times_sampled));
  }
}

void RecordWriter::write_draws(RecordType type, std::uint32_t table, TimePoint now,
                               const SampleBatch& batch, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) define(batch.trajectories()[i]);
  Record record(*this, type);
  record.out.u32(table).i64(calendar(now)).u32(static_cast<std::uint32_t>(end - begin));
  for (std::size_t i = begin; i < end; ++i) {
    record.out.u64(batch.keys()[i]).u64(batch.tickets()[i]).f64(batch.priorities()[i]);
    record.out.i64(batch.inserted_at_ns()[i] + calendar_offset_ns_).i64(batch.versions()[i]);
    record.out.u32(static_cast<std::uint32_t>(batch.times_sampled()[i]) |
                   (batch.is_redelivered(i) ? kRedeliveredBit : 0));
    write_trajectory(batch.trajectories()[i], record.out);
  }
}

void RecordWriter::reset(std::uint32_t table) {
  define({});
  Record record(*this, RecordType::kReset);
  record.out.u32(table);
}

void RecordWriter::mark() {
  const Record record(*this, RecordType::kMark);
}

}  // namespace reverie::checkpoint
