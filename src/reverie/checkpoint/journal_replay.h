// Replays a journal: what happened after a checkpoint, done once more to the store that it gave.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "reverie/base/number_set.h"
#include "reverie/base/status.h"
#include "reverie/checkpoint/open_draws.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/local_service.h"

namespace reverie::checkpoint {

struct Replayed {
  std::uint64_t last_record = 0;    // what the store holds now
  std::uint64_t next_file = 1;      // the first number that no file has
  std::uint64_t records = 0;        // that were replayed
  std::uint64_t inserts = 0;        // among them
  std::uint64_t size_bytes = 0;     // of the files that they lie in
  std::uint64_t dropped_bytes = 0;  // at the end, of what was never confirmed
  // By table: draws whose reader did not get them before the end. The caller undoes them.
  std::map<std::string, OpenDraws> open_draws;
  // What writers had inserted, as far as they may send it again.
  std::map<std::string, NumberSet, std::less<>> sessions;
};

// Replays what `root` holds behind record `position` into a store that is not in use yet. A torn
// end is dropped, and the file mended; what is left is synced. DATA_LOSS names file and offset;
// FAILED_PRECONDITION a table that the store does not have, or has otherwise.
Result<Replayed> replay_journal(FileSystem& files, const std::string& root, std::uint64_t position,
                                LocalService& store);

}  // namespace reverie::checkpoint
