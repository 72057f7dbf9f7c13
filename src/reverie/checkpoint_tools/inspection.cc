// Tested in tests/python/checkpoint_command_test.py.
#include "reverie/checkpoint_tools/inspection.h"

#include <algorithm>
#include <span>
#include <utility>

#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/journal_records.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/durable_files/journal_ring.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/record/table_difference.h"

namespace reverie::checkpoint {
namespace {

const char* name_of(RecordType type) {
  switch (type) {
    case RecordType::kTables:
    case RecordType::kSchema:
    case RecordType::kLayout:
    case RecordType::kSession:
      return "definitions";
    case RecordType::kChunk:
      return "chunks";
    case RecordType::kRows:
      return "rows of chunks";
    case RecordType::kMark:
      return "ends";
    case RecordType::kInsert:
      return "inserts";
    case RecordType::kUpdate:
      return "priorities";
    case RecordType::kErase:
      return "deletions";
    case RecordType::kCorrupt:
      return "corrupt items";
    case RecordType::kSample:
    case RecordType::kDraws:
    case RecordType::kAwaitedSample:
      return "samples";
    case RecordType::kTakeBack:
      return "samples undone";
    case RecordType::kReset:
      return "resets";
    case RecordType::kReceipt:
      return "samples received";
    case RecordType::kOpenDraws:
      return "samples awaited";
    case RecordType::kNumber:
    case RecordType::kSettled:
    case RecordType::kNumbers:
      return "numbers of writers";
  }
  return nullptr;
}

Status count_records(const Group& group, std::map<std::string, std::uint64_t>& records) {
  ByteReader in(group.records);
  for (std::uint32_t i = 0; i < group.count; ++i) {
    const char* const name = name_of(static_cast<RecordType>(in.u8()));
    in.raw(in.u32());
    if (!in.ok() || name == nullptr) return data_loss("record {} is malformed", group.first + i);
    ++records[name];
  }
  return in.is_done() ? Status() : data_loss("bytes follow its last record");
}

// The last record of the newest checkpoint in the folder; 0 if there is none.
Result<std::uint64_t> checkpoint_position(FileSystem& files, const std::string& root) {
  const Result<std::string> newest = newest_checkpoint(files, root);
  if (newest.status().code() == StatusCode::kNotFound) return std::uint64_t{0};
  REVERIE_RETURN_IF_ERROR(newest.status());
  REVERIE_ASSIGN_OR_RETURN(const Summary summary, read_summary(files, *newest));
  return summary.journal_position;
}

// What a store that was killed has left in its ring; the next one takes it up.
Status inspect_ring(FileSystem& files, const std::string& root, JournalInspection& found) {
  const std::string path = join_path(root, kRingName);
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind == PathKind::kNothing) return {};
  REVERIE_ASSIGN_OR_RETURN(const std::uint64_t position, checkpoint_position(files, root));
  std::vector<std::byte> bytes;
  REVERIE_ASSIGN_OR_RETURN(
      const std::vector<RingGroup> groups,
      groups_behind(files, root, std::max(position, found.last_record), bytes));
  if (groups.empty()) return {};
  JournalFileInspection& about = found.files.emplace_back();
  about.name = kRingName;
  about.groups = groups.size();
  about.first_record = groups.front().group.first;
  for (const RingGroup& group : groups) {
    REVERIE_RETURN_IF_ERROR(count_records(group.group, found.records)
                                .with_context(format("'{}', record {}", path, group.group.first)));
    about.size_bytes += group.bytes.size();
    about.last_record = group.group.first + group.group.count - 1;
  }
  if (found.first_record == 0) found.first_record = about.first_record;
  found.last_record = about.last_record;
  found.size_bytes += about.size_bytes;
  return {};
}

}  // namespace

Result<Inspection> inspect_checkpoint(FileSystem& files, const std::string& folder, bool verifies) {
  REVERIE_ASSIGN_OR_RETURN(
      Summary summary, verifies ? verify_checkpoint(files, folder) : read_summary(files, folder));
  return Inspection{std::move(summary.manifest), std::move(summary.tables), summary.chunk_count,
                    summary.journal_position};
}

std::vector<std::pair<std::string, std::string>> described(const TableImage& table) {
  const TableOptions& options = table.options;
  return {
      {"items", format("{}", table.limiter.inserts - table.limiter.deletes)},
      {"inserts", format("{}", table.limiter.inserts)},
      {"samples", format("{}", table.limiter.samples)},
      {"deletes", format("{}", table.limiter.deletes)},
      {"max_size", format("{}", options.max_size)},
      {"max_bytes", options.max_bytes ? format("{}", *options.max_bytes) : "none"},
      {"max_times_sampled", format("{}", options.max_times_sampled)},
      {"sampler", component_text(options.sampler)},
      {"remover", component_text(options.remover)},
      {"rate_limiter", limiter_text(options.rate_limiter)},
      {"extensions", components_text(options.extensions)},
      {"signature", options.signature
                        ? format("{}; structure {}", signature_text(options.signature),
                                 options.signature->structure)
                        : "none"},
  };
}

Result<JournalInspection> inspect_journal(FileSystem& files, const std::string& root,
                                          std::uint64_t position) {
  JournalInspection found;
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers, journal_files(files, root));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::string path = join_path(root, journal_name(numbers[i]));
    REVERIE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             read_file(files, path, kJournalFileBytesMax));
    Result<JournalFile> read = read_journal_file(bytes, i + 1 == numbers.size(), path,
                                                 std::max(found.last_record, position) + 1);
    if (read.status().code() == StatusCode::kDataLoss && position > 0) {
      REVERIE_ASSIGN_OR_RETURN(
          const bool is_before,
          lies_before(files, root, std::span(numbers).subspan(i), bytes, position));
      if (is_before) continue;
    }
    REVERIE_ASSIGN_OR_RETURN(const JournalFile file, std::move(read));
    JournalFileInspection& about = found.files.emplace_back();
    about.name = journal_name(numbers[i]);
    about.groups = file.groups.size();
    about.size_bytes = file.good_bytes;
    found.size_bytes += file.good_bytes;
    found.torn_bytes = bytes.size() - file.good_bytes;
    for (const Group& group : file.groups) {
      if (found.first_record == 0) found.first_record = group.first;
      const std::uint64_t last = std::max(found.last_record, position);
      if (group.first > position && last != 0 && group.first != last + 1) {
        return data_loss("'{}' continues at byte {} with record {} after record {}", path,
                         group.offset, group.first, last);
      }
      REVERIE_RETURN_IF_ERROR(
          count_records(group, found.records)
              .with_context(format("'{}', group at byte {}", path, group.offset)));
      found.last_record = group.first + group.count - 1;
      if (about.first_record == 0) about.first_record = group.first;
      about.last_record = found.last_record;
    }
  }
  REVERIE_RETURN_IF_ERROR(inspect_ring(files, root, found));
  return found;
}

}  // namespace reverie::checkpoint
