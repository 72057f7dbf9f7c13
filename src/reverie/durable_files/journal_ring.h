// JournalRing: the groups that the files of a journal do not have yet, where a kill leaves them.
//
//     | file header | entry count | zeros || entries, 32 bytes each || groups, around |
//     journal-ring
//                                            number, file, place --------^
//
// A group that is here belongs to the operating system: the process may be killed. So a change can
// be confirmed without a system call or another thread, which writes the groups into the files
// later, many with one write, and frees their places. A store that finds a ring was killed; it puts
// the groups that are missing behind the files (finish_journal) before it reads these.
//
// A power cut leaves any part of it. Entries and groups have checksums, so what is torn ends the
// journal, as does a torn end of a file. See docs/formats/journal.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

inline constexpr std::string_view kRingName = "journal-ring";

// Not thread-safe.
class JournalRing {
 public:
  // A new one in the folder `root`, for groups of `group_bytes` in all. UNIMPLEMENTED where the
  // file system has no file that can be written through memory.
  static Result<std::unique_ptr<JournalRing>> create(FileSystem& files, const std::string& root,
                                                     std::size_t group_bytes);

  // Whether what was put in may not be there: the disk failed.
  bool is_lost() const { return file_->is_lost(); }
  // Reads from each page of what put() has returned, so that is_lost() knows of a file that was
  // cut.
  static void read_again(std::span<const std::byte> bytes);
  bool has_room(std::size_t group_bytes) const;
  // Puts in a group, header and records, of the file with this number. Returns it at its place,
  // which follows that of the group before unless the ring begins again. Requires room, and records
  // that follow those of the last group.
  std::span<const std::byte> put(std::uint64_t file, const Group& group,
                                 std::span<const std::byte> bytes);
  // Frees the groups whose records are all up to `record`.
  void release(std::uint64_t record);
  // Whether so much is in use that it should be written.
  bool is_due() const;

 private:
  struct Place {
    std::uint64_t last_record = 0;
    std::size_t begin = 0;
  };

  JournalRing(std::unique_ptr<SharedFile> file, std::size_t entry_count);
  // Where a group of this size goes; groups_.size() if it has no room.
  std::size_t place_for(std::size_t group_bytes) const;

  const std::unique_ptr<SharedFile> file_;
  const std::span<std::byte> entries_;
  const std::span<std::byte> groups_;
  std::deque<Place> places_;  // in use, the oldest first
  std::size_t begin_ = 0;     // of the oldest group
  std::size_t end_ = 0;       // of the newest one
  std::size_t next_entry_ = 0;
};

// A group in a ring's bytes, which it views.
struct RingGroup {
  std::uint64_t file = 0;
  Group group;
  std::span<const std::byte> bytes;  // header and records
};
// The groups from record `expected` on, without a gap. None for bytes that are no ring.
std::vector<RingGroup> groups_from(std::span<const std::byte> bytes, std::uint64_t expected);

// The groups that the ring of a folder has and its files, whose last record is `last`, have not.
// `bytes` are the ring's, which the groups view.
Result<std::vector<RingGroup>> groups_behind(FileSystem& files, const std::string& root,
                                             std::uint64_t last, std::vector<std::byte>& bytes);

// Puts these groups into the files, durably. Requires that no journal uses the folder. `position`
// is the last record of the checkpoint. Leaves files alone that are damaged. Whether it has written
// all that is in the last file, so that its sync says that it is on the disk.
Result<bool> finish_journal(FileSystem& files, const std::string& root, std::uint64_t position);
// Removes the ring, durably, before another journal begins: a group that did not continue the files
// must not be taken for one of its own.
Status remove_ring(FileSystem& files, const std::string& root);

}  // namespace reverie::checkpoint
