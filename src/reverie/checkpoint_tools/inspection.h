// Inspects checkpoints and journals without a store: their contents, and whether all is intact.
//
// Nothing is locked, changed or kept in memory, so it may be done while a store runs there; a file
// that the store removes meanwhile gives NOT_FOUND.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reverie/checkpoint/manifest.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/table_image.h"

namespace reverie::checkpoint {

struct Inspection {
  Manifest manifest;
  std::vector<TableImage> tables;
  std::uint64_t chunk_count = 0;
  std::uint64_t journal_position = 0;
};
// DATA_LOSS names file and place. Reads only `manifest` and `tables`, or, with `verifies`, every
// byte; see verify_checkpoint().
Result<Inspection> inspect_checkpoint(FileSystem& files, const std::string& folder, bool verifies);

// A table's options, by name, as text to show and compare.
std::vector<std::pair<std::string, std::string>> described(const TableImage& table);

struct JournalFileInspection {
  std::string name;
  std::uint64_t groups = 0;
  std::uint64_t first_record = 0;  // 0 where there is none
  std::uint64_t last_record = 0;
  std::uint64_t size_bytes = 0;
};
struct JournalInspection {
  std::vector<JournalFileInspection> files;
  std::map<std::string, std::uint64_t> records;  // how many of each kind
  std::uint64_t first_record = 0;                // 0 where there is none
  std::uint64_t last_record = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t torn_bytes = 0;  // at the end; a store drops them
};
// Inspects the folder `root`. Checks each group, and that it contains the records that it claims.
// Damaged files whose records all lie at or before `position` are left out; with that of the newest
// checkpoint, DATA_LOSS as for a store that opens the folder, with 0 also for what such a store
// ignores.
Result<JournalInspection> inspect_journal(FileSystem& files, const std::string& root,
                                          std::uint64_t position = 0);

}  // namespace reverie::checkpoint
