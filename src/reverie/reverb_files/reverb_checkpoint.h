// dm-reverb's checkpoints: read as ours are, and written from one of ours.
//
//     root/2026-11-21T03:55:44.476986403+00:00/
//       tables.tfrecord   a PriorityTableCheckpoint for each table
//       items.tfrecord    PrioritizedItems, by table, each table's by their times of insertion
//       chunks.tfrecord   ChunkData, each once
//       DONE              empty, written last
//
// What one of the two has no word for is lost on the way: dm-reverb's holds no order of a selector
// beyond the times of insertion, no state of a generator or an extension, and no bound in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/os/file_system.h"
#include "reverie/replay/table_image.h"

namespace reverie::reverb_files {

// Ends a long call: asked some times a second, and true makes it CANCELLED.
class Interruption {
 public:
  explicit Interruption(std::function<bool()> is_wanted = {}) : is_wanted_(std::move(is_wanted)) {}

  // After so many bytes more.
  Status check(std::size_t size_bytes);

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;  // between two looks

  std::function<bool()> is_wanted_;
  std::size_t bytes_ = 0;
};

// The checkpoint of dm-reverb's that `path` is, or the one in it with the greatest name, as
// dm-reverb itself chooses; none where there is none.
Result<std::optional<std::string>> newest_reverb_checkpoint(FileSystem& files,
                                                            const std::string& path);

// DATA_LOSS names the file and the record; UNIMPLEMENTED for items of a form that dm-reverb itself
// has given up. The chunks' bytes are kept as they are; times are nanoseconds since 1970.
Result<std::vector<RestoredTable>> read_reverb_checkpoint(
    FileSystem& files, const std::string& folder, Allocator& allocator = Allocator::heap(),
    Interruption interruption = Interruption());

// Writes tables, with times since 1970, into the folder `root`, under a name of the time
// `created_ns`, and returns its path. UNIMPLEMENTED, naming the table, for a selector, a type or a
// signature that dm-reverb does not have, and for a table without keys.
Result<std::string> write_reverb_checkpoint(std::span<const RestoredTable> tables,
                                            FileSystem& files, const std::string& root,
                                            std::int64_t created_ns,
                                            Interruption interruption = Interruption());

}  // namespace reverie::reverb_files
