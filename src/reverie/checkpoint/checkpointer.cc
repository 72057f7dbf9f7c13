// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/checkpointer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/log.h"
#include "reverie/checkpoint/journal_replay.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/record/table_difference.h"
#include "reverie/reverb_files/reverb_checkpoint.h"
#include "reverie/service/blocking.h"

namespace reverie::checkpoint {
namespace {

// Whether changes of any of these tables are logged.
bool is_logged(const std::vector<TableOptions>& tables, Durability other) {
  return std::ranges::any_of(tables, [&](const TableOptions& table) {
    return table.durability.value_or(other) != Durability::kNone;
  });
}

}  // namespace

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(const std::string& path,
                                                         CheckpointerOptions options) {
  if (options.keep < 1) {
    return invalid_argument("keep is {}; it must be at least 1, the checkpoint that was written",
                            options.keep);
  }
  FileSystem& files = options.files != nullptr ? *options.files : FileSystem::system();
  REVERIE_ASSIGN_OR_RETURN(Place place, place_of(files, path));
  REVERIE_RETURN_IF_ERROR(create_folders(files, place.root));
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock,
                           files.lock(join_path(place.root, kLockName)));
  REVERIE_RETURN_IF_ERROR(remove_temporaries(files, place.root));
  return std::unique_ptr<Checkpointer>(
      new Checkpointer(files, std::move(place), std::move(options), std::move(lock)));
}

Result<std::optional<LoadedCheckpoint>> Checkpointer::load(Allocator& allocator) {
  std::string folder;
  if (place_.number) {
    folder = join_path(place_.root, checkpoint_name(*place_.number));
  } else {
    REVERIE_ASSIGN_OR_RETURN(const auto newest, latest());
    REVERIE_ASSIGN_OR_RETURN(auto reverb,
                             reverb_files::newest_reverb_checkpoint(files_, place_.root));
    if (!newest && !reverb && !options_.fallback.empty()) {
      REVERIE_ASSIGN_OR_RETURN(reverb,
                               reverb_files::newest_reverb_checkpoint(files_, options_.fallback));
    }
    if (newest) {
      folder = *newest;
    } else if (reverb) {
      LoadedCheckpoint loaded;
      loaded.folder = *reverb;
      loaded.form = CheckpointForm::kReverb;
      REVERIE_ASSIGN_OR_RETURN(
          loaded.tables,
          reverb_files::read_reverb_checkpoint(files_, *reverb, allocator, options_.interruption));
      return std::optional(std::move(loaded));
    } else if (!options_.fallback.empty()) {
      auto fallback = newest_checkpoint(files_, options_.fallback);
      if (!fallback.ok()) return fallback.status().with_context("fallback");
      folder = std::move(*fallback);
    } else {
      return std::optional<LoadedCheckpoint>();
    }
  }
  REVERIE_ASSIGN_OR_RETURN(LoadedCheckpoint loaded,
                           read_checkpoint(files_, folder, allocator, options_.interruption));
  return std::optional(std::move(loaded));
}

Result<std::shared_ptr<LocalService>> Checkpointer::open_store(std::vector<TableOptions> tables,
                                                               const StoreOptions& options,
                                                               std::string* folder) {
  if (folder != nullptr) folder->clear();
  REVERIE_RETURN_IF_ERROR(check_place(tables));
  // Bounds the memory of what is loaded; the store makes its own.
  REVERIE_RETURN_IF_ERROR(ChunkHolders::make(tables, options.memory).status());
  Allocator& allocator =
      options.memory ? static_cast<Allocator&>(*options.memory) : Allocator::heap();
  REVERIE_ASSIGN_OR_RETURN(std::optional<LoadedCheckpoint> loaded, load(allocator));
  if (!loaded) {
    REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<LocalService> store,
                             LocalService::open(std::move(tables), options));
    REVERIE_RETURN_IF_ERROR(open_journal(*store, 0));
    return store;
  }
  std::vector<TableImage> images;
  for (const RestoredTable& table : loaded->tables) images.push_back(table.image);
  auto resolved = options_for(std::move(tables), images, options_.on_mismatch);
  if (!resolved.ok()) {
    return resolved.status().with_context(format("checkpoint '{}'", loaded->folder));
  }
  const bool is_from_elsewhere =
      parent_path(loaded->folder) != place_.root || loaded->form == CheckpointForm::kReverb;
  bool is_as_stored = !is_from_elsewhere && resolved->size() == images.size();
  for (const TableOptions& table : *resolved) {
    const bool is_same = std::any_of(images.begin(), images.end(), [&](const TableImage& image) {
      return image.options.name == table.name && table_difference(table, image.options).empty();
    });
    is_as_stored = is_as_stored && is_same;
  }
  REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<LocalService> store,
                           LocalService::open(std::move(*resolved), options));
  REVERIE_RETURN_IF_ERROR(restore(*store, *loaded, options_.on_mismatch));
  {
    const MutexLock lock(mutex_);
    stored_ = std::move(loaded->stored);
  }
  loaded_payload_ = std::move(loaded->manifest.payload);
  REVERIE_RETURN_IF_ERROR(open_journal(*store, is_from_elsewhere ? 0 : loaded->journal_position));
  if (store->log() != nullptr && !is_as_stored) {
    REVERIE_RETURN_IF_ERROR(write(*store, loaded_payload_).status());
  }
  if (folder != nullptr) *folder = loaded->folder;
  return store;
}

