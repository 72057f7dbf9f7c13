// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/checkpoint/journal_replay.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/log.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/journal_records.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/codec/column_codec.h"
#include "reverie/codec/stored_time.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/durable_files/journal_ring.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/record/table_difference.h"

namespace reverie::checkpoint {
namespace {

// How much larger rows are in memory than in a file: rows of varying size also have offsets.
constexpr std::uint64_t kRowFactorMax = 16;

// The records of one file.
class FileReplay {
 public:
  FileReplay(LocalService& store, Replayed& replayed)
      : store_(store),
        replayed_(replayed),
        allocator_(store.chunk_memory() != nullptr ? static_cast<Allocator&>(*store.chunk_memory())
                                                   : Allocator::heap()) {}

  // Measures the contents of each chunk before groups are replayed. So a chunk takes no more memory
  // than its rows take in the file, whatever capacity the file declares.
  void measure(const Group& group) {
    ByteReader in(group.records);
    for (std::uint32_t i = 0; i < group.count; ++i) {
      const auto type = static_cast<RecordType>(in.u8());
      ByteReader record(in.raw(in.u32()));
      if (!in.ok()) return;
      if (type == RecordType::kChunk) more_.emplace_back();
      if (type != RecordType::kRows) continue;
      const std::uint32_t index = record.u32();
      record.u32();
      const std::uint32_t count = record.u32();
      if (!record.ok() || index >= more_.size()) continue;
      more_[index].rows += count;
      more_[index].size_bytes += record.left();
    }
  }

  Status replay(const Group& group) {
    ByteReader in(group.records);
    for (std::uint32_t i = 0; i < group.count; ++i) {
      const auto type = static_cast<RecordType>(in.u8());
      const auto payload = in.raw(in.u32());
      if (!in.ok()) return malformed(type);
      ByteReader record(payload);
      REVERIE_RETURN_IF_ERROR(replay(type, record));
      if (!record.is_done()) return malformed(type);
      ++replayed_.records;
    }
    return in.is_done() ? Status() : data_loss("bytes follow its last record");
  }

 private:
  static Status malformed(RecordType type) {
    return data_loss("a record of type {} is malformed", static_cast<int>(type));
  }

