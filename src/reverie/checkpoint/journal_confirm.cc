// The third source of journal.h: which confirmations wait, for what, and the threads they wait for.
//
// Tested in tests/sim/journal_sim_test.cc.
#include <algorithm>
#include <utility>

#include "reverie/checkpoint/journal.h"

namespace reverie::checkpoint {

// --- What kInterval confirms ---------------------------------------------------------------------

void Journal::note_synced(std::uint64_t record) {
  synced_.store(std::max(record, synced_.load()), std::memory_order_release);
  window_.sync(record);
  update_kept();
}

void Journal::update_kept() {
  std::uint64_t kept = std::max(kept_.load(), synced_.load());
  if (!window_.is_full()) kept = std::max({kept, written_.load(), in_ring_.load()});
  kept_.store(kept, std::memory_order_release);
}

bool Journal::can_confirm() const {
  const Stage stage = syncs_groups() ? kSynced : kWritten;
  if (waiters_[stage].empty()) return false;
  return last_record_.load() > std::max(written_.load(), in_ring_.load()) ||
         waiters_[stage].front().position <= reached(stage);
}

// --- Confirmations -------------------------------------------------------------------------------

Status Journal::check() {
  if (!has_failed_.load(std::memory_order_acquire)) return {};
  MutexLock lock(mutex_);
  return failed_;
}

Status Journal::admit() {
  REVERIE_RETURN_IF_ERROR(check());
  const std::uint64_t size = size_bytes();
  if (size < options_.size_bytes_max) return {};
  return resource_exhausted(
      "the journal in '{}' has {} bytes and the bound is {}, so nothing is changed until a "
      "checkpoint replaces it; write a checkpoint, or find the reason in the log why none could be "
      "written",
      root_, size, options_.size_bytes_max);
}

bool Journal::is_durable(std::uint32_t table, std::uint64_t position) {
  const Stage stage = stage_of(table);
  if (reached(stage) >= position) return true;
  if (stage == kSynced) return false;
  bool wakes = false;
  locked([&] {
    mutex_.assert_held();
    if (writer_.count > 0 && put_in_ring()) end_group();
    wakes = is_ring_due() && std::exchange(is_idle_, false);
  });
  if (wakes) changed_.notify_all();
  return reached(stage) >= position;
}

void Journal::confirm(std::uint32_t table, std::uint64_t position, Caller caller, Confirmed done) {
  const Stage stage = stage_of(table);
  const auto is_done = [&] { return reached(stage) >= position; };
  const bool has_thread = options_.has_thread;
  if (!is_done() && !has_thread) {
    MutexLock io(io_mutex_);
    // The thread that had the lock may have written this too.
    if (!is_done() && stage == kWritten) (void)write_pending(/*syncs=*/false);
    if (!is_done()) (void)write_and_sync();
  } else if (!is_done() && caller == Caller::kWaits && (stage == kWritten || syncs_groups()) &&
             io_mutex_.try_lock()) {
    // Quicker than to wake the thread.
    if (!is_done()) (void)write_pending(/*syncs=*/stage == kSynced);
    io_mutex_.unlock();
  }
  if (!is_done() && has_thread && wait_for(stage, position, done)) return;
  if (is_done()) return done({});
  Status status = check();
  if (status.ok()) status = cancelled("the store is closed");
  done(status);
}

// Notified without the lock, and once for each time that the thread went to sleep.
bool Journal::wait_for(Stage stage, std::uint64_t position, Confirmed& done) {
  bool wakes_writer = false;
  bool wakes_syncer = false;
  {
    MutexLock lock(mutex_);
    if (reached(stage) >= position || !failed_.ok() || is_closed_) return false;
    const bool is_first = waiters_[stage].empty();
    waiters_[stage].push_back({position, std::move(done)});
    if (stage == kSynced && has_unsynced_) {
      wakes_syncer = is_first;
    } else {
      wakes_syncer = waits_for_sync();
      wakes_writer = std::exchange(is_idle_, false);
    }
  }
  if (wakes_syncer) sync_wanted_.notify_all();
  if (wakes_writer) changed_.notify_all();
  return true;
}

void Journal::complete_waiters() {
  if (has_unsynced_) complete_waiters(kWritten);
  complete_waiters(kSynced);
}

void Journal::complete_waiters(Stage stage) {
  std::vector<Waiter> ready;
  Status failed;
  const std::uint64_t until = reached(stage);
  {
    MutexLock lock(mutex_);
    std::vector<Waiter>& waiters = waiters_[stage];
    if (waiters.empty()) return;
    failed = failed_;
    // A waiter after one that waits longer is completed with it.
    auto end = waiters.begin();
    while (end != waiters.end() && (end->position <= until || !failed.ok())) ++end;
    if (end == waiters.end()) {
      ready.swap(waiters);
    } else {
      ready.assign(std::make_move_iterator(waiters.begin()), std::make_move_iterator(end));
      waiters.erase(waiters.begin(), end);
    }
  }
  for (const Waiter& waiter : ready) {
    waiter.done(waiter.position <= until ? Status() : failed);
  }
}

// --- Threads -----------------------------------------------------------------------------------

// Without threads no call waits.
void Journal::wake_threads() {
  changed_.notify_all();
  sync_wanted_.notify_all();
}

void Journal::run() {
  Clock& clock = Clock::system();
  while (true) {
    {
      const TimePoint until = clock.now() + options_.interval;
      MutexLock lock(mutex_);
      while (!is_closed_ && !can_confirm() && !is_ring_due()) {
        is_idle_ = true;
        if (!clock.wait_until(changed_, mutex_, until)) break;
      }
      is_idle_ = false;
      if (is_closed_) return;
    }
    // Waiting requests get the error, later ones get it by check().
    if (syncs_groups()) {
      (void)sync();
      continue;
    }
    {
      MutexLock io(io_mutex_);
      (void)write_pending(/*syncs=*/false);
    }
    complete_waiters(kWritten);
    bool is_full = false;  // records that came during the write may have filled the window
    {
      MutexLock lock(mutex_);
      is_full = waits_for_sync();
    }
    if (is_full) sync_wanted_.notify_all();
  }
}

void Journal::run_syncs() {
  Clock& clock = Clock::system();
  TimePoint until = clock.now() + options_.interval;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!is_closed_ && waiters_[kSynced].empty() && !waits_for_sync()) {
        if (!clock.wait_until(sync_wanted_, mutex_, until)) break;
      }
      if (is_closed_) return;
    }
    until = clock.now() + options_.interval;
    (void)sync();
  }
}

}  // namespace reverie::checkpoint