Status Checkpointer::check_place(const std::vector<TableOptions>& tables) const {
  if (!place_.number) return {};
  REVERIE_ASSIGN_OR_RETURN(const auto numbers, checkpoints(files_, place_.root));
  if (!numbers.empty() && numbers.back() == *place_.number) return {};
  REVERIE_ASSIGN_OR_RETURN(const auto journal, journal_files(files_, place_.root));
  if (!is_logged(tables, options_.journal.durability) && journal.empty()) return {};
  return failed_precondition(
      "'{}' is not the newest checkpoint of '{}', whose journal continues from that one; give the "
      "folder, or copy this checkpoint into a folder of its own to go back to it",
      join_path(place_.root, checkpoint_name(*place_.number)), place_.root);
}

Status Checkpointer::open_journal(LocalService& store, std::uint64_t position) {
  REVERIE_ASSIGN_OR_RETURN(const Replayed replayed, replay_journal(files_, place_.root, position,
                                                                   store, options_.interruption));
  if (replayed.dropped_bytes > 0) {
    log_warning("the journal in '{}' ends with {} bytes of an interrupted write; they are dropped",
                place_.root, replayed.dropped_bytes);
  }
  std::vector<SessionNumbers> sessions;
  for (const auto& [session, in] : replayed.sessions) sessions.push_back({session, in});
  store.set_known_sessions(std::move(sessions));
  const auto undo_draws = [&] {
    for (const auto& [table, draws] : replayed.open_draws) {
      if (draws.empty()) continue;
      SampleBatch batch = draws.batch();
      batch.set_all_redelivered();  // their readers may have them
      (void)store.hand_back(table, batch);
    }
  };
  std::vector<TableOptions> tables;
  REVERIE_ASSIGN_OR_RETURN(const std::vector<TableInfo> infos, info_and_wait(store));
  tables.reserve(infos.size());
  for (const TableInfo& info : infos) tables.push_back(info.options);
  if (!is_logged(tables, options_.journal.durability)) {
    undo_draws();
    const MutexLock lock(mutex_);
    journal_position_ = replayed.last_record;
    return {};
  }
  auto journal = std::make_unique<Journal>(files_, place_.root, options_.journal, tables,
                                           store.calendar_offset_ns(), replayed);
  REVERIE_RETURN_IF_ERROR(journal->start());
  store.set_log(std::move(journal));
  undo_draws();
  return {};
}

Result<Written> Checkpointer::write(LocalService& store, std::span<const std::byte> payload,
                                    const std::atomic<bool>* is_cancelled) {
  const std::atomic<bool> never{false};
  const MutexLock lock(mutex_);
  if (!lock_) return cancelled("the store is closed, and '{}' was let go", place_.root);
  Result<Written> written = no_memory_to_write();
  try {
    written = write_locked(store, payload, is_cancelled != nullptr ? *is_cancelled : never);
  } catch (const std::bad_alloc&) {
    // What it has left is removed when the next one begins.
  }
  if (StoreLog* const log = store.log()) log->end_checkpoint(written.ok());
  return written;
}

Result<Written> Checkpointer::write_locked(LocalService& store, std::span<const std::byte> payload,
                                           const std::atomic<bool>& is_cancelled) {
  REVERIE_ASSIGN_OR_RETURN(const auto numbers, checkpoints(files_, place_.root));
  // Behind that of `stored_` too, whose folder someone may have removed: its files are known by its
  // name, and another folder of that name has others.
  const std::string_view known = stored_.folder;
  const std::uint64_t last =
      std::max(numbers.empty() ? 0 : numbers.back(),
               checkpoint_number(known.substr(known.rfind('/') + 1)).value_or(0));
  const WriteRequest request{files_,        place_.root,  last + 1,         payload,
                             calendar_ns(), is_cancelled, journal_position_};
  // Removes files that an earlier failure could not remove.
  REVERIE_RETURN_IF_ERROR(remove_temporaries(files_, place_.root));
  REVERIE_ASSIGN_OR_RETURN(Written written, write_checkpoint(store, request, stored_));
  remove_old(request.number);
  return written;
}

// The new checkpoint is durable: errors here are logged, and the removal is repeated the next time.
void Checkpointer::remove_old(std::uint64_t newest) {
  auto numbers = checkpoints(files_, place_.root);
  Status status = numbers.status();
  if (status.ok()) {
    std::int64_t left = static_cast<std::int64_t>(numbers->size());
    for (const std::uint64_t number : *numbers) {
      if (left-- <= options_.keep || number >= newest) break;
      status = remove_checkpoint(files_, place_.root, number);
      if (!status.ok()) break;
    }
  }
  // The journal does not continue: the checkpoint contains all of it.
  if (status.ok() && journal_position_ > 0) {
    const auto journal = journal_files(files_, place_.root);
    status = journal.status();
    for (std::size_t i = 0; status.ok() && i < journal->size(); ++i) {
      status = files_.remove_file(join_path(place_.root, journal_name((*journal)[i])));
    }
  }
  if (!status.ok()) {
    log_warning("old checkpoints in '{}' stay: {}", place_.root, status.message());
  }
}

void Checkpointer::release() {
  const MutexLock lock(mutex_);
  lock_.reset();
}

Result<std::optional<std::string>> Checkpointer::latest() {
  REVERIE_ASSIGN_OR_RETURN(const auto numbers, checkpoints(files_, place_.root));
  if (numbers.empty()) return std::optional<std::string>();
  return std::optional(join_path(place_.root, checkpoint_name(numbers.back())));
}

}  // namespace reverie::checkpoint
