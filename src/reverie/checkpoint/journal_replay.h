// Replays a journal: applies the changes after a checkpoint to the store restored from it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "reverie/base/interruption.h"
#include "reverie/base/number_set.h"
#include "reverie/base/status.h"
#include "reverie/checkpoint/open_draws.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/local_service.h"

namespace reverie::checkpoint {

struct Replayed {
  std::uint64_t last_record = 0;    // the last one that the store includes
  std::uint64_t next_file = 1;      // the first unused file number
  std::uint64_t records = 0;        // replayed
  std::uint64_t inserts = 0;        // among them
  std::uint64_t size_bytes = 0;     // of the files replayed
  std::uint64_t dropped_bytes = 0;  // at the end; never confirmed
  // By table: draws whose reader did not get them before the end. The caller undoes them.
  std::map<std::string, OpenDraws> open_draws;
  // What writers have inserted and may resend.
  std::map<std::string, NumberSet, std::less<>> sessions;
};

// Replays the records of `root` after `position` into a store that is not in use yet. A torn end is
// cut off the file; the rest is on the disk afterwards: the last file is rewritten unless a
// store closed it, since an earlier sync of it may have failed. DATA_LOSS names file and offset;
// FAILED_PRECONDITION a table that the store does not have, or has with other options.
Result<Replayed> replay_journal(FileSystem& files, const std::string& root, std::uint64_t position,
                                LocalService& store, Interruption interruption = Interruption());

}  // namespace reverie::checkpoint
