// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "reverie/base/random.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/codec/crc32c.h"
#include "reverie/codec/stored_time.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/record/table_difference.h"

namespace reverie::checkpoint {
namespace {

// Bytes of a file of chunks that are read at once.
constexpr std::uint64_t kReadBytes = std::uint64_t{8} << 20;

// Reads a file sequentially, and returns views of what it has read.
class Window {
 public:
  Window(std::unique_ptr<ReadableFile> file, std::uint64_t size)
      : file_(std::move(file)), size_bytes_(size) {}
  // Views until the next call. Requires that it lies in the file.
  Result<std::span<const std::byte>> at(std::uint64_t offset, std::uint64_t size) {
    if (offset < begin_ || offset + size > begin_ + bytes_.size()) {
      bytes_.resize(std::min<std::uint64_t>(std::max(size, kReadBytes), size_bytes_ - offset));
      begin_ = offset;
      REVERIE_RETURN_IF_ERROR(file_->read_at(offset, bytes_));
    }
    return std::span<const std::byte>(bytes_).subspan(offset - begin_, size);
  }

 private:
  const std::unique_ptr<ReadableFile> file_;
  const std::uint64_t size_bytes_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  Reader(FileSystem& files, std::string folder, Allocator& allocator = Allocator::heap())
      : files_(files), folder_(std::move(folder)), allocator_(allocator) {}

  Result<Manifest> manifest() {
    const std::string path = join_path(folder_, kManifestName);
    auto manifest = read_manifest(files_, path);
    if (manifest.status().code() == StatusCode::kNotFound) {
      return not_found("'{}' holds no {}; give a folder of checkpoints, or one of them", folder_,
                       kManifestName);
    }
    return manifest;
  }

  // The sections of `tables`, which view bytes_.
  Result<std::vector<Section>> sections(const Manifest& manifest) {
    path_ = join_path(folder_, kTablesName);
    const ManifestFile& file = manifest.files[0];
    REVERIE_ASSIGN_OR_RETURN(bytes_, read_file(files_, path_, file.size_bytes));
    if (bytes_.size() != file.size_bytes) {
      return data_loss("'{}' has {} bytes; its manifest says {}", path_, bytes_.size(),
                       file.size_bytes);
    }
    // The sections first, since their errors say where the damage is.
    REVERIE_ASSIGN_OR_RETURN(std::vector<Section> found,
                             read_sections(bytes_, FileKind::kTables, path_));
    if (crc32c(bytes_) != file.crc) {
      return data_loss("'{}' is not the file that its manifest was written for", path_);
    }
    return found;
  }

  Status read_lists(const std::vector<Section>& sections, const Manifest& manifest) {
    for (const Section& section : sections) {
      ByteReader in(section.payload);
      if (section.type == SectionType::kSchemas) {
        const std::size_t count = in.count32(4);
        for (std::size_t i = 0; i < count; ++i) {
          REVERIE_ASSIGN_OR_RETURN(Ref<const ChunkSchema> schema, read_schema(in));
          schemas_.push_back(std::move(schema));
        }
      } else if (section.type == SectionType::kLayouts) {
        const std::size_t count = in.count32(16);
        for (std::size_t i = 0; i < count; ++i) {
          REVERIE_ASSIGN_OR_RETURN(Ref<const Layout> layout, read_layout(in));
          layouts_.push_back(std::move(layout));
        }
      } else if (section.type == SectionType::kChunks) {
        const std::size_t count = in.count32(ChunkEntry::kBytes);
        for (std::size_t i = 0; i < count; ++i) entries_.push_back(read_entry(in));
      } else {
        continue;
      }
      if (!in.is_done()) return malformed(section);
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const ChunkEntry& entry = entries_[i];
      if (entry.schema >= schemas_.size() || entry.file == 0 ||
          entry.file >= manifest.files.size() || entry.offset < kFileHeaderBytes ||
          entry.offset > manifest.files[entry.file].size_bytes ||
          entry.size_bytes > manifest.files[entry.file].size_bytes - entry.offset) {
        return data_loss("chunk {} of '{}' is in no file of the checkpoint", i, path_);
      }
    }
    return {};
  }

