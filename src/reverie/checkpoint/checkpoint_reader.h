// Reads and checks a whole checkpoint, or reports what is wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/interruption.h"
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
  // Their times are nanoseconds since 1970; restore() converts them to the store's clock.
  std::vector<RestoredTable> tables;
  StoredChunks stored;
  // The last journal record that it includes; 0 if there was no journal.
  std::uint64_t journal_position = 0;
};

// DATA_LOSS names the file, the section or chunk, and its offset; UNIMPLEMENTED names an unknown
// version. Reads every byte that the checkpoint refers to.
Result<LoadedCheckpoint> read_checkpoint(FileSystem& files, const std::string& folder,
                                         Allocator& allocator = Allocator::heap(),
                                         Interruption interruption = Interruption());

// The description of a checkpoint and its tables, without items and chunks. Checks `manifest` and
// `tables`, not the chunks.
struct Summary {
  Manifest manifest;
  std::vector<TableImage> tables;
  std::uint64_t chunk_count = 0;
  std::uint64_t journal_position = 0;
};
Result<Summary> read_summary(FileSystem& files, const std::string& folder);
// The same, but checks every byte of its files, and keeps none. In files of chunks that an earlier
// release has written, bytes that no item refers to any more have no checksum.
Result<Summary> verify_checkpoint(FileSystem& files, const std::string& folder);

// The items of a table, without their rows.
struct ItemList {
  TableImage image;
  std::vector<SlotRecord> records;      // of each slot; the trajectories are empty
  std::vector<std::uint64_t> contents;  // of each slot, a hash of its rows; 0 if it is free
};
// Checks `manifest` and `tables`, not the chunks, whose checksums make the hashes.
Result<std::vector<ItemList>> read_items(FileSystem& files, const std::string& folder);

// What a store does with a table whose options differ from the checkpoint's.
enum class OnMismatch {
  kRefuse,  // FAILED_PRECONDITION, naming the difference
  kMine,    // the store's options; excess items leave by its remover
  kTheirs,  // the checkpoint's options
  kDrop,    // a table that differs, or is in only one of them, begins empty
};

// The options to open the store's tables with. With kRefuse and kMine a table that only the
// checkpoint has is an error; a table that only the store has begins empty.
Result<std::vector<TableOptions>> options_for(std::vector<TableOptions> mine,
                                              const std::vector<TableImage>& theirs,
                                              OnMismatch on_mismatch);

// Fills an unused store that was opened with options_for().
Status restore(LocalService& service, LoadedCheckpoint& loaded, OnMismatch on_mismatch);

}  // namespace reverie::checkpoint