  Status replay(RecordType type, ByteReader& in) {
    switch (type) {
      case RecordType::kTables:
        return read_tables(in);
      case RecordType::kSchema: {
        REVERIE_ASSIGN_OR_RETURN(Ref<const ChunkSchema> schema, read_schema(in));
        schemas_.push_back(std::move(schema));
        return {};
      }
      case RecordType::kLayout: {
        REVERIE_ASSIGN_OR_RETURN(Ref<const Layout> layout, read_layout(in));
        layouts_.push_back(std::move(layout));
        return {};
      }
      case RecordType::kChunk:
        return read_chunk_record(in);
      case RecordType::kRows:
        return read_rows(in);
      case RecordType::kMark:
        return {};
      case RecordType::kSession: {
        const auto bytes = in.raw(in.left());
        const auto* const text = reinterpret_cast<const char*>(bytes.data());
        sessions_.emplace_back(text, bytes.size());
        return {};
      }
      case RecordType::kNumber:
      case RecordType::kSettled:
      case RecordType::kNumbers:
        return replay_session(type, in);
      default:
        break;
    }
    const std::uint32_t index = in.u32();
    if (!in.ok() || index >= tables_.size()) return malformed(type);
    Table& table = *tables_[index];
    OpenDraws& open = replayed_.open_draws[table.options().name];
    if (type == RecordType::kReceipt) {
      const std::size_t count = in.count32(12);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t ticket = in.u64();
        open.remove({ticket, static_cast<std::int32_t>(in.u32())});
      }
      return {};
    }
    if (type == RecordType::kReset) {
      open.clear();
      return table.replay([](TableCore& core, Aftermath& after) {
        core.reset(after);
        return Status();
      });
    }
    if (type == RecordType::kDraws) {
      const std::int64_t count = in.i64();
      return table.replay([&](TableCore& core, Aftermath&) { return core.replay_draws(count); });
    }
    const TimePoint now{read_time(in) - store_.calendar_offset_ns()};
    if (!in.ok()) return malformed(type);
    return table.replay([&](TableCore& core, Aftermath& after) -> Status {
      switch (type) {
        case RecordType::kInsert:
          return insert(in, core, now, after);
        case RecordType::kUpdate:
          return update(in, core, now);
        case RecordType::kErase: {
          std::vector<ItemKey> keys(in.count32(sizeof(ItemKey)));
          for (ItemKey& key : keys) key = in.u64();
          core.erase(keys, now, after);
          return Status();
        }
        case RecordType::kCorrupt: {
          const ItemKey key = in.u64();
          const std::uint64_t draws = in.u64();
          core.erase_corrupt(key, draws, now, after);
          return Status();
        }
        case RecordType::kSample: {
          const std::vector<Slot> slots = read_slots(in);
          return core.replay_samples(slots, now, after);
        }
        case RecordType::kAwaitedSample: {
          const std::vector<Slot> slots = read_slots(in);
          return core.replay_samples(slots, now, after,
                                     [&](const SampleBatch& draw) { open.add(draw, 0); });
        }
        case RecordType::kTakeBack: {
          REVERIE_ASSIGN_OR_RETURN(const Draws draws, read_draws(in, core));
          for (std::size_t i = 0; i < draws.batch.size(); ++i) {
            open.remove({draws.batch.tickets()[i], draws.batch.times_sampled()[i]});
          }
          core.take_back(draws.batch, 0, draws.batch.size(), now, after);
          return Status();
        }
        case RecordType::kOpenDraws: {
          REVERIE_ASSIGN_OR_RETURN(const Draws draws, read_draws(in, core));
          open.add(draws.batch, 0);
          return Status();
        }
        default:
          return malformed(type);
      }
    });
  }

  Status replay_session(RecordType type, ByteReader& in) {
    const std::uint32_t index = in.u32();
    if (!in.ok() || index >= sessions_.size()) return malformed(type);
    const std::string& session = sessions_[index];
    if (type == RecordType::kNumber) {
      replayed_.sessions[session].add(in.u64());
    } else if (type == RecordType::kSettled) {
      const std::uint64_t below = in.u64();
      const auto found = replayed_.sessions.find(session);
      if (found == replayed_.sessions.end()) return {};
      found->second.drop_below(below);
      if (below == UINT64_MAX) replayed_.sessions.erase(found);
    } else {
      NumberSet numbers;
      std::uint64_t end = 0;
      const std::size_t count = in.count32(16);
      for (std::size_t i = 0; i < count; ++i) {
        const NumberSet::Run run{in.u64(), in.u64()};
        if (run.begin >= run.end || (i > 0 && run.begin <= end)) return malformed(type);
        end = run.end;
        numbers.append(run);
      }
      // This contains everything that earlier files say of it.
      replayed_.sessions[session] = std::move(numbers);
    }
    return {};
  }

  Status read_tables(ByteReader& in) {
    if (!tables_.empty()) return malformed(RecordType::kTables);
    const std::size_t count = in.count32(16);
    for (std::size_t i = 0; i < count; ++i) {
      const TableImage image = read_table(in);
      if (!in.ok()) return malformed(RecordType::kTables);
      auto table = store_.table(image.options.name);
      if (!table.ok()) {
        return failed_precondition(
            "the journal has a table '{}' that the store does not have; give the store one of "
            "that name",
            image.options.name);
      }
      const std::string text = table_difference((*table)->options(), image.options);
      if (!text.empty()) {
        return failed_precondition(
            "table '{}' is not the one that the journal is of: {}; open the store with the tables "
            "that it had, write a checkpoint, and then change them",
            image.options.name, text);
      }
      tables_.push_back(*table);
    }
    return {};
  }