  // Items are then checked against the list of chunks, and get hashes of their rows instead.
  void keep_no_chunks() {
    keeps_chunks_ = false;
    for (const Ref<const Layout>& layout : layouts_) {
      std::vector<std::byte> bytes;
      ByteWriter out(bytes);
      write_layout(*layout, out);
      layout_hashes_.push_back(crc32c(bytes));
    }
  }
  // Those of all slots of all tables, once read_tables() has read them.
  std::vector<std::uint64_t> take_contents() { return std::move(contents_); }

  Status read_chunks(const Manifest& manifest, StoredChunks& stored,
                     Interruption interruption = Interruption()) {
    // Sequentially through each file.
    std::vector<std::uint32_t> order(entries_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
      const ChunkEntry& x = entries_[a];
      const ChunkEntry& y = entries_[b];
      return std::pair(x.file, x.offset) < std::pair(y.file, y.offset);
    });
    chunks_.resize(entries_.size());
    std::unique_ptr<Window> window;
    std::uint32_t file = 0;
    std::string path;
    for (const std::uint32_t index : order) {
      const ChunkEntry& entry = entries_[index];
      const ManifestFile& listed = manifest.files[entry.file];
      if (entry.file != file) {
        file = entry.file;
        path = join_path(folder_, listed.name);
        REVERIE_ASSIGN_OR_RETURN(window, open_chunks(path, listed.size_bytes));
        stored.files[*chunks_number(listed.name)] = {listed.size_bytes, listed.crc};
      }
      REVERIE_RETURN_IF_ERROR(interruption.check(entry.size_bytes));
      REVERIE_ASSIGN_OR_RETURN(const auto bytes, window->at(entry.offset, entry.size_bytes));
      if (crc32c(bytes) != entry.crc) {
        return data_loss(
            "chunk {} in '{}', {} bytes from byte {} on, does not have its checksum; restore the "
            "file from a copy, or remove this checkpoint to load the one before",
            entry.origin.key, path, entry.size_bytes, entry.offset);
      }
      auto chunk = read_chunk(entry, schemas_[entry.schema], bytes, allocator_);
      if (!chunk.ok()) {
        return chunk.status().with_context(format("chunk {} in '{}', {} bytes from byte {} on",
                                                  entry.origin.key, path, entry.size_bytes,
                                                  entry.offset));
      }
      const auto place = stored.chunks.insert_or_assign(
          ChunkName{entry.origin, entry.rows, entry.crc, entry.size_bytes},
          StoredChunk{*chunks_number(listed.name), entry.offset});
      if (!keeps_chunks_) continue;
      if (entry.size_bytes >= StoredChunks::kMarkedBytesMin) {
        mark_stored(**chunk, *place.first, stored);
      }
      chunks_[index] = std::move(*chunk);
    }
    stored.folder = folder_;
    stored.is_synced = false;
    return {};
  }

  // Checks the bytes that no chunk refers to, too.
  Status check_chunk_files(const Manifest& manifest) {
    for (const ManifestFile& listed : manifest.files) {
      if (listed.name == kTablesName || listed.crc == 0) continue;
      const std::string path = join_path(folder_, listed.name);
      REVERIE_ASSIGN_OR_RETURN(const auto window, open_chunks(path, listed.size_bytes));
      std::uint32_t crc = 0;
      for (std::uint64_t at = 0; at < listed.size_bytes; at += kReadBytes) {
        const std::uint64_t size = std::min(kReadBytes, listed.size_bytes - at);
        REVERIE_ASSIGN_OR_RETURN(const auto bytes, window->at(at, size));
        crc = crc32c(bytes, crc);
      }
      if (crc == listed.crc) continue;
      return data_loss(
          "'{}', {} bytes from byte 0 on, does not have its checksum, though each chunk that items "
          "refer to does; write a new checkpoint, or restore the file from a copy",
          path, listed.size_bytes);
    }
    return {};
  }

