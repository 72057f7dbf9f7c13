// Table: a TableCore with a lock, waiting requests, and pins.
//
//     request --> can be served now? --yes--> TableCore, completes on the caller's thread
//                        | no
//                        v
//              [ waiting inserts ]  [ waiting samples ]   each first come, first served
//                        ^ checked again whenever the table changes
//
// A deadline ends a request that the table's bounds hold back, never one that only waits for its
// turn: even with a deadline of now, everything possible is done.
//
// No table has a thread of its own. A critical section handles at most a few hundred items (a
// *breath*), except read(), the first draw that asks for the least probability, and an insert that
// evicts many items for a much larger one; copying, checking, freeing and completing happen outside
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/replay/store_log.h"
#include "reverie/replay/table_core.h"
#include "reverie/replay/table_rules.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// What the tables of a store share. Pins keep it alive after the store.
struct StoreContext {
  StoreContext(std::optional<std::int64_t> max_bytes, Clock& the_clock)
      : clock(the_clock),
        calendar_offset_ns(calendar_ns() - the_clock.now().ns),
        timers(the_clock),
        chunks(max_bytes) {}

  Clock& clock;
  // Nanoseconds since 1970 minus a TimePoint: checkpoints contain calendar times.
  const std::int64_t calendar_offset_ns;
  TimerQueue timers;
  ChunkStore chunks;
  std::shared_ptr<ChunkMemory> memory;  // where chunks are kept; null: only in memory
  // Called, under no lock, when bytes were freed while some table's insert waits for room.
  std::function<void()> on_room;
};

// Thread-safe. Request ids are the table's own.
class Table final : public PinOwner, public std::enable_shared_from_this<Table> {
 public:
  template <typename T>
  using Done = ReplayService::Done<T>;

  // At most so many items are handled before the lock is released: half a millisecond if every
  // cache line that they touch comes from memory.
  static constexpr std::size_t kBreath = 256;
  // So many corrupt items are logged; further ones are only counted.
  static constexpr std::int64_t kCorruptLogged = 1000;

  // `id_base` is added to every request id.
  Table(std::unique_ptr<TableCore> core, std::shared_ptr<StoreContext> context, RequestId id_base);

  const TableOptions& options() const { return rules_->options(); }

  // From now on `log` gets every change, as one of table `index`, and confirms it. Requires that no
  // other thread uses the table yet. The log outlives it.
  void set_log(StoreLog* log, std::uint32_t index) {
    log_ = log;
    log_index_ = index;
  }
  bool has_log() const { return log_ != nullptr; }
  // Calls `complete` once what this thread changed is durable. Returns the id of the request if
  // that may be after the return, else 0. Requires a log.
  RequestId confirm(StoreLog::Caller caller, StoreLog::Confirmed complete);
  // Applies a change from a log. Requires that no other thread uses the table yet.
  using Change = std::function<Status(TableCore&, Aftermath&)>;
  Status replay(const Change& change);

  RequestId insert(const InsertRequest& request, Done<InsertResult> done);
  std::size_t insert_at_once(std::span<Item> items);
  std::size_t insert_views(std::span<const TrajectoryView> items);
  RequestId sample(SampleRequest request, Done<SampleResult> done);
  std::size_t hand_back(const SampleBatch& batch);
  bool keeps_receipts() const { return log_ != nullptr && options().max_times_sampled >= 1; }
  void receive(std::span<const DrawId> draws) {
    if (keeps_receipts()) log_->on_receive(log_index_, draws);
  }
  // Why mutate() would refuse the request before it changes anything.
  Status check_mutation(const MutateRequest& request) const;
  MutateResult mutate(const MutateRequest& request);
  LookupResult lookup(std::span<const ItemKey> keys);
  void reset();
  TableInfo info();
  BlockedReport why_blocked();
  void cancel(RequestId id);
  void close();

  // Whether the limiter would allow n now, ignoring waiting requests. Require n >= 1.
  bool can_insert(std::int64_t n);
  bool can_sample(std::int64_t n);
  // A brief, pinned batch of up to `count` items in the remover's order, after the first `skip`.
  // One critical section, whatever `skip` and `count` are. See TableCore::read().
  SampleBatch read(std::size_t skip, std::size_t count);
  std::map<std::string, double> extension_summary(std::size_t index);
  std::size_t memory_bytes();
  std::size_t size();
  // The total weight of its items (Selector::mass) after the last change: read without the lock.
  // From the first call on, each change computes it, and no longer only a draw.
  const std::atomic<double>& mass() {
    MutexLock lock(mutex_);
    publishes_mass_ = true;
    publish_mass();
    return mass_;
  }

