// Tested in tests/integration/reverb_checkpoint_test.cc.
#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/codec/column_codec.h"
#include "reverie/codec/stored_time.h"
#include "reverie/reverb_files/reverb_checkpoint.h"
#include "reverie/reverb_files/reverb_names.h"
#include "reverie/reverb_files/tf_records.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/reverb_wire/selector.h"
#include "reverie/reverb_wire/signature.h"

namespace reverie::reverb_files {
namespace {

using wire::bytes_field;
using wire::double_field;
using wire::for_each_field;
using wire::varint_field;

using Bytes = std::span<const std::byte>;

Status read_limiter(Bytes message, TableImage& image) {
  RateLimiterSpec& limiter = image.options.rate_limiter;
  limiter = {0, 0, 0, 0};  // a missing field is 0
  return for_each_field(message, [&](wire::Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case double_field(2):
        limiter.samples_per_insert = reader.get_double();
        return Status();
      case double_field(3):
        limiter.min_diff = reader.get_double();
        return Status();
      case double_field(4):
        limiter.max_diff = reader.get_double();
        return Status();
      case varint_field(5):
        limiter.min_size_to_sample = reader.get_int64();
        return Status();
      case varint_field(6):
        image.limiter.samples = reader.get_int64();
        return Status();
      case varint_field(7):
        image.limiter.inserts = reader.get_int64();
        return Status();
      case varint_field(8):
        image.limiter.deletes = reader.get_int64();
        return Status();
      default:
        reader.skip();
        return Status();
    }
  });
}

Status read_table_fields(Bytes message, TableImage& image) {
  TableOptions& options = image.options;
  return for_each_field(message, [&](wire::Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case bytes_field(1):
        options.name = wire::get_text(reader);
        return Status();
      case bytes_field(2):
        return unimplemented(
            "its items are in the record of the table, as before dm-reverb 0.2; load it with a "
            "dm-reverb that reads them, and write it again");
      case bytes_field(3):
        return read_limiter(wire::get_bytes(reader), image);
      case bytes_field(4):
        return wire::read_selector(wire::get_bytes(reader), options.sampler);
      case bytes_field(5):
        return wire::read_selector(wire::get_bytes(reader), options.remover);
      case varint_field(6):
        options.max_size = reader.get_int64();
        return Status();
      case varint_field(7):
        options.max_times_sampled = reader.get_int32();
        return Status();
      case varint_field(8):
        image.num_deleted_episodes = reader.get_int64();
        return Status();
      case bytes_field(9): {
        REVERIE_ASSIGN_OR_RETURN(options.signature, wire::read_signature(wire::get_bytes(reader)));
        return Status();
      }
      case varint_field(10):
        image.num_unique_samples = reader.get_int64();
        return Status();
      default:
        reader.skip();
        return Status();
    }
  });
}

// dm-reverb stores what its clients send, without a look at the contents.
Status check_columns(const Chunk& chunk) {
  for (std::size_t c = 0; c < chunk.schema().column_count(); ++c) {
    const Status status = check_column(chunk.encoded_column(c).codec, chunk.schema().column(c),
                                       chunk.rows(), chunk.encoded_bytes(c));
    if (!status.ok()) {
      return data_loss("chunk {}, column {}: {}", chunk.key(), c, status.message());
    }
  }
  return {};
}

class ReverbReader {
 public:
  ReverbReader(FileSystem& files, std::string folder, Allocator& allocator,
               Interruption interruption)
      : files_(files),
        folder_(std::move(folder)),
        allocator_(allocator),
        interruption_(std::move(interruption)) {}

  Result<std::vector<RestoredTable>> read() {
    REVERIE_RETURN_IF_ERROR(for_each_record(kReverbTables, [this](Bytes record) {
      return wire::read_message("table", [&] { return read_table(record); });
    }));
    REVERIE_RETURN_IF_ERROR(
        for_each_record(kReverbChunks, [this](Bytes record) { return read_chunk(record); }));
    REVERIE_RETURN_IF_ERROR(
        for_each_record(kReverbItems, [this](Bytes record) { return read_item(record); }));
    std::vector<RestoredTable> restored;
    for (Table& table : tables_) {
      table.restored.image.slots.used = static_cast<Slot>(table.restored.records.size());
      restored.push_back(std::move(table.restored));
    }
    return restored;
  }

 private:
  struct Table {
    RestoredTable restored;
    wire::ColumnNames names;
    std::unique_ptr<wire::TrajectoryReader> reader = std::make_unique<wire::TrajectoryReader>();
  };