  Status read_tables(const std::vector<Section>& sections, std::vector<RestoredTable>& tables,
                     std::uint64_t& journal_position) {
    for (const Section& section : sections) {
      ByteReader in(section.payload);
      switch (section.type) {
        case SectionType::kTable:
          REVERIE_RETURN_IF_ERROR(finish(tables));
          tables.emplace_back().image = read_table(in);
          if (!in.is_done()) return malformed(section);
          break;
        case SectionType::kItems:
          if (tables.empty() || !read_items(in, tables.back())) return malformed(section);
          break;
        case SectionType::kSampler:
        case SectionType::kRemover:
          if (tables.empty()) return malformed(section);
          (section.type == SectionType::kSampler ? tables.back().sampler : tables.back().remover)
              .emplace(section.payload.begin(), section.payload.end());
          break;
        case SectionType::kSchemas:
        case SectionType::kLayouts:
        case SectionType::kChunks:
          break;
        case SectionType::kJournal:
          journal_position = in.u64();
          if (!in.is_done()) return malformed(section);
          break;
        default:
          return malformed(section);
      }
    }
    return finish(tables);
  }

  // Reads only the table images.
  Status read_images(const std::vector<Section>& sections, Summary& summary) {
    for (const Section& section : sections) {
      ByteReader in(section.payload);
      if (section.type == SectionType::kTable) {
        summary.tables.push_back(read_table(in));
        if (!in.is_done()) return malformed(section);
      } else if (section.type == SectionType::kChunks) {
        summary.chunk_count = in.u32();
      } else if (section.type == SectionType::kJournal) {
        summary.journal_position = in.u64();
      }
    }
    return {};
  }

 private:
  Status malformed(const Section& section) const {
    return data_loss("the section of type {} at byte {} of '{}' is malformed",
                     static_cast<std::uint32_t>(section.type), section.offset, path_);
  }

  Status finish(const std::vector<RestoredTable>& tables) const {
    if (tables.empty() || tables.back().records.size() == tables.back().image.slots.used) return {};
    return data_loss("table '{}' in '{}' has {} slots; {} are there",
                     tables.back().image.options.name, path_, tables.back().image.slots.used,
                     tables.back().records.size());
  }

  Result<std::unique_ptr<Window>> open_chunks(const std::string& path, std::uint64_t size) {
    REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files_.open(path));
    if (file->size_bytes() != size) {
      return data_loss("'{}' has {} bytes; its manifest says {}", path, file->size_bytes(), size);
    }
    auto window = std::make_unique<Window>(std::move(file), size);
    REVERIE_ASSIGN_OR_RETURN(const auto header, window->at(0, kFileHeaderBytes));
    REVERIE_RETURN_IF_ERROR(check_file_header(header, FileKind::kChunks, path));
    return window;
  }

