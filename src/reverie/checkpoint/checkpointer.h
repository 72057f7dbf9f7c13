// Checkpointer: the checkpoints of one store in one folder.
//
//     auto checkpointer = Checkpointer::open("/data/replay", {.keep = 3});
//     auto loaded = (*checkpointer)->load();      the newest, or none
//     (*checkpointer)->write(*store, payload)     "/data/replay/checkpoint-0000000008"
//
// It holds the folder's lock until it is destroyed or released, so that no two stores write there.
// The newest checkpoint is the one with the greatest number: they are created only by a rename, so
// each is complete. One that was damaged later is an error, and never skipped silently.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "reverie/base/mutex.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpoint_writer.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/journal.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/local_service.h"

namespace reverie::checkpoint {

struct CheckpointerOptions {
  // How many checkpoints to keep; older ones are removed once a new one is durable. At least 1.
  std::int64_t keep = 1;
  // A checkpoint to load if the folder has none; "": then the store is empty.
  std::string fallback = "";
  OnMismatch on_mismatch = OnMismatch::kRefuse;
  // The journal for changes between checkpoints, for tables without their own setting.
  JournalOptions journal = {.durability = Durability::kNone};
  FileSystem* files = nullptr;                 // null: the machine's; outlives the checkpointer
  Interruption interruption = Interruption();  // of open_store(), while it loads
};

// Thread-safe. One checkpoint is written at a time; other callers wait.
class Checkpointer {
 public:
  // `path`: a folder of checkpoints, which is created if it does not exist; or one checkpoint in
  // it, which load() then uses. INVALID_ARGUMENT for a file, FAILED_PRECONDITION for a folder that
  // another store uses, PERMISSION_DENIED for one that cannot be written to.
  static Result<std::unique_ptr<Checkpointer>> open(const std::string& path,
                                                    CheckpointerOptions options);

  const std::string& root() const { return place_.root; }
  const CheckpointerOptions& options() const { return options_; }

  // The checkpoint to begin with, if there is one; `allocator` is for its chunks. If the
  // folder has none of ours, dm-reverb's newest there (reverb_files) is preferred to the
  // fallback.
  Result<std::optional<LoadedCheckpoint>> load(Allocator& allocator = Allocator::heap());
  // Opens a store of these tables with the contents of that checkpoint, and of the journal after
  // it. `loaded`, if not null, becomes the path of that checkpoint, or "". With a journal, a store
  // that differs from what is on the disk begins by writing a checkpoint.
  Result<std::shared_ptr<LocalService>> open_store(std::vector<TableOptions> tables,
                                                   const StoreOptions& options,
                                                   std::string* loaded = nullptr);
  // The user's payload of the checkpoint that open_store() began with. Fixed once open_store() has
  // returned, so it never waits for a checkpoint that is being written.
  const std::vector<std::byte>& loaded_payload() const { return loaded_payload_; }

  // Writes all of the store's tables, as they are at one moment, and removes all but the `keep`
  // newest checkpoints. Ok once it is durable. CANCELLED soon after `is_cancelled` becomes true.
  Result<Written> write(LocalService& store, std::span<const std::byte> payload,
                        const std::atomic<bool>* is_cancelled = nullptr);

  // Releases the folder, so that another store may use it. Waits for a checkpoint that is being
  // written; nothing is written afterwards.
  void release();

  // The path of the newest checkpoint, if there is one.
  Result<std::optional<std::string>> latest();

 private:
  Checkpointer(FileSystem& files, Place place, CheckpointerOptions options,
               std::unique_ptr<FileLock> lock)
      : files_(files),
        place_(std::move(place)),
        options_(std::move(options)),
        lock_(std::move(lock)) {}
  void remove_old(std::uint64_t newest) REVERIE_REQUIRES(mutex_);
  // FAILED_PRECONDITION if the folder's journal does not belong to the checkpoint.
  Status check_place(const std::vector<TableOptions>& tables) const;
  Status open_journal(LocalService& store, std::uint64_t position);
  Result<Written> write_locked(LocalService& store, std::span<const std::byte> payload,
                               const std::atomic<bool>& is_cancelled) REVERIE_REQUIRES(mutex_);

  FileSystem& files_;
  const Place place_;
  const CheckpointerOptions options_;
  Mutex mutex_;
  std::unique_ptr<FileLock> lock_ REVERIE_GUARDED_BY(mutex_);  // null once the folder was released
  StoredChunks stored_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::byte> loaded_payload_;
  // The end of a journal that was replayed and is not continued.
  std::uint64_t journal_position_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie::checkpoint