  Status read_chunk_record(ByteReader& in) {
    ChunkEntry entry;
    entry.schema = in.u32();
    entry.origin.key = in.u64();
    entry.origin.episode = in.u64();
    entry.origin.first_step = in.u32();
    entry.rows = in.u32();
    const std::uint32_t capacity = in.u32();
    in.u64();  // the room for cells of varying size that its writer had
    const auto bytes = in.raw(in.left());
    if (!in.ok() || entry.schema >= schemas_.size()) return malformed(RecordType::kChunk);
    const Ref<const ChunkSchema>& schema = schemas_[entry.schema];
    REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk, read_chunk(entry, schema, bytes, allocator_));
    const More more = chunks_.size() < more_.size() ? more_[chunks_.size()] : More();
    const bool is_open = capacity > 0 && more.rows > 0;
    if (is_open) {
      if (more.rows > capacity || entry.rows > capacity - more.rows) {
        return malformed(RecordType::kChunk);
      }
      const auto rows = entry.rows + static_cast<std::uint32_t>(more.rows);
      const std::uint64_t var_bytes = var_bytes_of(*schema, rows, bytes.size() + more.size_bytes);
      std::uint64_t row_bytes = 0;
      const bool is_huge = __builtin_mul_overflow(schema->step_bytes(), more.rows, &row_bytes) ||
                           row_bytes / kRowFactorMax > more.size_bytes;
      if (is_huge) return malformed(RecordType::kChunk);
      REVERIE_ASSIGN_OR_RETURN(chunk, with_room(*chunk, entry, schema, rows, var_bytes));
    }
    chunks_.push_back({std::move(chunk), is_open});
    return {};
  }

  // Room for the cells of varying size among `all_bytes` of records with these rows: what the other
  // columns leave.
  static std::uint64_t var_bytes_of(const ChunkSchema& schema, std::uint32_t rows,
                                    std::uint64_t all_bytes) {
    if (!schema.has_variable()) return 0;
    for (std::size_t c = 0; c < schema.column_count(); ++c) {
      if (schema.is_variable(c)) continue;
      std::uint64_t fixed_bytes = 0;
      const bool is_right = !__builtin_mul_overflow(schema.row_bytes(c), rows, &fixed_bytes) &&
                            fixed_bytes <= all_bytes;
      if (!is_right) return 0;  // then the rows are refused
      all_bytes -= fixed_bytes;
    }
    return all_bytes;
  }

