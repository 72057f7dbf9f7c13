// RecordWriter: writes changes of tables as records of a journal.
//
//     definitions   tables, schema, layout, chunk, more rows of a chunk     each once per file
//     changes       insert, update, erase, sample, ...                      refer to these
//
// The bytes of a large chunk are put into its record only by join(). So records that go to a file
// are complete without a lock under which changes are recorded; those that go into the ring are
// joined under it. Until then the chunk is kept.
//
// Each file of a journal defines everything that it refers to. A chunk itself records what was
// written of it (Chunk::LogMark), so this needs no look-up and ends with the chunk's items. Chunks
// that another log has claimed are kept until the next file begins, so that no other chunk gets the
// address of one that was written.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/number_set.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/record/table_info.h"
#include "reverie/replay/store_log.h"

namespace reverie::checkpoint {

enum class RecordType : std::uint8_t {
  kTables = 1,
  kSchema = 2,
  kLayout = 3,
  kChunk = 4,
  kRows = 5,
  kMark = 6,
  kInsert = 16,
  kUpdate = 17,
  kErase = 18,
  kCorrupt = 19,
  kSample = 20,
  kDraws = 21,
  kTakeBack = 22,
  kReset = 23,
  kAwaitedSample = 24,
  kReceipt = 25,
  kOpenDraws = 26,
  kSession = 27,
  kNumber = 28,
  kSettled = 29,
  kNumbers = 30,
};

// A record begins with its type and its size.
inline constexpr std::size_t kRecordHeaderBytes = 5;
// The size has 32 bits, so this is the most that a chunk may take; the rest is for what describes
// it.
inline constexpr std::size_t kRecordedChunkBytesMax =
    (std::size_t{4} << 30) - (std::size_t{4} << 20);

// The size of the rows of these items; or why one of them cannot be recorded: INVALID_ARGUMENT if
// the chunks of an item take more than `item_bytes_max`, or one of them more than a record,
// FAILED_PRECONDITION if an item has rows that are not published yet.
Result<std::size_t> recordable_bytes(std::span<const Item> items, std::uint64_t item_bytes_max);

// Divides the draws [begin, end) of a batch into parts, in order: where each one ends. The record
// of a part, with the chunks that it refers to, takes at most `bytes_max`, or the part is one draw.
std::vector<std::size_t> ends_of_parts(const SampleBatch& batch, std::size_t begin, std::size_t end,
                                       std::uint64_t bytes_max);

// The rows of a chunk whose record lacks them.
struct LateRows {
  std::size_t at = 0;  // where they belong in the records
  Ref<const Chunk> chunk;
  ChunkBytes bytes;  // only its parts; the head is in the record
};
// The records with these rows in their places, instead of what `out` contains. False if a disk
// could not read some of the rows back (base/lost_bytes.h).
bool join(std::span<const std::byte> records, std::span<const LateRows> late,
          std::vector<std::byte>& out);

// Not thread-safe. Records are appended to `records`.
class RecordWriter {
 public:
  RecordWriter(std::vector<TableOptions> tables, std::int64_t calendar_offset_ns);

  // Where records are appended, and their number.
  std::vector<std::byte> records;
  std::uint32_t count = 0;
  // What `records` lack, in order, and its size.
  std::vector<LateRows> late;
  std::size_t late_bytes = 0;
  // Whether a disk could not read back rows that are in `records`. Who takes these resets it.
  bool has_lost_rows = false;

  // The size of the records and of what they lack.
  std::size_t size_bytes() const { return records.size() + late_bytes; }
  // Puts into the records what they lack. False, and they lack it still, if a disk lost rows.
  bool join();
  // Removes and returns what the records lack; the caller takes these too, or removes them.
  std::vector<LateRows> take_late();

  // The next records go to another file.
  void begin_file();

  void prepare(const Item& item) { define(item.trajectory.view()); }
  void insert(std::uint32_t table, TimePoint now, const LoggedInsert& item);
  void update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
              std::span<const double> priorities);
  void erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys);
  void corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws);
  void draws(std::uint32_t table, std::int64_t sample_count);
  void sample(std::uint32_t table, TimePoint now, const SampleBatch& batch, std::size_t begin,
              StoreLog::SampleKind kind);
  void take_back(std::uint32_t table, TimePoint now, const SampleBatch& batch, std::size_t begin,
                 std::size_t end) {
    write_draws(RecordType::kTakeBack, table, now, batch, begin, end);
  }
  void receipt(std::uint32_t table, std::span<const DrawId> draws);
  // The items that a session will never resend, and those of earlier files that it may resend.
  void settled(std::string_view session, std::uint64_t below);
  void numbers(std::string_view session, const NumberSet& in);
  // Draws of earlier files that are still awaited.
  void open_draws(std::uint32_t table, const SampleBatch& batch, std::size_t begin,
                  std::size_t end) {
    write_draws(RecordType::kOpenDraws, table, TimePoint{0}, batch, begin, end);
  }
  void reset(std::uint32_t table);
  // A record without a change.
  void mark();

 private:
  // A chunk that another log marks.
  struct KeptChunk {
    Ref<const Chunk> chunk;
    Chunk::LogMark mark;
  };

  // Fills in a record's size at its end.
  class Record;
  std::int64_t calendar(TimePoint now) const { return now.ns + calendar_offset_ns_; }
  std::uint32_t schema_number(const Ref<const ChunkSchema>& schema);
  std::uint32_t layout_number(const Layout* layout);
  // Writes at least `rows` rows of the chunk if necessary, and returns its number.
  std::uint32_t chunk_number(const Chunk& chunk, std::uint32_t rows);
  Chunk::LogMark& mark_of(const Chunk& chunk);
  void write_chunk(const Chunk& chunk, Chunk::LogMark& mark);
  void write_rows(const Chunk& chunk, Chunk::LogMark& mark, std::uint32_t rows);
  // After rows were read.
  void check_read(const Chunk& chunk, std::uint32_t first, std::uint32_t rows);
  void define(const TrajectoryView& trajectory);
  std::uint32_t session_number(std::string_view session);
  void write_trajectory(const TrajectoryView& trajectory, ByteWriter& out);
  void write_draws(RecordType type, std::uint32_t table, TimePoint now, const SampleBatch& batch,
                   std::size_t begin, std::size_t end);

  const std::uint32_t log_;  // unique among the logs of this process
  std::uint32_t file_ = 1;   // the current file
  const std::vector<TableOptions> tables_;
  const std::int64_t calendar_offset_ns_;
  bool has_tables_ = false;
  std::unordered_map<const ChunkSchema*, std::pair<Ref<const ChunkSchema>, std::uint32_t>> schemas_;
  std::unordered_map<const Layout*, std::pair<Ref<const Layout>, std::uint32_t>> layouts_;
  // A cache of the latest schema.
  const ChunkSchema* last_schema_ = nullptr;
  std::uint32_t last_schema_number_ = 0;
  const Layout* last_layout_ = nullptr;
  std::uint32_t last_layout_number_ = 0;
  std::unordered_map<const Chunk*, KeptChunk> chunks_;
  std::map<std::string, std::uint32_t, std::less<>> sessions_;
  std::uint32_t next_chunk_ = 0;
  std::vector<std::byte> joined_;  // memory for join()
};

}  // namespace reverie::checkpoint
