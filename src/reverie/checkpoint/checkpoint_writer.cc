// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "reverie/checkpoint/folder.h"
#include "reverie/codec/crc32c.h"
#include "reverie/durable_files/cancellable_file.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/record/readable_rows.h"

namespace reverie::checkpoint {
namespace {

// Bytes that are collected before they are written.
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
// Slots of one section of items.
constexpr std::size_t kSectionSlots = 8 * ItemSlots::kSegmentSlots;
// A file with a smaller referenced share is rewritten with the next checkpoint.
constexpr double kLiveShareMin = 0.5;
// The most files of a checkpoint; beyond that, the oldest are rewritten.
constexpr std::size_t kFilesMax = 64;

// Never 0, and not reused while a chunk lives: 4 billion marks are in between.
std::uint32_t next_mark() {
  static std::atomic<std::uint32_t> last{0};
  while (true) {
    const std::uint32_t mark = last.fetch_add(1, std::memory_order_relaxed) + 1;
    if (mark != 0) return mark;
  }
}

class Writer {
 public:
  Writer(LocalService& service, const WriteRequest& request, const StoredChunks& stored)
      : service_(service),
        request_(request),
        stored_(stored),
        folder_(join_path(request.root, temporary_name(request.number))) {}

  Result<Written> write() {
    REVERIE_RETURN_IF_ERROR(request_.files.create_folder(folder_));
    // The files are created before the tables are frozen, so that a full disk delays nothing.
    REVERIE_ASSIGN_OR_RETURN(tables_file_, create(std::string(kTablesName)));
    tables_ = std::make_unique<SectionWriter>(*tables_file_);
    REVERIE_RETURN_IF_ERROR(tables_->begin(FileKind::kTables));
    {
      REVERIE_ASSIGN_OR_RETURN(const auto snapshots, freeze());
      for (const auto& snapshot : snapshots) REVERIE_RETURN_IF_ERROR(write_table(*snapshot));
      REVERIE_RETURN_IF_ERROR(flush_chunks());
    }
    REVERIE_RETURN_IF_ERROR(write_lists());
    REVERIE_RETURN_IF_ERROR(tables_file_->sync());
    if (chunks_file_) REVERIE_RETURN_IF_ERROR(chunks_file_->sync());
    REVERIE_RETURN_IF_ERROR(check_cancelled());
    Written written;
    REVERIE_RETURN_IF_ERROR(publish(written));
    return written;
  }

  // After write(): the stored chunks that the next checkpoint may reuse.
  StoredChunks known() {
    StoredChunks known;
    known.folder = join_path(request_.root, checkpoint_name(request_.number));
    std::map<std::uint64_t, std::uint64_t> live;
    for (const auto& [name, place] : now_stored_) live[place.file] += name.size_bytes;
    for (const auto& [file, about] : chunk_files_) {
      const bool is_oldest = chunk_files_.size() > kFilesMax && file == chunk_files_.begin()->first;
      const bool is_live =
          static_cast<double>(live[file]) >= kLiveShareMin * static_cast<double>(about.size_bytes);
      if (is_live && !is_oldest) known.files[file] = about;
    }
    for (const auto& [name, place] : now_stored_) {
      if (known.files.contains(place.file)) known.chunks.emplace(name, place);
    }
    for (const auto& [mark, name] : marks_) {
      const auto entry = known.chunks.find(*name);
      if (entry != known.chunks.end()) known.marked.emplace(mark, &*entry);
    }
    return known;
  }

 private:
  Result<std::unique_ptr<File>> create(const std::string& name) {
    REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                             request_.files.create(join_path(folder_, name)));
    return std::unique_ptr<File>(
        std::make_unique<CancellableFile>(std::move(file), request_.is_cancelled));
  }

  Status check_cancelled() const { return check_not_cancelled(request_.is_cancelled); }

  // Samples that were drawn ahead are in their tables then.
  Result<std::vector<std::unique_ptr<TableSnapshot>>> freeze() {
    journal_position_ = request_.journal_position;
    Result<std::vector<std::unique_ptr<TableSnapshot>>> frozen = cancelled("not frozen");
    service_.ahead_readers()->pause_for([&] { frozen = service_.freeze(&journal_position_); });
    return frozen;
  }

  Status write_table(TableSnapshot& snapshot) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes);
    checkpoint::write_table(snapshot.image(), out);
    REVERIE_RETURN_IF_ERROR(tables_->add(SectionType::kTable, bytes));
    has_records_ = snapshot.image().has_records;
    table_ = snapshot.image().options.name;

