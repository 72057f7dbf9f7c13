// StoreLog: receives each change of a store's tables, in order, and confirms when it is durable.
//
//     critical section   TableCore changes --> on_insert(...), on_update(...)   numbered records
//     after the lock     confirm(position, done)                                done once durable
//
// Records say what happened, not what was requested: the slot that an item got, the items that were
// evicted. So a replay (TableCore::replay_...) draws nothing and does not depend on arithmetic. The
// implementation is checkpoint/journal.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/record/item.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/sample_batch.h"
#include "reverie/sum_tree/slot.h"

namespace reverie {

// An item that was inserted, or that gave an existing key a new priority.
struct LoggedInsert {
  ItemKey key = 0;
  std::optional<double> priority;
  std::int64_t version = 0;
  TrajectoryView trajectory;  // valid during the call
  Slot slot = 0;
  std::span<const Slot> evicted;  // by this insert, in order; may include `slot`
  // The session of the writer that sent it, and its number there; empty if there is none.
  std::string_view session;
  std::uint64_t number = 0;
};

// Thread-safe. `table` is the index of a table in its store.
class StoreLog {
 public:
  using Confirmed = std::function<void(const Status&)>;

  virtual ~StoreLog() = default;

  // Whether it wants the changes of this table.
  virtual bool keeps(std::uint32_t table) const = 0;
  // Ok, or the reason why changes cannot be made durable any more.
  virtual Status check() = 0;
  // Ok, or why a change that needs a confirmation is refused, before it is made: check(), or
  // RESOURCE_EXHAUSTED while the log is as large as it may become.
  virtual Status admit() = 0;
  // Called without a lock, before the items are inserted: writes their large parts. An error, and
  // nothing is written, if one is too large for a log, or some of its rows are not there yet.
  virtual Status prepare(std::span<const Item> items) = 0;

  // --- Under the table's lock, right after the change.
  virtual void on_insert(std::uint32_t table, TimePoint now, const LoggedInsert& item) = 0;
  virtual void on_update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
                         std::span<const double> priorities) = 0;
  virtual void on_erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys) = 0;
  virtual void on_corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws) = 0;
  // In a table with max_times_sampled each draw matters, in others only the number of draws.
  enum class SampleKind {
    kCounted,
    kByItem,
    kAwaited,  // by item; a restart undoes it unless on_receive() came
  };
  // Draws [begin, size) of `batch`, which is not brief if they are awaited.
  virtual void on_sample(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                         std::size_t begin, SampleKind kind) = 0;
  // Draws [begin, end) of `batch` were undone, the last first; `count` of them could be.
  virtual void on_take_back(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                            std::size_t begin, std::size_t end, std::size_t count,
                            bool by_item) = 0;
  virtual void on_reset(std::uint32_t table, TimePoint now) = 0;

  // The number of the last record.
  virtual std::uint64_t position() = 0;

  // --- Without a lock.
  // A session will not send numbers below `below` again; the largest `below` forgets the session.
  virtual void on_settle(std::string_view session, std::uint64_t below) = 0;
  // These awaited draws have arrived at their reader, or were abandoned. Unknown draws are ignored.
  // Also called under the table's lock.
  virtual void on_receive(std::uint32_t table, std::span<const DrawId> draws) = 0;
  // Who asks for a confirmation: a thread that continues meanwhile, or one that does nothing else
  // until it gets it. The latter may be used to write and to sync.
  enum class Caller { kGoesOn, kWaits };
  // Whether all records up to `position` are as durable as promised for `table`. Makes them so if
  // that takes no wait.
  virtual bool is_durable(std::uint32_t table, std::uint64_t position) = 0;
  // Calls `done` once all records up to `position` are as durable as promised for `table`, or with
  // the reason why they will not be: before it returns, or later on another thread. Cannot be
  // cancelled: the change was made, and a writer that believes it was not would make it again.
  virtual void confirm(std::uint32_t table, std::uint64_t position, Caller caller,
                       Confirmed done) = 0;
  // Whether confirm() may complete after it has returned.
  virtual bool confirms_later() const = 0;
  // Writes what is left, and completes all confirmations.
  virtual void close() = 0;
  // Whether the calling thread is one that close() waits for.
  virtual bool is_own_thread() const = 0;

  // --- Checkpoints.
  // Called under the locks of all tables: the number of the last record that a checkpoint of this
  // moment contains.
  virtual std::uint64_t cut() = 0;
  // Called without a lock, before that checkpoint is published: makes durable what the checkpoint
  // lacks, which is the draws awaited at the cut and the numbers of sessions. The checkpoint is not
  // published if this fails.
  virtual Status before_publish() = 0;
  // That checkpoint is on the disk, or could not be written.
  virtual void end_checkpoint(bool is_written) = 0;
  // Bytes written since the last checkpoint.
  virtual std::uint64_t size_bytes() = 0;
};

}  // namespace reverie