  // Checks waiting requests again: room may have appeared in the store, or a deadline has passed.
  void serve();

  void unpin(std::uint64_t token) noexcept override;

  // --- Checkpoints
  // All of these tables at one moment, in their order. FAILED_PRECONDITION while one is frozen.
  // `at_that_moment` is called under all their locks.
  static Result<std::vector<std::unique_ptr<TableSnapshot>>> freeze(
      std::span<const std::shared_ptr<Table>> tables,
      const std::function<void()>& at_that_moment = {});
  // See TableCore::restore().
  Status restore(RestoredTable& table);

 private:
  friend class FrozenTable;
  static Status freeze_from(std::span<const std::shared_ptr<Table>> tables,
                            std::vector<std::unique_ptr<TableSnapshot>>& snapshots,
                            const std::function<void()>& at_that_moment);
  struct Waiting {
    RequestId id = 0;
    TimePoint since;
    TimePoint deadline;
    std::uint64_t timer = 0;
  };
  struct WaitingInsert : Waiting {
    std::vector<Item> items;
    std::string session;  // of ItemNumbers
    std::uint64_t first_number = 0;
    std::size_t applied = 0;
    Done<InsertResult> done;
  };
  struct WaitingSample : Waiting {
    SampleRequest request;       // its table name is not used any more
    std::size_t open_draws = 0;  // the first of its batch, which a crash undoes
    Done<SampleResult> done;
  };

  // What to do after the lock is released: completions, frees, another breath.
  struct Effects {
    Aftermath after;
    std::vector<std::pair<Done<InsertResult>, InsertResult>> inserts;
    std::uint64_t logged = 0;  // the log's position, if the table has a log
    struct Sampled {
      Done<SampleResult> done;
      SampleResult result;
      bool distinct;
    };
    std::vector<Sampled> samples;
    bool is_unfinished = false;
  };

  // Runs `step` under the lock, then serves waiting requests, breath by breath. Returns the log's
  // position after the first breath; 0 for a table without a log.
  template <typename Step>
  std::uint64_t apply(Step step);
  void finish(Effects& effects);
  // Runs `step` under the lock for a caller who may hold locks of its own: so another thread serves
  // the requests that wait for the room that this frees.
  template <typename Step>
  void release(Step step);
  // Completes an insert, once the log confirms it if there is one. Returns whether it has.
  bool confirm(std::uint64_t position, StoreLog::Caller caller, Done<InsertResult> done,
               InsertResult result);
  // Logs the last update that the core made.
  void log_updates(TimePoint now) REVERIE_REQUIRES(mutex_);
  Status insert_and_log(Item& item, const ItemNumbers& number, TimePoint now, Effects& effects)
      REVERIE_REQUIRES(mutex_);
  // Waits until the rows of what was drawn are in memory. If the disk cannot give those of an item
  // back, the item leaves the batch, and its table if items there have keys, and the status becomes
  // DATA_LOSS; the other items stay in the batch.
  void load(SampleResult& result);
  void take_out_unreadable(SampleResult& result);
  // Whether changes may be made. Ok for a table without a log.
  Status check_log() const { return log_ == nullptr ? Status() : log_->admit(); }
  // Computes the final probabilities of a batch without repeats. Called without the
  // lock.
  static void finish_distinct(SampleBatch& batch);

