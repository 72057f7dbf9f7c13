// StoreLog: gets each change of a store's tables, in order, and says when it is durable.
//
//     critical section   TableCore changes --> on_insert(...), on_update(...)   numbered records
//     after the lock     confirm(position, done)                                done once they last
//
// What is told is what happened, not what was asked for: the slot that an item got, the items that
// were evicted. So a replay (TableCore::replay_...) draws nothing and depends on no arithmetic.
// checkpoint/journal.h is the one that ships.
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

// An item that went in, or whose key was there and that gave it its priority.
struct LoggedInsert {
  ItemKey key = 0;
  std::optional<double> priority;
  std::int64_t version = 0;
  TrajectoryView trajectory;  // valid during the call
  Slot slot = 0;
  std::span<const Slot> evicted;  // by this insert, in this order; may be `slot` itself
  // The writer that sent it and its number there; empty without.
  std::string_view session;
  std::uint64_t number = 0;
};

// Thread-safe. `table` is the place of a table in its store.
class StoreLog {
 public:
  using Confirmed = std::function<void(const Status&)>;

  virtual ~StoreLog() = default;

  // Whether the changes of this table are told to it at all.
  virtual bool keeps(std::uint32_t table) const = 0;
  // Ok, or why changes cannot be made durable any more: those that want to be confirmed are refused
  // then, before they are made.
  virtual Status check() = 0;
  // Without a lock, before the items go in: takes over what is large of them.
  virtual void prepare(std::span<const Item> items) = 0;

  // --- Under the table's lock, right after the change.
  virtual void on_insert(std::uint32_t table, TimePoint now, const LoggedInsert& item) = 0;
  virtual void on_update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
                         std::span<const double> priorities) = 0;
  virtual void on_erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys) = 0;
  virtual void on_corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws) = 0;
  // Where items leave after so many samples each draw counts, elsewhere the number of draws.
  enum class SampleKind {
    kCounted,
    kByItem,
    kAwaited,  // by item; undone by a restart unless on_receive() comes
  };
  // Draws [begin, size) of `batch`, which is not brief where they are awaited.
  virtual void on_sample(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                         std::size_t begin, SampleKind kind) = 0;
  // Draws [begin, end) of `batch` were undone, the last first, as far as that could be: `count`.
  virtual void on_take_back(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                            std::size_t begin, std::size_t end, std::size_t count,
                            bool by_item) = 0;
  virtual void on_reset(std::uint32_t table) = 0;

  // The number of the last record.
  virtual std::uint64_t position() = 0;

  // --- Without a lock
  // A session sends no number below again; all that is known of it is forgotten with the largest.
  virtual void on_settle(std::string_view session, std::uint64_t below) = 0;
  // These awaited draws have arrived at their reader, or are given up.
  virtual void on_receive(std::uint32_t table, std::span<const DrawId> draws) = 0;
  // Who asks for a confirmation: a thread that goes on meanwhile, or one that does nothing else
  // until it has it. The second may be made to write, and to sync.
  enum class Caller { kGoesOn, kWaits };
  // Calls `done` once all records up to `position` are as durable as was promised for `table`, or
  // with why they will not be: before the return, or later on another thread. Cannot be cancelled:
  // the change was made, and a writer that is told that it was not would make it again.
  virtual void confirm(std::uint32_t table, std::uint64_t position, Caller caller,
                       Confirmed done) = 0;
  // Whether confirm() may complete after it has returned.
  virtual bool confirms_later() const = 0;
  // Writes what is left, and completes all.
  virtual void close() = 0;

  // --- Checkpoints
  // Under the locks of all tables: the number of the last record that a checkpoint of this moment
  // holds.
  virtual std::uint64_t cut() = 0;
  // Without a lock, before that checkpoint is published: makes durable what it lacks, which is the
  // draws that were awaited at the cut and the numbers of sessions. A checkpoint is not published
  // if this fails.
  virtual Status before_publish() = 0;
  // That checkpoint is on the disk, or could not be written.
  virtual void end_checkpoint(bool is_written) = 0;
  // Bytes since the last checkpoint.
  virtual std::uint64_t size_bytes() = 0;
};

}  // namespace reverie
