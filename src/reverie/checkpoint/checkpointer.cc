// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/checkpointer.h"

#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/log.h"

namespace reverie::checkpoint {

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

Result<std::optional<LoadedCheckpoint>> Checkpointer::load() {
  std::string folder;
  if (place_.number) {
    folder = join_path(place_.root, checkpoint_name(*place_.number));
  } else {
    REVERIE_ASSIGN_OR_RETURN(const auto newest, latest());
    if (newest) {
      folder = *newest;
    } else if (!options_.fallback.empty()) {
      auto fallback = newest_checkpoint(files_, options_.fallback);
      if (!fallback.ok()) return fallback.status().with_context("fallback");
      folder = std::move(*fallback);
    } else {
      return std::optional<LoadedCheckpoint>();
    }
  }
  REVERIE_ASSIGN_OR_RETURN(LoadedCheckpoint loaded, read_checkpoint(files_, folder));
  return std::optional(std::move(loaded));
}

Result<std::shared_ptr<LocalService>> Checkpointer::open_store(std::vector<TableOptions> tables,
                                                               StoreOptions options,
                                                               std::string* folder) {
  if (folder != nullptr) folder->clear();
  REVERIE_ASSIGN_OR_RETURN(std::optional<LoadedCheckpoint> loaded, load());
  if (!loaded) return LocalService::open(std::move(tables), options);
  std::vector<TableImage> images;
  for (const RestoredTable& table : loaded->tables) images.push_back(table.image);
  auto resolved = options_for(std::move(tables), images, options_.on_mismatch);
  if (!resolved.ok()) {
    return resolved.status().with_context(format("checkpoint '{}'", loaded->folder));
  }
  REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<LocalService> store,
                           LocalService::open(std::move(*resolved), options));
  REVERIE_RETURN_IF_ERROR(restore(*store, *loaded, options_.on_mismatch));
  const MutexLock lock(mutex_);
  stored_ = std::move(loaded->stored);
  loaded_payload_ = std::move(loaded->manifest.payload);
  if (folder != nullptr) *folder = loaded->folder;
  return store;
}

std::vector<std::byte> Checkpointer::loaded_payload() {
  const MutexLock lock(mutex_);
  return loaded_payload_;
}

Result<Written> Checkpointer::write(LocalService& store, std::span<const std::byte> payload,
                                    const std::atomic<bool>* is_cancelled) {
  static const std::atomic<bool> kNever{false};
  const MutexLock lock(mutex_);
  if (!lock_) return cancelled("the store is closed, and '{}' was let go", place_.root);
  REVERIE_ASSIGN_OR_RETURN(const auto numbers, checkpoints(files_, place_.root));
  const WriteRequest request{
      files_,  place_.root,   numbers.empty() ? 1 : numbers.back() + 1,
      payload, calendar_ns(), is_cancelled != nullptr ? *is_cancelled : kNever};
  // What an earlier failure could not remove.
  REVERIE_RETURN_IF_ERROR(remove_temporaries(files_, place_.root));
  REVERIE_ASSIGN_OR_RETURN(Written written, write_checkpoint(store, request, stored_));
  remove_old(request.number);
  return written;
}

// The new checkpoint is durable: what goes wrong here is told, and tried again the next time.
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
