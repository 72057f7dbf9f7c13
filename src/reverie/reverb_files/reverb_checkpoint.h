// dm-reverb's checkpoints: reads them like our own, and writes them from our own.
//
//     root/2026-11-21T03:55:44.476986403+00:00/
//       tables.tfrecord   a PriorityTableCheckpoint for each table
//       items.tfrecord    PrioritizedItems, by table, each table's by their times of insertion
//       chunks.tfrecord   ChunkData, each once
//       DONE              empty, written last
//
// What the other format cannot express is lost: dm-reverb's has no order of a selector beyond the
// times of insertion, no state of a generator or an extension, and no bound in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/interruption.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/table_image.h"

namespace reverie::reverb_files {

// The dm-reverb checkpoint at `path`, or the one in that folder with the greatest name, as
// dm-reverb itself chooses; none if there is none.
Result<std::optional<std::string>> newest_reverb_checkpoint(FileSystem& files,
                                                            const std::string& path);

// DATA_LOSS names the file and the record; UNIMPLEMENTED for items in a form that dm-reverb itself
// no longer supports. The chunks' bytes are kept unchanged; times are nanoseconds since 1970.
Result<std::vector<RestoredTable>> read_reverb_checkpoint(
    FileSystem& files, const std::string& folder, Allocator& allocator = Allocator::heap(),
    Interruption interruption = Interruption());

// Writes tables, with times since 1970, into the folder `root`, named after the time `created_ns`,
// and returns the path. UNIMPLEMENTED, naming the table, for a selector, a type or a signature that
// dm-reverb does not have, and for a table without keys.
Result<std::string> write_reverb_checkpoint(std::span<const RestoredTable> tables,
                                            FileSystem& files, const std::string& root,
                                            std::int64_t created_ns,
                                            Interruption interruption = Interruption());

}  // namespace reverie::reverb_files
