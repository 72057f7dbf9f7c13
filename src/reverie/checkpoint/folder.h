// A folder of checkpoints: lists them, finds the newest, and removes what may be removed.
//
//     root/
//       checkpoint-0000000006/    manifest  tables  chunks-0000000004  chunks-0000000006
//       checkpoint-0000000007/    manifest  tables  chunks-0000000006  chunks-0000000007
//       tmp-0000000008/           being written, or left behind by a crash
//       reverie.lock              held by the store that writes here
//
// Files with other names are never touched; nor is a folder that contains other files besides
// ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

inline constexpr std::string_view kManifestName = "manifest";
inline constexpr std::string_view kTablesName = "tables";
inline constexpr std::string_view kLockName = "reverie.lock";
// How often read_newest() turns to a newer checkpoint.
inline constexpr int kNewestReads = 16;

// "checkpoint-0000000007", "tmp-0000000007", "chunks-0000000007".
std::string checkpoint_name(std::uint64_t number);
std::string temporary_name(std::uint64_t number);
std::string chunks_name(std::uint64_t number);
// The numbers of such names; none for any other.
std::optional<std::uint64_t> checkpoint_number(std::string_view name);
std::optional<std::uint64_t> chunks_number(std::string_view name);

// The numbers of all checkpoints, ascending. Each is complete unless it was damaged, since they are
// published only by rename. NOT_FOUND if the folder does not exist.
Result<std::vector<std::uint64_t>> checkpoints(FileSystem& files, const std::string& root);

// Where a path leads: to a folder of checkpoints, or to one of them.
struct Place {
  std::string root;
  std::optional<std::uint64_t> number;  // of that checkpoint
};
// INVALID_ARGUMENT for a file. A path that does not exist counts as a folder to create, unless it
// is named like a checkpoint: then NOT_FOUND.
Result<Place> place_of(FileSystem& files, const std::string& path);

// The checkpoint at `path`, or the newest in that folder. NOT_FOUND if there is none.
Result<std::string> newest_checkpoint(FileSystem& files, const std::string& path);

// What `read(folder)` returns of the newest checkpoint. A process that saves there may remove it
// once the next one is written: then that one is read.
template <typename Read>
auto read_newest(FileSystem& files, const std::string& path, const Read& read)
    -> decltype(read(path)) {
  for (int left = kNewestReads;; --left) {
    REVERIE_ASSIGN_OR_RETURN(const std::string folder, newest_checkpoint(files, path));
    auto result = read(folder);
    if (result.ok() || left == 0) return result;
    const Result<std::string> next = newest_checkpoint(files, path);
    if (!next.ok() || *next == folder) return result;
  }
}

// Removes a checkpoint, first its name. Does not touch one with a file of another name.
Status remove_checkpoint(FileSystem& files, const std::string& root, std::uint64_t number);
// Removes what crashes have left behind. Requires that no checkpoint is being written there.
Status remove_temporaries(FileSystem& files, const std::string& root);

}  // namespace reverie::checkpoint