  // The same rows in a chunk with room for more.
  Result<Ref<Chunk>> with_room(const Chunk& rows, const ChunkEntry& entry,
                               const Ref<const ChunkSchema>& schema, std::uint32_t capacity,
                               std::uint64_t var_bytes) {
    if (!rows.is_raw()) return malformed(RecordType::kChunk);
    REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk,
                             Chunk::open(schema, entry.origin, capacity, var_bytes, allocator_));
    for (std::size_t c = 0; c < schema->column_count(); ++c) {
      for (std::uint32_t r = 0; r < entry.rows; ++r) {
        const auto bytes = rows.row_bytes(c, r);
        if (schema->is_variable(c) && !chunk->has_var_room(bytes.size())) {
          return malformed(RecordType::kChunk);
        }
        chunk->set_row(c, r, bytes);
      }
    }
    chunk->publish(entry.rows);
    return chunk;
  }

  Status read_rows(ByteReader& in) {
    const std::uint32_t index = in.u32();
    const std::uint32_t first = in.u32();
    const std::uint32_t count = in.u32();
    const bool is_right = in.ok() && index < chunks_.size() && chunks_[index].is_open &&
                          first == chunks_[index].chunk->rows() && count > 0 &&
                          count <= chunks_[index].chunk->capacity() - first;
    if (!is_right) return malformed(RecordType::kRows);
    Chunk& chunk = *chunks_[index].chunk;
    const ChunkSchema& schema = chunk.schema();
    for (std::size_t c = 0; c < schema.column_count(); ++c) {
      const auto bytes = in.raw(in.u64());
      if (!in.ok()) return malformed(RecordType::kRows);
      REVERIE_ASSIGN_OR_RETURN(const ColumnRows rows,
                               decode_column(CodecId::kRaw, schema.column(c), count, bytes));
      for (std::uint32_t r = 0; r < count; ++r) {
        if (schema.is_variable(c) && !chunk.has_var_room(rows[r].size())) {
          return malformed(RecordType::kRows);
        }
        chunk.set_row(c, first + r, rows[r]);
      }
    }
    chunk.publish(first + count);
    return {};
  }

  static std::vector<Slot> read_slots(ByteReader& in) {
    std::vector<Slot> slots(in.count32(sizeof(Slot)));
    for (Slot& slot : slots) slot = in.u32();
    return slots;
  }

  Result<Trajectory> read_trajectory(ByteReader& in) {
    const std::uint32_t layout = in.u32();
    if (!in.ok() || layout >= layouts_.size()) return data_loss("an item has no layout");
    std::vector<Piece> pieces;
    for (std::uint32_t p = 0; p < layouts_[layout]->piece_count(); ++p) {
      const std::uint32_t chunk = in.u32();
      const std::uint32_t offset = in.u32();
      const std::uint32_t length = in.u32();
      if (!in.ok() || chunk >= chunks_.size()) return data_loss("an item has no chunk");
      pieces.push_back({chunks_[chunk].chunk.get(), offset, length});
    }
    Trajectory trajectory(layouts_[layout], pieces);
    REVERIE_RETURN_IF_ERROR(check_trajectory(trajectory.view()));
    return trajectory;
  }

  Status insert(ByteReader& in, TableCore& core, TimePoint now, Aftermath& after) {
    Item item;
    item.key = in.u64();
    const bool has_priority = in.u8() != 0;
    const double priority = in.f64();
    if (has_priority) item.priority = priority;
    item.version = in.i64();
    const Slot slot = in.u32();
    const std::vector<Slot> evicted = read_slots(in);
    REVERIE_ASSIGN_OR_RETURN(item.trajectory, read_trajectory(in));
    REVERIE_RETURN_IF_ERROR(core.rules().check_item(item));
    ++replayed_.inserts;
    return core.replay_insert(std::move(item), slot, evicted, now, after);
  }

  static Status update(ByteReader& in, TableCore& core, TimePoint now) {
    const std::size_t count = in.count32(sizeof(Slot) + sizeof(double));
    std::vector<Slot> slots(count);
    std::vector<double> priorities(count);
    for (std::size_t i = 0; i < count; ++i) {
      slots[i] = in.u32();
      priorities[i] = in.f64();
    }
    return core.replay_updates(slots, priorities, now);
  }

  struct Draws {
    SampleBatch batch;
    std::vector<Trajectory> kept;  // what it views
  };

  Result<Draws> read_draws(ByteReader& in, TableCore& core) {
    const std::size_t count = in.count32(48);
    Draws draws;
    draws.batch.reserve(count, /*is_brief=*/false);
    for (std::size_t i = 0; i < count; ++i) {
      SampledItem item;
      item.key = in.u64();
      item.ticket = Ticket::unpack(in.u64());
      item.priority = in.f64();
      item.inserted_at_ns = read_time(in) - store_.calendar_offset_ns();
      item.version = in.i64();
      const std::uint32_t draws_of_item = in.u32();
      item.times_sampled = static_cast<std::int32_t>(draws_of_item & ~kRedeliveredBit);
      item.is_redelivered = (draws_of_item & kRedeliveredBit) != 0;
      REVERIE_ASSIGN_OR_RETURN(Trajectory trajectory, read_trajectory(in));
      REVERIE_RETURN_IF_ERROR(core.rules().check_priority(item.priority));
      item.trajectory = trajectory.view();
      draws.kept.push_back(std::move(trajectory));
      draws.batch.add(item);
    }
    return draws;
  }

  // The rows that records of type kRows add to a chunk.
  struct More {
    std::uint64_t rows = 0;
    std::uint64_t size_bytes = 0;
  };
  struct ReplayedChunk {
    Ref<Chunk> chunk;
    bool is_open = false;
  };

  LocalService& store_;
  Replayed& replayed_;
  Allocator& allocator_;  // of chunks
  std::vector<Table*> tables_;
  std::vector<Ref<const ChunkSchema>> schemas_;
  std::vector<Ref<const Layout>> layouts_;
  std::vector<ReplayedChunk> chunks_;
  std::vector<std::string> sessions_;
  std::vector<More> more_;
};

