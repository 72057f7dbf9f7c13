// Reads a checkpoint back, whole and checked, or says what is wrong with it.
#pragma once

#include <string>
#include <vector>

#include "reverie/checkpoint/checkpoint_writer.h"
#include "reverie/checkpoint/manifest.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/table_image.h"

namespace reverie::checkpoint {

enum class CheckpointForm {
  kReverie,
  kReverb,  // dm-reverb's: the room reverb_files
};

struct LoadedCheckpoint {
  std::string folder;
  CheckpointForm form = CheckpointForm::kReverie;
  Manifest manifest;
  // Their times are still nanoseconds since 1970: restore() makes them the store's.
  std::vector<RestoredTable> tables;
  StoredChunks stored;
  // The last record of a journal that it holds; 0 where there was none.
  std::uint64_t journal_position = 0;
};

// DATA_LOSS names the file, the section or chunk, and its offset; UNIMPLEMENTED a version that is
// not known. Reads every byte that the checkpoint refers to.
Result<LoadedCheckpoint> read_checkpoint(FileSystem& files, const std::string& folder,
                                         Allocator& allocator = Allocator::heap());

// What a checkpoint says of itself and of its tables, without items and chunks. Checks `manifest`
// and `tables`, not the chunks.
struct Summary {
  Manifest manifest;
  std::vector<TableImage> tables;
  std::uint64_t chunk_count = 0;
  std::uint64_t journal_position = 0;
};
Result<Summary> read_summary(FileSystem& files, const std::string& folder);
// The same, with every byte that the checkpoint refers to checked, and none kept.
Result<Summary> verify_checkpoint(FileSystem& files, const std::string& folder);

// What a store does with a table that is not what the checkpoint says it was.
enum class OnMismatch {
  kRefuse,  // FAILED_PRECONDITION, naming the difference
  kMine,    // the store's options; items that do not fit leave by its remover
  kTheirs,  // the checkpoint's options
  kDrop,    // what differs, or is in one of the two alone, begins empty
};

// "Prioritized(priority_exponent=0.8)"
std::string component_text(const ComponentSpec& spec);

// How two tables of one name differ, for people; empty where a checkpoint of the one fits the
// other.
std::string difference(const TableOptions& mine, const TableOptions& theirs);

// The options that the store's tables are to be opened with. With kRefuse and kMine a table of the
// checkpoint that the store does not have is an error; one that only the store has begins empty.
Result<std::vector<TableOptions>> options_for(std::vector<TableOptions> mine,
                                              const std::vector<TableImage>& theirs,
                                              OnMismatch on_mismatch);

// Fills an unused store that was opened with options_for().
Status restore(LocalService& service, LoadedCheckpoint& loaded, OnMismatch on_mismatch);

}  // namespace reverie::checkpoint
