// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/checkpoint/journal_frames.h"

#include <algorithm>

#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/section_file.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"

namespace reverie::checkpoint {
namespace {

constexpr std::string_view kJournal = "journal-";

// The checksum of a group covers everything after it.
std::vector<std::byte> header_behind_crc(const Group& group) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).u32(group.count).u64(group.first).u64(group.synced).u64(group.records.size());
  return bytes;
}

// The group at `offset`; empty if there is no complete one.
std::optional<Group> group_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  ByteReader in(bytes.subspan(offset));
  Group group;
  const std::uint32_t crc = in.u32();
  group.count = in.u32();
  group.first = in.u64();
  group.synced = in.u64();
  group.records = in.raw(in.u64());
  group.offset = offset;
  // Zeros have no checksum of their own.
  const bool is_possible = in.ok() && group.count > 0 && group.first > 0 &&
                           group.records.size() >= group.count && group.synced < group.first;
  if (!is_possible) return std::nullopt;
  if (crc32c(group.records, crc32c(header_behind_crc(group))) != crc) return std::nullopt;
  return group;
}

}  // namespace

std::string journal_name(std::uint64_t file) {
  return format("{}{:010}", kJournal, file);
}

std::optional<std::uint64_t> journal_number(std::string_view name) {
  return number_of(kJournal, name);
}

Result<std::vector<std::uint64_t>> journal_files(FileSystem& files, const std::string& root) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(root));
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = journal_number(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<std::byte> group_header(const Group& group) {
  const std::vector<std::byte> behind = header_behind_crc(group);
  std::vector<std::byte> bytes;
  ByteWriter(bytes).u32(crc32c(group.records, crc32c(behind))).raw(behind);
  return bytes;
}

std::uint64_t first_record(std::span<const std::byte> bytes) {
  if (!check_file_header(bytes, FileKind::kJournal, "").ok()) return 0;
  const auto group = group_at(bytes, kFileHeaderBytes);
  return group ? group->first : 0;
}

Result<JournalFile> read_journal_file(std::span<const std::byte> bytes, bool is_last,
                                      const std::string& path, std::uint64_t expected) {
  JournalFile file;
  if (const Status header = check_file_header(bytes, FileKind::kJournal, path); !header.ok()) {
    // The header is synced before anything is written after it.
    if (is_last && bytes.size() <= kFileHeaderBytes) return file;
    return header;
  }
  file.good_bytes = kFileHeaderBytes;
  std::uint64_t next = 0;
  while (file.good_bytes < bytes.size()) {
    const auto group = group_at(bytes, file.good_bytes);
    if (!group || (next != 0 && group->first != next)) break;
    next = group->first + group->count;
    file.good_bytes += kGroupHeaderBytes + group->records.size();
    file.groups.push_back(*group);
  }
  if (file.good_bytes == bytes.size()) return file;
  if (!is_last) {
    return data_loss(
        "'{}' is damaged at byte {}: a later file of the journal is there, so this one was "
        "complete; restore it from a copy, or remove all files of the journal to go on with the "
        "checkpoint",
        path, file.good_bytes);
  }
  // Data that was not synced yet may be there in part, and in any order.
  if (next == 0) next = expected;
  for (std::uint64_t at = file.good_bytes + 1; at + kGroupHeaderBytes <= bytes.size(); ++at) {
    const auto later = group_at(bytes, at);
    if (!later || later->first < next || later->synced < next) continue;
    return data_loss(
        "'{}' is damaged at byte {}: the group at byte {} says that record {}, which should be "
        "there, was on the disk; restore the file from a copy, or remove all files of the journal "
        "to go on with the checkpoint",
        path, file.good_bytes, at, next);
  }
  return file;
}

}  // namespace reverie::checkpoint