  bool read_items(ByteReader& in, RestoredTable& table) {
    const std::uint64_t first = in.u64();
    const std::size_t count = in.count32(12);
    if (!in.ok() || first != table.records.size()) return false;
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count; ++i) {
      SlotRecord& record = table.records.emplace_back();
      const std::uint32_t layout = in.u32();
      const std::uint32_t draws = in.u32();
      record.times_sampled = static_cast<std::int32_t>(draws);
      record.generation = in.u32();
      if (layout == kNoLayout) {
        table.trajectories.emplace_back();
        if (!keeps_chunks_) contents_.push_back(0);
        continue;
      }
      if (layout >= layouts_.size()) return false;
      record.times_sampled = static_cast<std::int32_t>(draws & ~kRedeliveredBit);
      record.is_redelivered = (draws & kRedeliveredBit) != 0;
      if (table.image.has_records) {
        record.key = in.u64();
        record.priority = in.f64();
        record.inserted_at_ns = read_time(in);
        record.version = in.i64();
      }
      pieces.clear();
      std::uint64_t content = keeps_chunks_ ? 0 : mix64(layout_hashes_[layout]);
      for (std::uint32_t p = 0; p < layouts_[layout]->piece_count(); ++p) {
        const std::uint32_t chunk = in.u32();
        const std::uint32_t offset = in.u32();
        const std::uint32_t length = in.u32();
        if (!in.ok() || chunk >= entries_.size()) return false;
        if (!keeps_chunks_) {
          const ChunkEntry& entry = entries_[chunk];
          if (offset > entry.rows || length > entry.rows - offset) return false;
          for (const std::uint64_t part : {std::uint64_t{entry.crc}, entry.size_bytes,
                                           std::uint64_t{offset}, std::uint64_t{length}}) {
            content = mix64(content ^ part);
          }
          continue;
        }
        pieces.push_back({chunks_[chunk].get(), offset, length});
      }
      if (!keeps_chunks_) {
        table.trajectories.emplace_back();
        contents_.push_back(content);
        continue;
      }
      table.trajectories.emplace_back(layouts_[layout], pieces);
    }
    return in.is_done();
  }

  FileSystem& files_;
  const std::string folder_;
  Allocator& allocator_;  // of chunks
  std::string path_;      // of `tables`
  std::vector<std::byte> bytes_;
  std::vector<Ref<const ChunkSchema>> schemas_;
  std::vector<Ref<const Layout>> layouts_;
  std::vector<ChunkEntry> entries_;
  std::vector<Ref<Chunk>> chunks_;
  bool keeps_chunks_ = true;
  std::vector<std::uint64_t> layout_hashes_;
  std::vector<std::uint64_t> contents_;
};

const TableImage* find(const std::vector<TableImage>& images, const std::string& name) {
  for (const TableImage& image : images) {
    if (image.options.name == name) return &image;
  }
  return nullptr;
}

}  // namespace

Result<LoadedCheckpoint> read_checkpoint(FileSystem& files, const std::string& folder,
                                         Allocator& allocator, Interruption interruption) {
  LoadedCheckpoint loaded;
  loaded.folder = folder;
  Reader reader(files, folder, allocator);
  REVERIE_ASSIGN_OR_RETURN(loaded.manifest, reader.manifest());
  REVERIE_ASSIGN_OR_RETURN(const std::vector<Section> sections, reader.sections(loaded.manifest));
  REVERIE_RETURN_IF_ERROR(reader.read_lists(sections, loaded.manifest));
  REVERIE_RETURN_IF_ERROR(
      reader.read_chunks(loaded.manifest, loaded.stored, std::move(interruption)));
  REVERIE_RETURN_IF_ERROR(reader.read_tables(sections, loaded.tables, loaded.journal_position));
  return loaded;
}

Result<Summary> read_summary(FileSystem& files, const std::string& folder) {
  Summary summary;
  Reader reader(files, folder);
  REVERIE_ASSIGN_OR_RETURN(summary.manifest, reader.manifest());
  REVERIE_ASSIGN_OR_RETURN(const std::vector<Section> sections, reader.sections(summary.manifest));
  REVERIE_RETURN_IF_ERROR(reader.read_images(sections, summary));
  return summary;
}

Result<Summary> verify_checkpoint(FileSystem& files, const std::string& folder) {
  Summary summary;
  Reader reader(files, folder);
  REVERIE_ASSIGN_OR_RETURN(summary.manifest, reader.manifest());
  REVERIE_ASSIGN_OR_RETURN(const std::vector<Section> sections, reader.sections(summary.manifest));
  REVERIE_RETURN_IF_ERROR(reader.read_lists(sections, summary.manifest));
  StoredChunks stored;
  reader.keep_no_chunks();
  REVERIE_RETURN_IF_ERROR(reader.read_chunks(summary.manifest, stored));
  REVERIE_RETURN_IF_ERROR(reader.check_chunk_files(summary.manifest));
  std::vector<RestoredTable> tables;
  REVERIE_RETURN_IF_ERROR(reader.read_tables(sections, tables, summary.journal_position));
  REVERIE_RETURN_IF_ERROR(reader.read_images(sections, summary));
  return summary;
}

