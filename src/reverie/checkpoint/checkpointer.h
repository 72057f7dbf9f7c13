// Checkpointer: the checkpoints of one store in one folder.
//
//     auto checkpointer = Checkpointer::open("/data/replay", {.keep = 3});
//     auto loaded = (*checkpointer)->load();      the newest, or none
//     (*checkpointer)->write(*store, payload)     "/data/replay/checkpoint-0000000008"
//
// It holds the folder's lock until it ends or lets it go, so that no two stores write there. The
// newest checkpoint is the one with the greatest number: they come into being by rename alone, so
// each is complete. One that was damaged since is an error, never skipped in silence.
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
  // Checkpoints that stay; older ones go once a new one is durable. At least 1.
  std::int64_t keep = 1;
  // A checkpoint to begin with where the folder has none; "" for an empty store then.
  std::string fallback = "";
  OnMismatch on_mismatch = OnMismatch::kRefuse;
  // What is kept of changes between checkpoints, of tables that say nothing of their own.
  JournalOptions journal = {.durability = Durability::kNone};
  FileSystem* files = nullptr;  // the machine's when null; outlives the checkpointer
};

// Thread-safe. One checkpoint is written at a time; other callers wait.
class Checkpointer {
 public:
  // `path`: a folder of checkpoints, which is made if it is not there; or one checkpoint of it,
  // that load() is to take. INVALID_ARGUMENT for a file, FAILED_PRECONDITION for a folder that
  // another store has, PERMISSION_DENIED for one that cannot be written to.
  static Result<std::unique_ptr<Checkpointer>> open(const std::string& path,
                                                    CheckpointerOptions options);

  const std::string& root() const { return place_.root; }
  const CheckpointerOptions& options() const { return options_; }

  // The checkpoint to begin with, if there is one; its chunks from `allocator`. Where the folder
  // has none of ours, the newest of dm-reverb's there (reverb_files) goes before the
  // fallback.
  Result<std::optional<LoadedCheckpoint>> load(Allocator& allocator = Allocator::heap());
  // A store of these tables, with what the checkpoint to begin with holds, and what the journal
  // holds beyond. `loaded`, if not null, becomes the path of that checkpoint, or "". With a journal
  // a store that is not what the disk holds begins with a checkpoint of its own.
  Result<std::shared_ptr<LocalService>> open_store(std::vector<TableOptions> tables,
                                                   const StoreOptions& options,
                                                   std::string* loaded = nullptr);
  // The user's payload of the checkpoint that open_store() began with.
  std::vector<std::byte> loaded_payload();

  // Writes all of the store's tables, as they are at one moment, and removes what is older than the
  // `keep` newest. Ok once it is durable. CANCELLED soon after `is_cancelled` becomes true.
  Result<Written> write(LocalService& store, std::span<const std::byte> payload,
                        const std::atomic<bool>* is_cancelled = nullptr);

  // Releases the folder, so that another store may use it. Waits for what is being written; nothing
  // is written afterwards.
  void release();

  // The path of the newest one, if there is one.
  Result<std::optional<std::string>> latest();

 private:
  Checkpointer(FileSystem& files, Place place, CheckpointerOptions options,
               std::unique_ptr<FileLock> lock)
      : files_(files),
        place_(std::move(place)),
        options_(std::move(options)),
        lock_(std::move(lock)) {}
  void remove_old(std::uint64_t newest) REVERIE_REQUIRES(mutex_);
  // FAILED_PRECONDITION for a checkpoint that the folder's journal is not of.
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
  std::vector<std::byte> loaded_payload_ REVERIE_GUARDED_BY(mutex_);
  // The end of a journal that was replayed and does not go on.
  std::uint64_t journal_position_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie::checkpoint