  // Calls take(begin, count, now, effects) breath by breath, as long as no request waits and it
  // takes everything; it returns how many it took.
  template <typename Take>
  std::size_t insert_in_breaths(std::size_t count, std::size_t breath, Take take);
  // Inserts the first items as far as the bounds allow; `refusal` is set if anything else ended it.
  std::size_t insert_now(std::span<Item> items, const ItemNumbers& numbers, TimePoint now,
                         Effects& effects, Status& refusal) REVERIE_REQUIRES(mutex_);
  // Returns true if the request is complete.
  bool sample_now(SampleRequest& request, TimePoint now, Effects& effects) REVERIE_REQUIRES(mutex_);
  void serve_waiting(TimePoint now, Effects& effects) REVERIE_REQUIRES(mutex_);
  bool serve_insert(TimePoint now, std::size_t& breath, Effects& effects) REVERIE_REQUIRES(mutex_);
  bool serve_samples(TimePoint now, std::size_t& breath, Effects& effects) REVERIE_REQUIRES(mutex_);
  void watch_room() REVERIE_REQUIRES(mutex_);
  bool lacks_room() const REVERIE_REQUIRES(mutex_);
  void publish_mass() REVERIE_REQUIRES(mutex_) {
    if (!publishes_mass_) return;
    mass_.store(core_->sampler_mass(), std::memory_order_relaxed);
  }
  // Returns whether there were any.
  bool complete_expired(TimePoint now, Effects& effects) REVERIE_REQUIRES(mutex_);

  // RESOURCE_EXHAUSTED if its deadline needs a thread that the system does not have.
  Status start_waiting(Waiting& waiting, TimePoint now, TimePoint deadline)
      REVERIE_REQUIRES(mutex_);
  void complete(WaitingInsert waiting, Status status, TimePoint now, Effects& effects)
      REVERIE_REQUIRES(mutex_);
  void complete(WaitingSample waiting, Status status, TimePoint now, Effects& effects)
      REVERIE_REQUIRES(mutex_);
  template <typename Pick>
  void complete_if(Pick pick, TimePoint now, Effects& effects) REVERIE_REQUIRES(mutex_);

  void count_missing(std::size_t missing, MutateResult& result) REVERIE_REQUIRES(mutex_);
  void take_out(std::span<const CorruptItem> corrupt, MutateResult& result);

  std::string why_no_insert() const REVERIE_REQUIRES(mutex_);
  Status insert_timed_out(std::size_t applied, std::size_t count) const REVERIE_REQUIRES(mutex_);
  Status sample_timed_out(std::size_t drawn, std::size_t count) const REVERIE_REQUIRES(mutex_);
  Status closed_status() const;

  const std::shared_ptr<StoreContext> context_;
  const RequestId id_base_;
  // Fixed before the table is used.
  StoreLog* log_ = nullptr;
  std::uint32_t log_index_ = 0;
  std::atomic<Slot> restored_slots_{0};  // those of a checkpoint's items are below this
  Mutex mutex_;
  const std::shared_ptr<const TableRules> rules_;
  const std::unique_ptr<TableCore> core_ REVERIE_PT_GUARDED_BY(mutex_);
  std::deque<WaitingInsert> inserts_ REVERIE_GUARDED_BY(mutex_);
  std::deque<WaitingSample> samples_ REVERIE_GUARDED_BY(mutex_);
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  // No waiting request has an earlier deadline.
  TimePoint first_deadline_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  bool closed_ REVERIE_GUARDED_BY(mutex_) = false;
  bool watches_room_ REVERIE_GUARDED_BY(mutex_) = false;
  bool publishes_mass_ REVERIE_GUARDED_BY(mutex_) = false;
  std::atomic<double> mass_{0};
  Duration insert_wait_ REVERIE_GUARDED_BY(mutex_){};
  Duration sample_wait_ REVERIE_GUARDED_BY(mutex_){};
  std::int64_t missing_updates_ REVERIE_GUARDED_BY(mutex_) = 0;
};

template <typename Step>
void Table::release(Step step) {
  bool has_freed = false;
  {
    Aftermath after;  // freed after the lock
    MutexLock lock(mutex_);
    step(after);
    has_freed = after.has_freed_bytes;
  }
  if (!has_freed || !context_->chunks.has_waiters()) return;
  // Without a thread they are served with the next change.
  context_->timers.schedule(context_->clock.now(), [context = context_.get()] {
    if (context->on_room) context->on_room();
  });
}

template <typename Step>
std::uint64_t Table::apply(Step step) {
  Effects effects;
  {
    MutexLock lock(mutex_);
    const TimePoint now = context_->clock.now();
    step(now, effects);
    serve_waiting(now, effects);
    publish_mass();
    if (log_ != nullptr) effects.logged = log_->position();
  }
  const std::uint64_t logged = effects.logged;
  finish(effects);
  return logged;
}

}  // namespace reverie