Result<std::vector<ItemList>> read_items(FileSystem& files, const std::string& folder) {
  Reader reader(files, folder);
  REVERIE_ASSIGN_OR_RETURN(const Manifest manifest, reader.manifest());
  REVERIE_ASSIGN_OR_RETURN(const std::vector<Section> sections, reader.sections(manifest));
  REVERIE_RETURN_IF_ERROR(reader.read_lists(sections, manifest));
  reader.keep_no_chunks();
  std::vector<RestoredTable> tables;
  std::uint64_t journal_position = 0;
  REVERIE_RETURN_IF_ERROR(reader.read_tables(sections, tables, journal_position));
  const std::vector<std::uint64_t> contents = reader.take_contents();
  std::vector<ItemList> lists;
  auto from = contents.begin();
  for (RestoredTable& table : tables) {
    const auto end = from + static_cast<std::ptrdiff_t>(table.records.size());
    lists.push_back({std::move(table.image), std::move(table.records), {from, end}});
    from = end;
  }
  return lists;
}

Result<std::vector<TableOptions>> options_for(std::vector<TableOptions> mine,
                                              const std::vector<TableImage>& theirs,
                                              OnMismatch on_mismatch) {
  if (on_mismatch == OnMismatch::kDrop) return mine;
  for (const TableImage& image : theirs) {
    const bool is_mine = std::any_of(mine.begin(), mine.end(), [&](const TableOptions& table) {
      return table.name == image.options.name;
    });
    if (is_mine) continue;
    if (on_mismatch == OnMismatch::kTheirs) {
      mine.push_back(image.options);
      continue;
    }
    return failed_precondition(
        "the checkpoint has a table '{}' that the store does not have; give the store one of that "
        "name, or on_mismatch=\"drop\"",
        image.options.name);
  }
  for (TableOptions& table : mine) {
    const TableImage* const image = find(theirs, table.name);
    if (image == nullptr) continue;
    const std::string text = table_difference(table, image->options);
    if (text.empty()) continue;
    if (on_mismatch == OnMismatch::kTheirs) {
      const std::optional<std::int64_t> memory_bytes = table.memory_bytes;
      const std::optional<Durability> durability = table.durability;
      table = image->options;
      table.memory_bytes = memory_bytes;
      table.durability = durability;
    } else if (on_mismatch == OnMismatch::kRefuse) {
      return failed_precondition(
          "table '{}' is not the one that the checkpoint holds: {}; make them alike, or give "
          "on_mismatch=\"mine\", \"theirs\" or \"drop\"",
          table.name, text);
    } else if (table.is_keyed != image->options.is_keyed ||
               table.extensions.empty() != image->options.extensions.empty()) {
      // Items of one kind lack fields that the other kind needs.
      return failed_precondition("table '{}' cannot take the checkpoint's items: {}", table.name,
                                 text);
    }
  }
  return mine;
}

Status restore(LocalService& service, LoadedCheckpoint& loaded, OnMismatch on_mismatch) {
  for (RestoredTable& stored : loaded.tables) {
    const TableOptions& theirs = stored.image.options;
    auto found = service.table(theirs.name);
    if (!found.ok()) {
      if (on_mismatch == OnMismatch::kDrop) continue;
      return found.status();
    }
    const TableOptions& mine = (*found)->options();
    const std::string text = table_difference(mine, theirs);
    if (!text.empty() && on_mismatch == OnMismatch::kDrop) continue;
    if (!is_same_component(mine.sampler, theirs.sampler)) stored.sampler.reset();
    if (!is_same_component(mine.remover, theirs.remover)) stored.remover.reset();
    for (SlotRecord& record : stored.records) record.inserted_at_ns -= service.calendar_offset_ns();
    REVERIE_RETURN_IF_ERROR(
        (*found)->restore(stored).with_context(format("checkpoint '{}'", loaded.folder)));
  }
  return {};
}

}  // namespace reverie::checkpoint
