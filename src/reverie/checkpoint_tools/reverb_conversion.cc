// Tested in tests/integration/reverb_checkpoint_test.cc.
#include "reverie/checkpoint_tools/reverb_conversion.h"

#include <utility>

#include "reverie/base/clock.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint_tools/inspection.h"
#include "reverie/reverb_files/reverb_checkpoint.h"

namespace reverie::checkpoint {
namespace {

using reverb_files::newest_reverb_checkpoint;
using reverb_files::read_reverb_checkpoint;
using reverb_files::write_reverb_checkpoint;

std::uint64_t items_of(const LoadedCheckpoint& loaded) {
  std::uint64_t items = 0;
  for (const RestoredTable& table : loaded.tables) {
    for (const Trajectory& trajectory : table.trajectories) items += trajectory.empty() ? 0 : 1;
  }
  return items;
}

Status has_checkpoints(const std::string& target) {
  return failed_precondition("'{}' holds checkpoints already; give a new folder", target);
}

Result<std::string> write_native(FileSystem& files, LoadedCheckpoint& loaded,
                                 const std::string& target) {
  CheckpointerOptions options;
  options.files = &files;
  REVERIE_ASSIGN_OR_RETURN(const auto checkpointer, Checkpointer::open(target, options));
  REVERIE_ASSIGN_OR_RETURN(const auto there, checkpointer->latest());
  if (there) return has_checkpoints(target);
  std::vector<TableOptions> tables;
  for (const RestoredTable& table : loaded.tables) tables.push_back(table.image.options);
  REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<LocalService> store,
                           LocalService::open(std::move(tables), {}));
  REVERIE_RETURN_IF_ERROR(restore(*store, loaded, OnMismatch::kTheirs));
  REVERIE_ASSIGN_OR_RETURN(const Written written, checkpointer->write(*store, {}));
  return written.folder;
}

// If a journal continues a checkpoint, that is not the last state of its store.
Status check_journal(FileSystem& files, const LoadedCheckpoint& loaded) {
  const std::string root = parent_path(loaded.folder);
  // It continues the newest one; an older one was asked for by its name.
  REVERIE_ASSIGN_OR_RETURN(const std::string newest, newest_checkpoint(files, root));
  if (newest != loaded.folder) return {};
  REVERIE_ASSIGN_OR_RETURN(const JournalInspection journal,
                           inspect_journal(files, root, loaded.journal_position));
  if (journal.last_record <= loaded.journal_position) return {};
  return failed_precondition(
      "the journal in '{}' continues after the checkpoint, up to record {}; open a store with that "
      "folder, let it write a checkpoint, and convert that one",
      root, journal.last_record);
}

}  // namespace

Result<ConvertedCheckpoint> convert_checkpoint(FileSystem& files, const std::string& source,
                                               const std::string& target,
                                               const std::function<bool()>& interrupted) {
  const Interruption interruption(interrupted);
  ConvertedCheckpoint converted;
  REVERIE_ASSIGN_OR_RETURN(const auto reverb, newest_reverb_checkpoint(files, source));
  Result<std::string> ours = newest_checkpoint(files, source);
  if (ours.ok() || !reverb) {
    if (!ours.ok()) return ours.status();
    REVERIE_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, read_checkpoint(files, *ours));
    REVERIE_RETURN_IF_ERROR(check_journal(files, loaded));
    REVERIE_ASSIGN_OR_RETURN(const auto there, newest_reverb_checkpoint(files, target));
    if (there) return has_checkpoints(target);
    converted.from = *ours;
    converted.form = CheckpointForm::kReverb;
    converted.tables = loaded.tables.size();
    converted.items = items_of(loaded);
    REVERIE_ASSIGN_OR_RETURN(converted.to, write_reverb_checkpoint(loaded.tables, files, target,
                                                                   calendar_ns(), interruption));
    return converted;
  }
  LoadedCheckpoint loaded;
  loaded.folder = *reverb;
  REVERIE_ASSIGN_OR_RETURN(loaded.tables,
                           read_reverb_checkpoint(files, *reverb, Allocator::heap(), interruption));
  if (interrupted && interrupted())
    return cancelled("the call was interrupted; nothing was written");
  converted.from = *reverb;
  converted.tables = loaded.tables.size();
  converted.items = items_of(loaded);
  REVERIE_ASSIGN_OR_RETURN(converted.to, write_native(files, loaded, target));
  return converted;
}

}  // namespace reverie::checkpoint