    // u64 first slot, u32 count, records
    std::vector<std::byte> records;
    std::uint64_t first = 0;
    std::uint64_t slot = 0;
    const auto flush = [&]() -> Status {
      if (slot == first) return {};
      bytes.clear();
      out.u64(first).u32(static_cast<std::uint32_t>(slot - first)).raw(records);
      records.clear();
      first = slot;
      return tables_->add(SectionType::kItems, bytes);
    };
    while (true) {
      REVERIE_RETURN_IF_ERROR(check_cancelled());
      REVERIE_ASSIGN_OR_RETURN(const std::vector<SlotRecord> segment, snapshot.next());
      if (segment.empty()) break;
      ByteWriter items(records);
      for (const SlotRecord& record : segment) {
        REVERIE_RETURN_IF_ERROR(write_item(record, items));
      }
      slot += segment.size();
      if (slot - first >= kSectionSlots || records.size() >= kBufferBytes) {
        REVERIE_RETURN_IF_ERROR(flush());
      }
    }
    REVERIE_RETURN_IF_ERROR(flush());

    bytes.clear();
    REVERIE_ASSIGN_OR_RETURN(const bool has_sampler, snapshot.write_sampler(out));
    if (has_sampler) {
      REVERIE_RETURN_IF_ERROR(tables_->add(SectionType::kSampler, bytes));
    }
    bytes.clear();
    REVERIE_ASSIGN_OR_RETURN(const bool has_remover, snapshot.write_remover(out));
    if (has_remover) {
      REVERIE_RETURN_IF_ERROR(tables_->add(SectionType::kRemover, bytes));
    }
    return {};
  }

  Status write_item(const SlotRecord& record, ByteWriter& out) {
    const TrajectoryView& trajectory = record.trajectory;
    const bool is_free = trajectory.layout == nullptr;
    out.u32(is_free ? kNoLayout : layout_index(trajectory.layout));
    const std::uint32_t mark = record.is_redelivered && !is_free ? kRedeliveredBit : 0;
    out.u32(static_cast<std::uint32_t>(record.times_sampled) | mark).u32(record.generation);
    if (is_free) return {};
    if (has_records_) {
      out.u64(record.key).f64(record.priority);
      out.i64(record.inserted_at_ns + service_.calendar_offset_ns()).i64(record.version);
    }
    for (const Piece& piece : trajectory.pieces()) {
      std::uint32_t index = 0;
      REVERIE_RETURN_IF_ERROR(chunk_index(*piece.chunk, piece.offset + piece.length, index));
      out.u32(index).u32(piece.offset).u32(piece.length);
    }
    return {};
  }

  std::uint32_t layout_index(const Layout* layout) {
    const auto [found, is_new] =
        layout_indices_.try_emplace(layout, static_cast<std::uint32_t>(layout_indices_.size()));
    if (is_new) checkpoint::write_layout(*layout, layouts_);
    return found->second;
  }

  std::uint32_t schema_index(const ChunkSchema* schema) {
    const auto [found, is_new] =
        schema_indices_.try_emplace(schema, static_cast<std::uint32_t>(schema_indices_.size()));
    if (is_new) checkpoint::write_schema(*schema, schemas_);
    return found->second;
  }

  // The chunk's index in the list; the chunk is written if it is not in it.
  Status chunk_index(const Chunk& chunk, std::uint32_t rows_wanted, std::uint32_t& index) {
    const auto [found, is_new] =
        chunk_indices_.try_emplace(&chunk, static_cast<std::uint32_t>(entries_.size()));
    index = found->second;
    if (!is_new) return {};
    const std::uint32_t rows = chunk.rows();
    if (rows < rows_wanted) {
      return failed_precondition(
          "table '{}' has an item of {} rows of a chunk that has {} so far: the replay buffer that "
          "writes it goes on; write the checkpoint within write_replay_state()",
          table_, rows_wanted, rows);
    }
    const Stored* stored = stored_as(chunk, rows);
    if (stored == nullptr) {
      REVERIE_ASSIGN_OR_RETURN(stored, store_chunk(chunk, rows));
    }
    const auto& [name, place] = *stored;
    ChunkEntry entry;
    entry.origin = name.origin;
    entry.rows = name.rows;
    entry.schema = schema_index(&chunk.schema());
    entry.file = file_index(place.file);
    entry.offset = place.offset;
    entry.size_bytes = name.size_bytes;
    entry.crc = name.crc;
    entries_.push_back(entry);
    return {};
  }

  using Stored = StoredChunks::Chunks::value_type;

  // How an earlier checkpoint has stored this object with as many rows; null if it has not.
  const Stored* stored_as(const Chunk& chunk, std::uint32_t rows) {
    const std::uint32_t mark = chunk.checkpoint_mark();
    if (mark == 0) return nullptr;
    const auto found = stored_.marked.find(mark);
    if (found == stored_.marked.end()) return nullptr;
    const auto& [name, place] = *found->second;
    if (name.rows != rows || name.origin.key != chunk.key() || !has_link(place.file)) {
      return nullptr;
    }
    const Stored& stored = *now_stored_.emplace(name, place).first;
    marks_.emplace_back(mark, &stored.first);
    return &stored;
  }

  // Reads and hashes the chunk, and writes it if no file has an equal one.
  Result<const Stored*> store_chunk(const Chunk& chunk, std::uint32_t rows) {
    if (memory_ != nullptr) {
      places_.clear();
      chunk.add_places(0, rows, places_);
      memory_->prefetch(places_);
    }
    REVERIE_ASSIGN_OR_RETURN(const ChunkBytes bytes, chunk_bytes(chunk, rows));
    const ChunkName name{{chunk.key(), chunk.episode(), chunk.first_step()},
                         bytes.rows,
                         bytes.crc(),
                         bytes.size_bytes()};
    const auto [stored, is_new_name] = now_stored_.try_emplace(name);
    if (is_new_name) {
      const auto known = stored_.chunks.find(name);
      if (known != stored_.chunks.end() && has_link(known->second.file)) {
        stored->second = known->second;
      } else {
        REVERIE_RETURN_IF_ERROR(write_chunk(bytes, stored->second));
      }
    }
    // After the last read of the rows. A checkpoint that fails is not published.
    REVERIE_RETURN_IF_ERROR(check_readable(chunk, 0, bytes.rows));
    if (memory_ != nullptr || name.size_bytes >= StoredChunks::kMarkedBytesMin) {
      const std::uint32_t mark = next_mark();
      chunk.set_checkpoint_mark(mark);
      marks_.emplace_back(mark, &stored->first);
    }
    return &*stored;
  }

  // Links a file of an earlier checkpoint into this one; false if that is impossible.
  bool has_link(std::uint64_t file) {
    const auto [found, is_new] = links_.try_emplace(file, false);
    if (is_new && stored_.files.contains(file)) {
      const std::string name = chunks_name(file);
      found->second =
          request_.files.link(join_path(stored_.folder, name), join_path(folder_, name)).ok();
      if (found->second) chunk_files_[file] = stored_.files.at(file);
    }
    return found->second;
  }

  // In the manifest, `tables` is file 0.
  std::uint32_t file_index(std::uint64_t file) {
    const auto [found, is_new] =
        file_indices_.try_emplace(file, static_cast<std::uint32_t>(file_indices_.size() + 1));
    return found->second;
  }

  Status write_chunk(const ChunkBytes& bytes, StoredChunk& place) {
    if (!chunks_file_) {
      REVERIE_ASSIGN_OR_RETURN(chunks_file_, create(chunks_name(request_.number)));
      const std::vector<std::byte> header = file_header(FileKind::kChunks);
      REVERIE_RETURN_IF_ERROR(append(header));
    }
    REVERIE_RETURN_IF_ERROR(check_cancelled());
    place = {request_.number, chunks_bytes_};
    REVERIE_RETURN_IF_ERROR(append(bytes.head));
    for (const auto part : bytes.parts) REVERIE_RETURN_IF_ERROR(append(part));
    chunk_files_[request_.number] = {chunks_bytes_, chunks_crc_};
    return {};
  }

  Status append(std::span<const std::byte> bytes) {
    chunks_bytes_ += bytes.size();
    chunks_crc_ = crc32c(bytes, chunks_crc_);
    const bool is_large = bytes.size() >= kBufferBytes / 4;
    if (is_large || buffer_.size() + bytes.size() > kBufferBytes) {
      REVERIE_RETURN_IF_ERROR(flush_chunks());
    }
    if (is_large) return chunks_file_->append(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }

  Status flush_chunks() {
    if (buffer_.empty()) return {};
    Status status = chunks_file_->append(buffer_);
    buffer_.clear();
    return status;
  }

  // Writes the schemas, layouts and chunks that the items refer to.
  Status write_lists() {
    const auto add = [this](SectionType type, std::size_t count, std::span<const std::byte> list) {
      std::vector<std::byte> bytes;
      ByteWriter(bytes).u32(static_cast<std::uint32_t>(count)).raw(list);
      return tables_->add(type, bytes);
    };
    REVERIE_RETURN_IF_ERROR(add(SectionType::kSchemas, schema_indices_.size(), schema_bytes_));
    REVERIE_RETURN_IF_ERROR(add(SectionType::kLayouts, layout_indices_.size(), layout_bytes_));
    std::vector<std::byte> entries;
    entries.reserve(entries_.size() * ChunkEntry::kBytes);
    ByteWriter out(entries);
    for (const ChunkEntry& entry : entries_) write_entry(entry, out);
    REVERIE_RETURN_IF_ERROR(add(SectionType::kChunks, entries_.size(), entries));
    if (journal_position_ == 0) return {};
    std::vector<std::byte> position;
    ByteWriter(position).u64(journal_position_);
    return tables_->add(SectionType::kJournal, position);
  }

  Status publish(Written& written) {
    Manifest manifest;
    manifest.number = request_.number;
    manifest.created_ns = request_.created_ns;
    manifest.payload.assign(request_.payload.begin(), request_.payload.end());
    manifest.files.resize(file_indices_.size() + 1);
    manifest.files[0] = {std::string(kTablesName), tables_->size_bytes(), tables_->crc()};
    for (const auto& [file, index] : file_indices_) {
      const StoredFile& about = chunk_files_.at(file);
      manifest.files[index] = {chunks_name(file), about.size_bytes, about.crc};
    }
    REVERIE_RETURN_IF_ERROR(
        write_manifest(request_.files, join_path(folder_, std::string(kManifestName)), manifest));
    written.folder = join_path(request_.root, checkpoint_name(request_.number));
    written.journal_position = journal_position_;
    written.new_bytes = tables_->size_bytes() + (chunks_file_ ? chunks_bytes_ : 0);
    for (const ManifestFile& file : manifest.files) written.all_bytes += file.size_bytes;
    if (StoreLog* const log = service_.log()) REVERIE_RETURN_IF_ERROR(log->before_publish());
    // Its own files are synced, and so are linked ones that this process has written or published.
    return durable_rename(request_.files, folder_, written.folder, IfThere::kRefuse,
                          stored_.is_synced ? Contents::kSynced : Contents::kToBeSynced);
  }

  LocalService& service_;
  const WriteRequest& request_;
  const StoredChunks& stored_;
  const std::string folder_;
  ChunkMemory* const memory_ = service_.chunk_memory();
  std::vector<ChunkMemory::Range> places_;  // of the chunk that is written

  std::unique_ptr<File> tables_file_;
  std::unique_ptr<SectionWriter> tables_;
  std::unique_ptr<File> chunks_file_;  // once there is a new chunk
  std::vector<std::byte> buffer_;      // of what is to go there
  std::uint64_t chunks_bytes_ = 0;
  std::uint32_t chunks_crc_ = 0;
  std::string_view table_;  // that is written
  bool has_records_ = true;
  std::uint64_t journal_position_ = 0;

  std::vector<std::byte> schema_bytes_;
  std::vector<std::byte> layout_bytes_;
  ByteWriter schemas_{schema_bytes_};
  ByteWriter layouts_{layout_bytes_};
  std::vector<ChunkEntry> entries_;
  std::unordered_map<const ChunkSchema*, std::uint32_t> schema_indices_;
  std::unordered_map<const Layout*, std::uint32_t> layout_indices_;
  std::unordered_map<const Chunk*, std::uint32_t> chunk_indices_;
  std::map<std::uint64_t, std::uint32_t> file_indices_;
  std::map<std::uint64_t, bool> links_;
  std::map<std::uint64_t, StoredFile> chunk_files_;
  StoredChunks::Chunks now_stored_;
  std::vector<std::pair<std::uint32_t, const ChunkName*>> marks_;  // of chunks in now_stored_
};

}  // namespace

