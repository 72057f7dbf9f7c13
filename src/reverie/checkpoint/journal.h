// Journal: puts changes of a store since its last checkpoint on the disk, before confirming them.
//
//     tables --(records, under their locks)--> buffer --(one write a group)--> journal-N
//                                                     \-(one sync a group)     kSync
//                                                     \-(a sync an interval)   kInterval
//     kInterval:   buffer --> ring, a file in memory: confirmed at once, written later
//
// A thread writes, and with kSync syncs, the records that came during its last write, as one group
// unless they are very large, and then confirms all of them: callers continue meanwhile, and share
// writes and syncs. A caller that only waits for its confirmation writes for all by itself, if no
// thread is writing: two threads less have to wake up.
//
// With kInterval a caller puts its records into the ring (journal_ring.h), where a kill leaves
// them: they are confirmed on its own thread. The thread writes them once a sixteenth of it is
// in use, and another one writes and syncs periodically. Where the ring has no room, or the file
// system no ring, confirmations wait for the thread, as with kSync. And while the disk is so slow
// that twice the interval lies between the oldest unsynced change and the newest, they wait for a
// sync: a power cut loses no changes that were made further apart.
//
// Tables may differ (TableOptions::durability). Those with kNone are not logged. If some have
// kInterval and some kSync, that other thread also syncs when a confirmation for kSync needs it:
// confirmations for kInterval do not wait for that.
//
// A write or a sync that fails ends the journal, and so does a lack of memory for a record: nothing
// more is confirmed, and the next successful checkpoint begins a new journal. Sampling continues.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/start_thread.h"
#include "reverie/checkpoint/journal_records.h"
#include "reverie/checkpoint/journal_replay.h"
#include "reverie/checkpoint/open_draws.h"
#include "reverie/durable_files/journal_ring.h"
#include "reverie/durable_files/unsynced_window.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/store_log.h"

namespace reverie::checkpoint {

using reverie::Durability;

struct JournalOptions {
  // The durability of tables without their own setting. kNone: these are not logged.
  Durability durability = Durability::kSync;
  // With kInterval a sync begins so long after the last one did, or once that has ended.
  Duration interval = std::chrono::milliseconds(100);
  // The size of the ring, for tables with kInterval. 0: none.
  std::size_t ring_bytes = std::size_t{4} << 20;
  // Beyond this size the next file begins, at the end of a group. Files may therefore be longer, by
  // a group, but never longer than kJournalFileBytesMax: start() checks that.
  std::uint64_t file_bytes_max = std::uint64_t{64} << 20;
  // Beyond this size the next group begins, at the end of a change; and beyond twice the largest
  // change of the group, since each file repeats the chunks to which its changes refer.
  std::uint64_t group_bytes_max = std::uint64_t{1} << 30;
  // An item whose chunks take more is refused: all are in one file.
  std::uint64_t item_bytes_max = std::uint64_t{8} << 30;
  // Beyond this size of all files, changes that need a confirmation are refused until a checkpoint
  // replaces them. Only samples, and what was requested before, are still added. A multiple of
  // WorkerOptions::every_journal_bytes, so that a checkpoint of a large store has time enough.
  std::uint64_t size_bytes_max = std::uint64_t{16} << 30;
  // False: no threads, for a simulated disk that one thread uses: the caller writes and, with
  // kSync, syncs.
  bool has_thread = true;
};

// Thread-safe.
class Journal final : public StoreLog {
 public:
  // Continues after what was replayed, in a folder that is locked for this store. `files` outlives
  // it.
  Journal(FileSystem& files, std::string root, JournalOptions options,
          const std::vector<TableOptions>& tables, std::int64_t calendar_offset_ns,
          const Replayed& replayed);
  // Ends the threads, also those of a start() that failed.
  ~Journal() override;

  // Starts the threads, before the first use. RESOURCE_EXHAUSTED if the system has no more of them,
  // INVALID_ARGUMENT if files could become too long to be read; then the journal may only be
  // destroyed.
  Status start();

