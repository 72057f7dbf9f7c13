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

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

inline constexpr std::size_t kGroupHeaderBytes = 32;
// A longer file is not read. Journal writes none: see the sizes of its options.
inline constexpr std::uint64_t kJournalFileBytesMax = std::uint64_t{32} << 30;

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
std::array<std::byte, kGroupHeaderBytes> group_header(const Group& group);
// The group that begins at `offset`; empty if there is no whole one.
std::optional<Group> group_at(std::span<const std::byte> bytes, std::uint64_t offset);

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

// Whether the file of the first of `numbers`, with these bytes, has no record after `position`. A
// checkpoint begins a new file, so one record of this file decides, or the first record of the next
// one.
Result<bool> lies_before(FileSystem& files, const std::string& root,
                         std::span<const std::uint64_t> numbers, std::span<const std::byte> bytes,
                         std::uint64_t position);

// A new file with its header, both on the disk: a file that is longer than its header has a valid
// one.
Result<std::unique_ptr<File>> create_journal_file(FileSystem& files, const std::string& root,
                                                  std::uint64_t number);

// Rewrites a file with its first bytes, these, durably; removes it if they are only its header.
Status keep_beginning(FileSystem& files, const std::string& root, const std::string& path,
                      std::span<const std::byte> good);
// Removes what a crash in the middle of that has left.
Status remove_torn_keeping(FileSystem& files, const std::string& root);

}  // namespace reverie::checkpoint