void mark_stored(const Chunk& chunk, const StoredChunks::Chunks::value_type& entry,
                 StoredChunks& stored) {
  const std::uint32_t mark = next_mark();
  chunk.set_checkpoint_mark(mark);
  stored.marked.emplace(mark, &entry);
}

Status no_memory_to_write() {
  return resource_exhausted(
      "there is no memory to write a checkpoint; free some, or save a smaller store");
}

Result<Written> write_checkpoint(LocalService& service, const WriteRequest& request,
                                 StoredChunks& stored) {
  if (request.payload.size() > kPayloadBytesMax) {
    return invalid_argument(
        "the payload has {} bytes; the bound is {}; make what is saved with it smaller",
        request.payload.size(), kPayloadBytesMax);
  }
  Result<Written> written = no_memory_to_write();
  StoredChunks known;
  try {
    Writer writer(service, request, stored);
    written = writer.write();
    if (written.ok()) known = writer.known();
  } catch (const std::bad_alloc&) {
    // If it is written, the next one shares nothing with it.
  }
  if (written.ok()) {
    stored = std::move(known);
  } else {
    // Files that cannot be removed now are removed when the folder is next opened.
    (void)remove_temporaries(request.files, request.root);
  }
  return written;
}

}  // namespace reverie::checkpoint
