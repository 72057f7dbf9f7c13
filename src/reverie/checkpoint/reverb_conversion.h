// Checkpoints of ours made of dm-reverb's, and the other way round.
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
// folder `target`, which is made if it is not there. FAILED_PRECONDITION where `target` holds
// checkpoints of the form already, or a journal goes on from the source. CANCELLED soon after
// `interrupted`, which is asked some times a second, says so.
Result<ConvertedCheckpoint> convert_checkpoint(FileSystem& files, const std::string& source,
                                               const std::string& target,
                                               const std::function<bool()>& interrupted = {});

}  // namespace reverie::checkpoint