  template <typename OnRecord>
  Status for_each_record(std::string_view name, OnRecord on_record) {
    REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<TfRecordReader> reader,
                             TfRecordReader::open(files_, join_path(folder_, name)));
    while (true) {
      REVERIE_ASSIGN_OR_RETURN(const std::optional<Bytes> record, reader->next());
      if (!record) return {};
      REVERIE_RETURN_IF_ERROR(interruption_.check(record->size()));
      Status status = on_record(*record);
      if (status.ok()) continue;
      const bool keeps_code = status.code() == StatusCode::kUnimplemented ||
                              status.code() == StatusCode::kResourceExhausted;
      if (!keeps_code) status = Status(StatusCode::kDataLoss, status.message());
      return status.with_context(reader->place());
    }
  }

  Status read_table(Bytes record) {
    Table table;
    TableImage& image = table.restored.image;
    // Each new item gets a higher generation than these.
    image.slots.first_generation = image.slots.newest_generation = 1;
    REVERIE_RETURN_IF_ERROR(read_table_fields(record, image));
    const RateLimiter::Counts& counts = image.limiter;
    if (counts.inserts < 0 || counts.samples < 0 || counts.deletes < 0) {
      return data_loss("table '{}' counts {} inserts, {} samples and {} deletes",
                       image.options.name, counts.inserts, counts.samples, counts.deletes);
    }
    if (image.options.sampler.name.empty() || image.options.remover.name.empty()) {
      return data_loss("table '{}' has no {}", image.options.name,
                       image.options.sampler.name.empty() ? "sampler" : "remover");
    }
    const bool is_new = indices_.emplace(image.options.name, tables_.size()).second;
    if (!is_new) return data_loss("there are two tables '{}'", image.options.name);
    table.names = wire::ColumnNames::of(image.options.signature);
    tables_.push_back(std::move(table));
    return {};
  }

  Status read_chunk(Bytes record) {
    REVERIE_ASSIGN_OR_RETURN(Buffer message, allocator_.allocate(record.size()));
    std::copy(record.begin(), record.end(), message.data());
    REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk, wire::read_chunk(std::move(message), schemas_));
    REVERIE_RETURN_IF_ERROR(check_columns(*chunk));
    const ChunkKey key = chunk->key();
    if (!chunks_.emplace(key, std::move(chunk)).second) {
      return data_loss("there are two chunks of key {}", key);
    }
    return {};
  }

  Status read_item(Bytes record) {
    item_.clear();
    REVERIE_RETURN_IF_ERROR(wire::read_item(record, item_));
    const auto found = indices_.find(std::string(item_.table));
    if (found == indices_.end()) {
      return data_loss("item {} is of table '{}', which is not there", item_.key, item_.table);
    }
    if (item_.columns.empty()) {
      return unimplemented(
          "item {} has no trajectory, as before dm-reverb 0.2; load it with a dm-reverb that reads "
          "such items, and write it again",
          item_.key);
    }
    Table& table = tables_[found->second];
    RestoredTable& restored = table.restored;
    if (restored.records.size() == ItemSlots::kMaxSlots) {
      return data_loss("table '{}' has more than {} items", item_.table, ItemSlots::kMaxSlots);
    }
    REVERIE_ASSIGN_OR_RETURN(Trajectory trajectory,
                             table.reader->read(item_, table.names, [this](ChunkKey key) {
                               const auto chunk = chunks_.find(key);
                               return chunk == chunks_.end() ? nullptr : chunk->second.get();
                             }));
    if (item_.inserted_at_ns < 0 || item_.inserted_at_ns >= kTimeMax) {
      return data_loss("item {} was inserted {} ns after 1970; the bound is {}", item_.key,
                       item_.inserted_at_ns, kTimeMax);
    }
    SlotRecord& slot = restored.records.emplace_back();
    slot.times_sampled = item_.times_sampled;
    slot.generation = 1;
    slot.key = item_.key;
    slot.priority = item_.priority;
    // dm-reverb's loader keeps the order of the file.
    std::int64_t& newest_ns = newest_ns_[found->second];
    slot.inserted_at_ns = newest_ns = std::max(newest_ns, item_.inserted_at_ns);
    double& highest = restored.image.max_priority;
    highest = restored.records.size() == 1 ? slot.priority : std::max(highest, slot.priority);
    restored.trajectories.push_back(std::move(trajectory));
    return {};
  }

  FileSystem& files_;
  const std::string folder_;
  Allocator& allocator_;
  Interruption interruption_;
  std::vector<Table> tables_;
  std::unordered_map<std::string, std::size_t> indices_;
  std::unordered_map<std::size_t, std::int64_t> newest_ns_;
  wire::SchemaCache schemas_;
  std::unordered_map<ChunkKey, Ref<Chunk>> chunks_;
  wire::WireItem item_;
};

Result<bool> is_reverb_checkpoint(FileSystem& files, const std::string& folder) {
  for (const std::string_view name : {kReverbDone, kReverbTables}) {
    REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(join_path(folder, name)));
    if (kind != PathKind::kFile) return false;
  }
  return true;
}

}  // namespace

Result<std::optional<std::string>> newest_reverb_checkpoint(FileSystem& files,
                                                            const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind != PathKind::kFolder) return std::optional<std::string>();
  REVERIE_ASSIGN_OR_RETURN(const bool is_one, is_reverb_checkpoint(files, path));
  if (is_one) return std::optional(path);
  REVERIE_ASSIGN_OR_RETURN(std::vector<std::string> names, files.list(path));
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const std::string folder = join_path(path, *name);
    REVERIE_ASSIGN_OR_RETURN(const PathKind inner, files.kind(folder));
    if (inner != PathKind::kFolder) continue;
    REVERIE_ASSIGN_OR_RETURN(const bool is_match, is_reverb_checkpoint(files, folder));
    if (is_match) return std::optional(folder);
  }
  return std::optional<std::string>();
}

Result<std::vector<RestoredTable>> read_reverb_checkpoint(FileSystem& files,
                                                          const std::string& folder,
                                                          Allocator& allocator,
                                                          Interruption interruption) {
  return ReverbReader(files, folder, allocator, std::move(interruption)).read();
}

}  // namespace reverie::reverb_files
