// Tested in tests/integration/reverb_checkpoint_test.cc.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "reverie/reverb_files/reverb_checkpoint.h"
#include "reverie/reverb_files/reverb_names.h"
#include "reverie/reverb_files/tf_records.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/reverb_wire/selector.h"
#include "reverie/reverb_wire/signature.h"

namespace reverie::reverb_files {
namespace {

std::string limiter_message(const TableImage& image) {
  const RateLimiterSpec& limiter = image.options.rate_limiter;
  std::string out;
  wire::put_double(out, 2, limiter.samples_per_insert);
  wire::put_double(out, 3, limiter.min_diff);
  wire::put_double(out, 4, limiter.max_diff);
  wire::put_int(out, 5, limiter.min_size_to_sample);
  wire::put_int(out, 6, image.limiter.samples);
  wire::put_int(out, 7, image.limiter.inserts);
  wire::put_int(out, 8, image.limiter.deletes);
  return out;
}

Result<std::string> selector_message(const ComponentSpec& spec) {
  for (const char* const name : {"Fifo", "Lifo", "Uniform", "MinHeap", "MaxHeap", "Prioritized"}) {
    if (spec.name == name) return wire::write_selector(spec);
  }
  return unimplemented("dm-reverb has no selector '{}'", spec.name);
}

Result<std::string> table_message(const TableImage& image) {
  const TableOptions& options = image.options;
  if (!image.has_records) {
    return unimplemented("its items have no keys, which dm-reverb's tables need");
  }
  std::string out;
  wire::put_text(out, 1, options.name);
  wire::put_message(out, 3, limiter_message(image));
  REVERIE_ASSIGN_OR_RETURN(const std::string sampler, selector_message(options.sampler));
  wire::put_message(out, 4, sampler);
  REVERIE_ASSIGN_OR_RETURN(const std::string remover, selector_message(options.remover));
  wire::put_message(out, 5, remover);
  wire::put_int(out, 6, options.max_size);
  wire::put_int(out, 7,
                std::clamp<std::int64_t>(options.max_times_sampled, 0,
                                         std::numeric_limits<std::int32_t>::max()));
  wire::put_int(out, 8, image.num_deleted_episodes);
  if (options.signature) {
    REVERIE_ASSIGN_OR_RETURN(const std::string signature,
                             wire::write_signature(*options.signature));
    wire::put_message(out, 9, signature);
  }
  wire::put_int(out, 10, image.num_unique_samples);
  return out;
}

// The order of the slots in the state of a Fifo or a Lifo, the oldest first; empty for other
// selectors.
std::vector<Slot> order_of(const ComponentSpec& selector,
                           const std::optional<std::vector<std::byte>>& state) {
  std::vector<Slot> slots;
  if (!state || (selector.name != "Fifo" && selector.name != "Lifo")) return slots;
  ByteReader in(*state);
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) slots.push_back(in.u32());
  return slots;
}

// The slots that hold an item, in the order of insertion. Items that were inserted together have
// the same time: then the order is the selector's.
std::vector<std::size_t> by_time(const RestoredTable& table) {
  const TableOptions& options = table.image.options;
  std::vector<Slot> known = order_of(options.sampler, table.sampler);
  if (known.empty()) known = order_of(options.remover, table.remover);
  std::vector<std::size_t> ranks(table.records.size());
  for (std::size_t rank = 0; rank < known.size(); ++rank) {
    if (known[rank] < ranks.size()) ranks[known[rank]] = rank;
  }
  std::vector<std::size_t> slots(table.records.size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  std::erase_if(slots, [&](std::size_t slot) { return table.trajectories[slot].empty(); });
  std::stable_sort(slots.begin(), slots.end(), [&](std::size_t a, std::size_t b) {
    const SlotRecord& x = table.records[a];
    const SlotRecord& y = table.records[b];
    return std::tie(x.inserted_at_ns, ranks[a], x.generation) <
           std::tie(y.inserted_at_ns, ranks[b], y.generation);
  });
  return slots;
}

class ReverbWriter {
 public:
  ReverbWriter(std::span<const RestoredTable> tables, FileSystem& files, std::string folder,
               Interruption interruption)
      : tables_(tables),
        files_(files),
        folder_(std::move(folder)),
        interruption_(std::move(interruption)) {
    // If two chunks have the same key, the first keeps it.
    for (const RestoredTable& table : tables) {
      for (const Trajectory& trajectory : table.trajectories) {
        if (trajectory.empty()) continue;
        for (const Piece& piece : trajectory.pieces()) used_keys_.insert(piece.chunk->key());
      }
    }
  }

  Status write() {
    REVERIE_ASSIGN_OR_RETURN(const auto heads, create(kReverbTables));
    REVERIE_ASSIGN_OR_RETURN(const auto items, create(kReverbItems));
    REVERIE_ASSIGN_OR_RETURN(chunks_, create(kReverbChunks));
    for (const RestoredTable& table : tables_) {
      const Result<std::string> message = table_message(table.image);
      Status status = message.status();
      if (status.ok()) status = heads->add(wire::bytes_of(*message));
      if (status.ok()) status = write_items(table, *items);
      if (!status.ok()) {
        return status.with_context(format("table '{}'", table.image.options.name));
      }
    }
    REVERIE_RETURN_IF_ERROR(heads->finish());
    REVERIE_RETURN_IF_ERROR(items->finish());
    REVERIE_RETURN_IF_ERROR(chunks_->finish());
    return files_.create(join_path(folder_, kReverbDone)).status();
  }

 private:
  Result<std::unique_ptr<TfRecordWriter>> create(std::string_view name) {
    return TfRecordWriter::create(files_, join_path(folder_, name));
  }

  Status write_items(const RestoredTable& table, TfRecordWriter& out) {
    wire::WireItem item;
    for (const std::size_t slot : by_time(table)) {
      const SlotRecord& record = table.records[slot];
      item.clear();
      item.key = record.key;
      item.table = table.image.options.name;
      item.priority = record.priority;
      item.times_sampled = record.times_sampled;
      item.inserted_at_ns = record.inserted_at_ns;
      const Trajectory& trajectory = table.trajectories[slot];
      for (const LayoutColumn& column : trajectory.layout().columns()) {
        wire::WireItem::Column& written = item.columns.emplace_back();
        written.slice_begin = static_cast<std::uint32_t>(item.slices.size());
        for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
          const Piece& piece = trajectory.pieces()[p];
          REVERIE_ASSIGN_OR_RETURN(const ChunkKey key, write_chunk(*piece.chunk));
          item.slices.push_back({key, static_cast<std::int32_t>(piece.offset),
                                 static_cast<std::int32_t>(piece.length), column.chunk_column});
        }
        written.slice_end = static_cast<std::uint32_t>(item.slices.size());
        written.squeeze = column.squeezed;
      }
      REVERIE_RETURN_IF_ERROR(out.add(wire::bytes_of(wire::write_item(item))));
    }
    return {};
  }

  // The chunk's key in the file. A chunk is written when it is first seen.
  Result<ChunkKey> write_chunk(const Chunk& chunk) {
    if (const auto known = keys_.find(&chunk); known != keys_.end()) return known->second;
    ChunkKey key = chunk.key();
    if (!written_keys_.insert(key).second) {
      while (!used_keys_.insert(++next_key_).second) continue;
      key = next_key_;
    }
    keys_.emplace(&chunk, key);
    const std::span<const std::byte> as_sent = chunk.enveloped(Chunk::Envelope::kWireMessage);
    if (!as_sent.empty() && key == chunk.key()) {
      REVERIE_RETURN_IF_ERROR(chunks_->add(as_sent));
      REVERIE_RETURN_IF_ERROR(interruption_.check(as_sent.size()));
      return key;
    }
    REVERIE_ASSIGN_OR_RETURN(const wire::WrittenChunk message,
                             wire::encode_chunk(chunk, 0, chunk.rows(), key));
    REVERIE_RETURN_IF_ERROR(chunks_->add(message.bytes()));
    REVERIE_RETURN_IF_ERROR(interruption_.check(message.bytes().size()));
    return key;
  }

  const std::span<const RestoredTable> tables_;
  FileSystem& files_;
  const std::string folder_;
  Interruption interruption_;
  std::unique_ptr<TfRecordWriter> chunks_;
  std::unordered_map<const Chunk*, ChunkKey> keys_;
  std::unordered_set<ChunkKey> used_keys_;
  std::unordered_set<ChunkKey> written_keys_;
  ChunkKey next_key_ = 0;
};

// RFC 3339 with nanoseconds: for dm-reverb the greatest name is the newest checkpoint.
std::string utc_text(std::int64_t ns) {
  const std::chrono::sys_time<std::chrono::nanoseconds> time{std::chrono::nanoseconds(ns)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}+00:00", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                clock.subseconds().count());
}

Status remove_folder(FileSystem& files, const std::string& folder) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(folder));
  for (const std::string& name : names) {
    REVERIE_RETURN_IF_ERROR(files.remove_file(join_path(folder, name)));
  }
  return files.remove_folder(folder);
}

}  // namespace

Result<std::string> write_reverb_checkpoint(std::span<const RestoredTable> tables,
                                            FileSystem& files, const std::string& root,
                                            std::int64_t created_ns, Interruption interruption) {
  REVERIE_RETURN_IF_ERROR(create_folders(files, root));
  const std::string name = utc_text(created_ns);
  const std::string temporary = join_path(root, "tmp-" + name);
  const std::string folder = join_path(root, name);
  REVERIE_RETURN_IF_ERROR(files.create_folder(temporary));
  Status status = ReverbWriter(tables, files, temporary, std::move(interruption)).write();
  if (status.ok()) status = durable_rename(files, temporary, folder);
  if (status.ok()) return folder;
  (void)remove_folder(files, temporary);  // the first error is the one to report
  return status;
}

}  // namespace reverie::reverb_files