// Whether the file ends with the record of a store that was closed: then all before it was synced.
bool is_closed(const JournalFile& file) {
  if (file.groups.empty()) return false;
  const Group& last = file.groups.back();
  return last.count == 1 && last.synced == last.first - 1 && !last.records.empty() &&
         static_cast<RecordType>(last.records.front()) == RecordType::kMark;
}

// Has all of the last file, whose bytes these are, on the disk: later records will declare that it
// is. A killed store may not have synced it; or its sync failed, and one more would succeed without
// the bytes that the system has dropped since.
Status make_durable(FileSystem& files, const std::string& root, const std::string& path,
                    const JournalFile& file, std::span<const std::byte> bytes) {
  if (is_closed(file) && files.sync_file(path).ok()) return files.sync_folder(root);
  return keep_beginning(files, root, path, bytes);
}

}  // namespace

Result<Replayed> replay_journal(FileSystem& files, const std::string& root, std::uint64_t position,
                                LocalService& store, Interruption interruption) {
  Replayed replayed;
  replayed.last_record = position;
  REVERIE_RETURN_IF_ERROR(remove_torn_keeping(files, root));
  REVERIE_ASSIGN_OR_RETURN(const bool is_last_new, finish_journal(files, root, position));
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers, journal_files(files, root));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::string path = join_path(root, journal_name(numbers[i]));
    const bool is_last = i + 1 == numbers.size();
    replayed.next_file = numbers[i] + 1;
    REVERIE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             read_file(files, path, kJournalFileBytesMax));
    Result<JournalFile> read = read_journal_file(bytes, is_last, path, replayed.last_record + 1);
    if (read.status().code() == StatusCode::kDataLoss) {
      REVERIE_ASSIGN_OR_RETURN(
          const bool is_before,
          lies_before(files, root, std::span(numbers).subspan(i), bytes, position));
      if (is_before) {
        log_warning("{}; it is ignored: the checkpoint holds all that is in it",
                    read.status().message());
        continue;
      }
    }
    REVERIE_ASSIGN_OR_RETURN(const JournalFile file, std::move(read));
    FileReplay replay(store, replayed);
    for (const Group& group : file.groups) {
      if (group.first > position) replay.measure(group);
    }
    for (const Group& group : file.groups) {
      if (group.first <= position) continue;  // a checkpoint begins a file
      if (group.first != replayed.last_record + 1) {
        return data_loss(
            "'{}' continues at byte {} with record {}: record {} or a later one is missing; it is "
            "the journal of another checkpoint, or one of its files is missing",
            path, group.offset, group.first, replayed.last_record + 1);
      }
      REVERIE_RETURN_IF_ERROR(interruption.check(group.records.size()));
      REVERIE_RETURN_IF_ERROR(
          replay.replay(group).with_context(format("'{}', group at byte {}", path, group.offset)));
      replayed.last_record += group.count;
    }
    // Also a file whose writer ended before its header: followed by another file it would be
    // damage.
    if (file.good_bytes < bytes.size() || file.good_bytes < kFileHeaderBytes) {
      replayed.dropped_bytes = bytes.size() - file.good_bytes;
      REVERIE_RETURN_IF_ERROR(
          keep_beginning(files, root, path, std::span(bytes).first(file.good_bytes)));
    } else if (is_last && !is_last_new) {
      REVERIE_RETURN_IF_ERROR(make_durable(files, root, path, file, bytes));
    }
    replayed.size_bytes += file.good_bytes;
  }
  REVERIE_RETURN_IF_ERROR(remove_ring(files, root));
  return replayed;
}

}  // namespace reverie::checkpoint
