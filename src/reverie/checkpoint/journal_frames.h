// The files of a journal: groups of records, each written in one piece and with one checksum.
//
//     | file header, 16 bytes |  group | group | ...          journal-0000000003
//
//     group  | crc u32 | records u32 | first u64 | synced u64 | size u64 | records |
//
// Records are numbered through all files of a folder. `synced` is the number of the last
// record that was surely on the disk when the group was written: damage before it is an error;
// damage after it is what a power cut left of the end, and is dropped. See
// docs/formats/journal.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

inline constexpr std::size_t kGroupHeaderBytes = 32;

// "journal-0000000003"
std::string journal_name(std::uint64_t file);
std::optional<std::uint64_t> journal_number(std::string_view name);
// The numbers of a folder's journal files, ascending.
Result<std::vector<std::uint64_t>> journal_files(FileSystem& files, const std::string& root);

struct Group {
  std::uint64_t first = 0;  // the number of its first record
  std::uint32_t count = 0;
  std::uint64_t synced = 0;
  std::span<const std::byte> records;
  std::uint64_t offset = 0;  // of its header in the file, for messages
};

// The header of a group.
std::vector<std::byte> group_header(const Group& group);

struct JournalFile {
  std::vector<Group> groups;  // view the bytes
  // The intact size of the file: less than its size if its end is torn.
  std::uint64_t good_bytes = 0;
};
// The number of a file's first record; 0 if its beginning is damaged, or it has no record.
std::uint64_t first_record(std::span<const std::byte> bytes);
// All groups of a file, of which the first one wanted is `expected`. `is_last`: no other file
// follows, so that the end may be torn. DATA_LOSS names the file and the offset, UNIMPLEMENTED an
// unknown version.
Result<JournalFile> read_journal_file(std::span<const std::byte> bytes, bool is_last,
                                      const std::string& path, std::uint64_t expected);

}  // namespace reverie::checkpoint
