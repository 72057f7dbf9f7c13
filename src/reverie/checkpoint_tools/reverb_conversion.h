// Converts dm-reverb's checkpoints to ours, and ours to dm-reverb's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

struct ConvertedCheckpoint {
  std::string from;
  std::string to;
  CheckpointForm form = CheckpointForm::kReverie;  // of the new one
  std::uint64_t tables = 0;
  std::uint64_t items = 0;
};
// Writes the checkpoint at `source`, or the newest in that folder, in the other form into the
// folder `target`, which is created if it does not exist. FAILED_PRECONDITION if `target` has
// checkpoints of that form already, or a journal continues the source. Calls `interrupted` several
// times a second; CANCELLED soon after it returns true.
Result<ConvertedCheckpoint> convert_checkpoint(FileSystem& files, const std::string& source,
                                               const std::string& target,
                                               const std::function<bool()>& interrupted = {});

}  // namespace reverie::checkpoint
