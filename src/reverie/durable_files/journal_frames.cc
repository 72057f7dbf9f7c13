// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/durable_files/journal_frames.h"

#include <algorithm>

#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"
#include "reverie/durable_files/little_endian.h"
#include "reverie/durable_files/section_file.h"

namespace reverie::checkpoint {
namespace {

constexpr std::string_view kJournal = "journal-";

constexpr std::string_view kTemporaryName = "tmp-journal";

}  // namespace

std::array<std::byte, kGroupHeaderBytes> group_header(const Group& group) {
  std::array<std::byte, kGroupHeaderBytes> header{};
  std::byte* at = put_number(header.data() + sizeof(std::uint32_t), group.count);
  at = put_number(at, group.first);
  at = put_number(at, group.synced);
  put_number(at, std::uint64_t{group.records.size()});
  // The checksum covers everything after it.
  const auto behind = std::span(header).subspan(sizeof(std::uint32_t));
  put_number(header.data(), crc32c(group.records, crc32c(behind)));
  return header;
}

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
  const auto behind = bytes.subspan(offset + sizeof(crc), kGroupHeaderBytes - sizeof(crc));
  if (crc32c(group.records, crc32c(behind)) != crc) return std::nullopt;
  return group;
}

std::string journal_name(std::uint64_t file) {
  return numbered(kJournal, file);
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

Result<bool> lies_before(FileSystem& files, const std::string& root,
                         std::span<const std::uint64_t> numbers, std::span<const std::byte> bytes,
                         std::uint64_t position) {
  const std::uint64_t first = first_record(bytes);
  if (first != 0) return first <= position;
  for (const std::uint64_t number : numbers.subspan(1)) {
    REVERIE_ASSIGN_OR_RETURN(
        const std::vector<std::byte> later,
        read_file(files, join_path(root, journal_name(number)), kJournalFileBytesMax));
    const std::uint64_t next = first_record(later);
    if (next != 0) return next <= position + 1;
  }
  return false;
}

Result<std::unique_ptr<File>> create_journal_file(FileSystem& files, const std::string& root,
                                                  std::uint64_t number) {
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                           files.create(join_path(root, journal_name(number))));
  REVERIE_RETURN_IF_ERROR(file->append(file_header(FileKind::kJournal)));
  REVERIE_RETURN_IF_ERROR(file->sync());
  REVERIE_RETURN_IF_ERROR(files.sync_folder(root));
  return file;
}

Status keep_beginning(FileSystem& files, const std::string& root, const std::string& path,
                      std::span<const std::byte> good) {
  if (good.size() <= kFileHeaderBytes) {
    REVERIE_RETURN_IF_ERROR(files.remove_file(path));
    return files.sync_folder(root);
  }
  const std::string temporary = join_path(root, kTemporaryName);
  {
    REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.create(temporary));
    REVERIE_RETURN_IF_ERROR(file->append(good));
  }
  return durable_rename(files, temporary, path, IfThere::kReplace);
}

Status remove_torn_keeping(FileSystem& files, const std::string& root) {
  const std::string temporary = join_path(root, kTemporaryName);
  REVERIE_ASSIGN_OR_RETURN(const PathKind there, files.kind(temporary));
  return there == PathKind::kFile ? files.remove_file(temporary) : Status();
}

}  // namespace reverie::checkpoint