  bool keeps(std::uint32_t table) const override { return durability_[table] != Durability::kNone; }
  Status check() override;
  Status admit() override;
  Status prepare(std::span<const Item> items) override;
  void on_insert(std::uint32_t table, TimePoint now, const LoggedInsert& item) override;
  void on_update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
                 std::span<const double> priorities) override;
  void on_erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys) override;
  void on_corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws) override;
  void on_sample(std::uint32_t table, TimePoint now, const SampleBatch& batch, std::size_t begin,
                 SampleKind kind) override;
  void on_take_back(std::uint32_t table, TimePoint now, const SampleBatch& batch, std::size_t begin,
                    std::size_t end, std::size_t count, bool by_item) override;
  void on_reset(std::uint32_t table, TimePoint now) override;
  void on_settle(std::string_view session, std::uint64_t below) override;
  void on_receive(std::uint32_t table, std::span<const DrawId> draws) override;
  std::uint64_t position() override { return last_record_.load(std::memory_order_acquire); }
  bool is_durable(std::uint32_t table, std::uint64_t position) override;
  void confirm(std::uint32_t table, std::uint64_t position, Caller caller, Confirmed done) override;
  bool confirms_later() const override { return options_.has_thread; }
  void close() override;
  bool is_own_thread() const override {
    return own_thread_.is_current() || own_sync_thread_.is_current();
  }
  std::uint64_t cut() override;
  Status before_publish() override;
  void end_checkpoint(bool is_written) override;
  std::uint64_t size_bytes() override { return bytes_.load(std::memory_order_relaxed); }

  // Writes the buffer, and syncs, as the thread does periodically.
  Status sync();
  // The number of syncs so far.
  std::uint64_t sync_count() const { return syncs_.load(std::memory_order_relaxed); }

 private:
  // Records of one file that are not written yet: a group, whose header is still blank.
  struct Pending {
    std::uint64_t file = 0;
    std::uint64_t first = 0;
    std::uint32_t count = 0;
    std::vector<std::byte> bytes = {};
    std::vector<LateRows> late = {};  // what the bytes lack
    bool has_lost_rows = false;       // a disk could not read rows back
    // The bytes of one group or more, with their headers, if they are in the ring.
    std::span<const std::byte> in_ring = {};
  };
  struct Waiter {
    std::uint64_t position = 0;
    Confirmed done;
  };

  // All tables have kSync: the thread that writes a group syncs it.
  bool syncs_groups() const { return !has_unsynced_; }
  // How far a confirmation waits for its record.
  enum Stage : std::size_t {
    kWritten,  // or in the ring; and synced while the window is full
    kSynced
  };

  Stage stage_of(std::uint32_t table) const {
    return durability_[table] == Durability::kSync ? kSynced : kWritten;
  }
  std::uint64_t reached(Stage stage) const {
    return (stage == kSynced ? synced_ : kept_).load(std::memory_order_acquire);
  }
  // All records up to this one are on the disk.
  void note_synced(std::uint64_t record) REVERIE_REQUIRES(mutex_);
  // Confirms what may be confirmed without a sync.
  void update_kept() REVERIE_REQUIRES(mutex_);
  bool waits_for_sync() const REVERIE_REQUIRES(mutex_) {
    return window_.is_full() && !waiters_[kWritten].empty();
  }
  // Whether the confirming thread can do anything for those who wait.
  bool can_confirm() const REVERIE_REQUIRES(mutex_);
  // Calls `step` under the lock. The journal fails if there is no memory for what it records.
  template <typename Step>
  void locked(Step step) REVERIE_EXCLUDES(mutex_);
  // Adds a record with `write`, unless the journal has failed.
  template <typename Write>
  void record_locked(Write write) REVERIE_REQUIRES(mutex_);
  // The same for a change of a table, which kInterval counts from `now`.
  template <typename Write>
  void change_locked(TimePoint now, Write write) REVERIE_REQUIRES(mutex_);
  template <typename Write>
  void change(TimePoint now, Write write);
  // Moves the writer's records to the pending ones.
  void take_records() REVERIE_REQUIRES(mutex_);
  // Puts the writer's records, at least one, into the ring. False if that would not confirm them,
  // or there is no room.
  bool put_in_ring() REVERIE_REQUIRES(mutex_);
  void end_group() REVERIE_REQUIRES(mutex_);
  // Whether no further change may join the writer's records.
  bool is_group_full() const REVERIE_REQUIRES(mutex_) {
    return writer_.size_bytes() >= std::max(options_.group_bytes_max, 2 * largest_change_);
  }
  // Whether the thread should write what is in the ring.
  bool is_ring_due() const REVERIE_REQUIRES(mutex_);
  // Begins a group with room for its header.
  void begin_group() REVERIE_REQUIRES(mutex_);
  void begin_file() REVERIE_REQUIRES(mutex_);
  // Forgets records that are not written. Takes no memory.
  void drop_records() REVERIE_REQUIRES(mutex_);

  Status write_pending(bool syncs) REVERIE_EXCLUDES(mutex_) REVERIE_REQUIRES(io_mutex_);
  // The same; throws std::bad_alloc.
  Status write_groups(bool syncs) REVERIE_EXCLUDES(mutex_) REVERIE_REQUIRES(io_mutex_);
  // Fills in the header of a group, whose bytes these are.
  void complete_header(const Pending& pending, bool syncs, std::span<std::byte> bytes);
  Status write_group(Pending& pending, bool syncs) REVERIE_REQUIRES(io_mutex_);
  Status open_file(std::uint64_t number) REVERIE_REQUIRES(io_mutex_);
  // Writes pending records and syncs, also with kInterval.
  Status write_and_sync() REVERIE_EXCLUDES(mutex_) REVERIE_REQUIRES(io_mutex_);
  // Removes the files up to this number.
  Status remove_files(std::uint64_t last) REVERIE_REQUIRES(io_mutex_);
  // What callers get then.
  static Status failure(const Status& why);
  void fail(const Status& status);
  // The same where there is no memory; also if a checkpoint is about to end an earlier failure.
  void fail_without_memory() REVERIE_REQUIRES(mutex_);
  void end_records(const Status& failed) REVERIE_REQUIRES(mutex_);
  // Completes the waiters whose records are durable now, or all once the journal has failed.
  void complete_waiters();
  void complete_waiters(Stage stage);
  // Has a thread call `done`, which it takes, once the record is durable. False if it is durable,
  // or can never be.
  bool wait_for(Stage stage, std::uint64_t position, Confirmed& done) REVERIE_EXCLUDES(mutex_);
  // Has the threads do that, for a caller who holds a lock.
  void wake_threads();
  // The bodies of the threads: run() confirms; with kInterval another one syncs.
  void run();
  void run_syncs();

  FileSystem& files_;
  const std::string root_;
  const JournalOptions options_;
  const std::vector<Durability> durability_;  // of each table
  const bool has_unsynced_;                   // a table has kInterval
  const Status no_memory_;
  ForkGuard fork_guard_;

  Mutex mutex_;
  CondVar changed_;
  CondVar sync_wanted_;
  bool is_idle_ REVERIE_GUARDED_BY(mutex_) = false;  // the confirming thread sleeps
  RecordWriter writer_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Pending> pending_ REVERIE_GUARDED_BY(mutex_);
  std::unique_ptr<JournalRing> ring_ REVERIE_GUARDED_BY(mutex_);  // may be null
  // The last record of a group that waited for a write: until that is done, those after it wait
  // too.
  std::uint64_t last_outside_ring_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<Waiter> waiters_[2] REVERIE_GUARDED_BY(mutex_);    // by Stage, roughly by position
  UnsyncedWindow window_ REVERIE_GUARDED_BY(mutex_);             // for kInterval
  std::uint64_t largest_change_ REVERIE_GUARDED_BY(mutex_) = 0;  // of the writer's group
  std::uint64_t file_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::uint64_t file_ REVERIE_GUARDED_BY(mutex_);           // of new records
  std::atomic<std::uint64_t> bytes_;                        // since the last checkpoint
  std::uint64_t cut_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // since the last cut
  std::uint64_t cut_file_ REVERIE_GUARDED_BY(mutex_) = 0;   // the last file before the cut
  std::uint64_t cut_position_ REVERIE_GUARDED_BY(mutex_) = 0;
  // The file after the cut must begin with what the checkpoint lacks: open draws and sessions.
  bool cut_has_more_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<std::string, NumberSet, std::less<>> sessions_ REVERIE_GUARDED_BY(mutex_);
  std::vector<OpenDraws> open_draws_ REVERIE_GUARDED_BY(mutex_);  // of each table
  // Why nothing is confirmed any more.
  Status failed_ REVERIE_GUARDED_BY(mutex_);
  std::atomic<bool> has_failed_{false};  // whether it is not ok
  // Failed, but a checkpoint that ends the failure is being written: records are kept, not written.
  bool is_recovering_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  std::atomic<std::uint64_t> last_record_;
  std::atomic<std::uint64_t> written_;
  std::atomic<std::uint64_t> in_ring_{0};  // all records up to this one are written or in the ring
  std::atomic<std::uint64_t> kept_;        // as far as kInterval confirms
  std::atomic<std::uint64_t> synced_;
  std::atomic<std::uint64_t> syncs_{0};

  // Held by the thread that writes, for as long as the disk takes. A call that may have Python's
  // interpreter lock in hand only tries to take this one: confirm(). Taken before mutex_.
  Mutex io_mutex_;
  std::unique_ptr<File> open_ REVERIE_GUARDED_BY(io_mutex_);
  std::uint64_t open_number_ REVERIE_GUARDED_BY(io_mutex_) = 0;
  std::vector<std::byte> spare_ REVERIE_GUARDED_BY(io_mutex_);   // memory for the next group
  std::vector<std::byte> joined_ REVERIE_GUARDED_BY(io_mutex_);  // a group with its late rows

  std::thread thread_;
  std::thread sync_thread_;
  OwnThread own_thread_;
  OwnThread own_sync_thread_;
};

// Later records would not fit a lost one, nor a half of one.
template <typename Step>
void Journal::locked(Step step) {
  MutexLock lock(mutex_);
  try {
    step();
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
}

template <typename Write>
void Journal::change(TimePoint now, Write write) {
  locked([&] {
    mutex_.assert_held();
    change_locked(now, write);
  });
}

template <typename Write>
void Journal::change_locked(TimePoint now, Write write) {
  if (!failed_.ok() && !is_recovering_) return;
  if (has_unsynced_) window_.add(last_record_.load() + 1, now);
  record_locked(write);
}

template <typename Write>
void Journal::record_locked(Write write) {
  if (!failed_.ok() && !is_recovering_) return;
  const std::uint32_t count = writer_.count;
  const std::size_t size = writer_.size_bytes();
  write(writer_);
  const std::uint64_t new_bytes = writer_.size_bytes() - size;
  file_bytes_ += new_bytes;
  bytes_.fetch_add(new_bytes, std::memory_order_relaxed);
  cut_bytes_ += new_bytes;
  largest_change_ = std::max(largest_change_, new_bytes);
  last_record_.fetch_add(writer_.count - count, std::memory_order_release);
  if (is_group_full()) take_records();
}

}  // namespace reverie::checkpoint
