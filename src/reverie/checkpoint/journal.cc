// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/checkpoint/journal.h"

#include <algorithm>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/journal_frames.h"
#include "reverie/checkpoint/section_file.h"

namespace reverie::checkpoint {
namespace {

// Memory of a group that is kept for the next one.
constexpr std::size_t kSpareBytesMax = std::size_t{1} << 20;

// Rows below this size are not worth taking the lock separately.
constexpr std::size_t kSmallBytes = 2048;

std::vector<Durability> durability_of(const std::vector<TableOptions>& tables, Durability other) {
  std::vector<Durability> found;
  found.reserve(tables.size());
  for (const TableOptions& table : tables) found.push_back(table.durability.value_or(other));
  return found;
}

}  // namespace

Journal::Journal(FileSystem& files, std::string root, JournalOptions options,
                 const std::vector<TableOptions>& tables, std::int64_t calendar_offset_ns,
                 const Replayed& replayed)
    : files_(files),
      root_(std::move(root)),
      options_(options),
      durability_(durability_of(tables, options.durability)),
      has_unsynced_(std::ranges::count(durability_, Durability::kInterval) > 0),
      writer_(tables, calendar_offset_ns),
      file_(replayed.next_file),
      bytes_(replayed.size_bytes),
      sessions_(replayed.sessions),
      open_draws_(tables.size()),
      last_record_(replayed.last_record),
      written_(replayed.last_record),
      synced_(replayed.last_record) {
  {
    const MutexLock lock(mutex_);
    begin_group();
  }
  if (!options_.has_thread) return;
  thread_ = std::make_unique<std::thread>([this] { run(); });
  if (!syncs_groups()) sync_thread_ = std::make_unique<std::thread>([this] { run_syncs(); });
}

// In a forked child the threads belong to the parent, and the locks may stay locked.
Journal::~Journal() {
  if (fork_guard_.check("store").ok()) {
    close();
  } else {
    static_cast<void>(thread_.release());
    static_cast<void>(sync_thread_.release());
  }
}

// --- Records ---------------------------------------------------------------------------------

void Journal::take_records() {
  if (writer_.count == 0) return;
  Pending& pending = pending_.emplace_back();
  pending.file = file_;
  pending.count = std::exchange(writer_.count, 0u);
  pending.first = last_record_.load(std::memory_order_relaxed) - pending.count + 1;
  pending.bytes = std::exchange(writer_.records, {});
  begin_group();
  // Here and not at a record, so that the items of one call are one group.
  if (file_bytes_ >= options_.file_bytes_max) begin_file();
}

void Journal::begin_group() {
  writer_.records.resize(kGroupHeaderBytes);
}

// Requires that the writer has no records.
void Journal::begin_file() {
  writer_.begin_file();
  ++file_;
  file_bytes_ = 0;
}

void Journal::prepare(std::span<const Item> items) {
  // Small rows take as long to write under the table's lock as taking the journal's lock would.
  std::size_t size_bytes = 0;
  for (const Item& item : items) {
    for (const Piece& piece : item.trajectory.pieces()) {
      size_bytes += piece.length * piece.chunk->schema().step_bytes();
    }
  }
  if (size_bytes <= kSmallBytes) return;
  record([&](RecordWriter& writer) { writer.prepare(items); });
}

void Journal::on_insert(std::uint32_t table, TimePoint now, const LoggedInsert& item) {
  MutexLock lock(mutex_);
  if (!item.session.empty()) {
    auto found = sessions_.find(item.session);
    if (found == sessions_.end()) found = sessions_.try_emplace(std::string(item.session)).first;
    found->second.add(item.number);
  }
  record_locked([&](RecordWriter& writer) { writer.insert(table, now, item); });
}

void Journal::on_update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
                        std::span<const double> priorities) {
  record([&](RecordWriter& writer) { writer.update(table, now, slots, priorities); });
}

void Journal::on_erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys) {
  record([&](RecordWriter& writer) { writer.erase(table, now, keys); });
}

void Journal::on_corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws) {
  record([&](RecordWriter& writer) { writer.corrupt(table, now, key, draws); });
}

void Journal::on_sample(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                        std::size_t begin, SampleKind kind) {
  MutexLock lock(mutex_);
  if (kind == SampleKind::kAwaited) open_draws_[table].add(batch, begin);
  record_locked([&](RecordWriter& writer) { writer.sample(table, now, batch, begin, kind); });
}

void Journal::on_settle(std::string_view session, std::uint64_t below) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (below == UINT64_MAX) {
    sessions_.erase(found);
  } else {
    found->second.drop_below(below);
  }
  record_locked([&](RecordWriter& writer) { writer.settled(session, below); });
}

void Journal::on_receive(std::uint32_t table, std::span<const DrawId> draws) {
  MutexLock lock(mutex_);
  for (const DrawId& draw : draws) open_draws_[table].remove(draw);
  record_locked([&](RecordWriter& writer) { writer.receipt(table, draws); });
}

void Journal::on_take_back(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                           std::size_t begin, std::size_t end, std::size_t count, bool by_item) {
  MutexLock lock(mutex_);
  if (by_item) {
    for (std::size_t i = begin; i < end; ++i) {
      open_draws_[table].remove({batch.tickets()[i], batch.times_sampled()[i]});
    }
  }
  record_locked([&](RecordWriter& writer) {
    if (by_item) {
      writer.take_back(table, now, batch, begin, end);
    } else {
      writer.draws(table, -static_cast<std::int64_t>(count));
    }
  });
}

void Journal::on_reset(std::uint32_t table) {
  MutexLock lock(mutex_);
  open_draws_[table].clear();
  record_locked([&](RecordWriter& writer) { writer.reset(table); });
}

std::uint64_t Journal::size_bytes() {
  MutexLock lock(mutex_);
  return bytes_;
}

// --- Confirmations ---------------------------------------------------------------------------

Status Journal::check() {
  MutexLock lock(mutex_);
  return failed_;
}

void Journal::confirm(std::uint32_t table, std::uint64_t position, Caller caller, Confirmed done) {
  const Stage stage = stage_of(table);
  const auto is_durable = [&] { return reached(stage) >= position; };
  const bool has_thread = options_.has_thread;
  // A write in progress ends soon, a sync does not.
  if (!is_durable() && (!has_thread || (caller == Caller::kWaits && stage == kWritten))) {
    MutexLock io(io_mutex_);
    // The thread that had the lock may have written this too.
    if (!is_durable()) (void)(stage == kSynced ? write_and_sync() : write_pending(/*syncs=*/false));
  } else if (!is_durable() && caller == Caller::kWaits && syncs_groups() && io_mutex_.try_lock()) {
    (void)write_pending(/*syncs=*/true);
    io_mutex_.unlock();
  }
  if (!is_durable() && has_thread && wait_for(stage, position, done)) return;
  if (is_durable()) return done({});
  Status status = check();
  if (status.ok()) status = cancelled("the store is closed");
  done(status);
}

// Notified without the lock, and once for each time that the thread went to sleep.
bool Journal::wait_for(Stage stage, std::uint64_t position, Confirmed& done) {
  CondVar* sleeper = nullptr;
  {
    MutexLock lock(mutex_);
    if (reached(stage) >= position || !failed_.ok() || is_closed_) return false;
    const bool is_first = waiters_[stage].empty();
    waiters_[stage].push_back({position, std::move(done)});
    if (stage == kSynced && has_unsynced_) {
      if (is_first) sleeper = &sync_wanted_;
    } else if (std::exchange(is_idle_, false)) {
      sleeper = &changed_;
    }
  }
  if (sleeper != nullptr) sleeper->notify_all();
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

// --- Writing ---------------------------------------------------------------------------------

Status Journal::open_file(std::uint64_t number) {
  // So that a file that is followed by another is completely synced.
  if (open_) REVERIE_RETURN_IF_ERROR(open_->sync());
  open_.reset();
  REVERIE_ASSIGN_OR_RETURN(open_, files_.create(join_path(root_, journal_name(number))));
  open_number_ = number;
  // A file that is longer than its header has a valid header.
  REVERIE_RETURN_IF_ERROR(open_->append(file_header(FileKind::kJournal)));
  REVERIE_RETURN_IF_ERROR(open_->sync());
  return files_.sync_folder(root_);
}

Status Journal::write_group(Pending& pending, bool syncs) {
  if (!open_ || open_number_ != pending.file) REVERIE_RETURN_IF_ERROR(open_file(pending.file));
  Group group;
  group.first = pending.first;
  group.count = pending.count;
  // With one sync per group: everything that was written before.
  group.synced = syncs ? pending.first - 1 : synced_.load(std::memory_order_acquire);
  group.records = std::span(pending.bytes).subspan(kGroupHeaderBytes);
  const std::vector<std::byte> header = group_header(group);
  std::copy(header.begin(), header.end(), pending.bytes.begin());
  return open_->append(pending.bytes);
}

Status Journal::write_pending(bool syncs) {
  std::vector<Pending> pending;
  std::uint64_t last = 0;
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return failed_;
    take_records();
    if (pending_.empty()) return {};
    pending.swap(pending_);
    if (!spare_.empty()) {
      writer_.records.swap(spare_);
      spare_.clear();
    }
    last = last_record_.load(std::memory_order_relaxed);
  }
  Status status;
  for (Pending& group : pending) {
    // What a group declares as synced must be synced: with one sync per group, also between the
    // groups of one write.
    if (syncs && open_ && &group != &pending.front()) status = open_->sync();
    if (status.ok()) status = write_group(group, syncs);
    if (!status.ok()) break;
  }
  if (status.ok() && syncs && open_) {
    status = open_->sync();
    syncs_.fetch_add(1, std::memory_order_relaxed);
  }
  if (!status.ok()) {
    fail(status);
    return status;
  }
  if (pending.front().bytes.capacity() <= kSpareBytesMax) {
    spare_ = std::move(pending.front().bytes);
    spare_.resize(kGroupHeaderBytes);
  }
  written_.store(last, std::memory_order_release);
  if (syncs) synced_.store(last, std::memory_order_release);
  return {};
}

void Journal::fail(const Status& status) {
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return;
    failed_ = Status(status.code(),
                     format("the journal cannot be written, so nothing is confirmed any more, "
                            "though memory serves on: {}; once a checkpoint can be written it goes "
                            "on",
                            status.message()));
    // Records after the cut of a checkpoint in progress are still needed, since it repairs the
    // journal.
    if (!is_recovering_) drop_records();
  }
  log_warning("the journal in '{}' cannot be written: {}", root_, status.message());
}

Status Journal::sync() {
  Status status;
  if (syncs_groups()) {
    MutexLock io(io_mutex_);
    status = write_pending(/*syncs=*/true);
  } else {
    // No writing thread waits for this sync.
    std::string path;
    std::uint64_t written = 0;
    {
      MutexLock io(io_mutex_);
      status = write_pending(/*syncs=*/false);
      written = written_.load(std::memory_order_acquire);
      if (open_) path = join_path(root_, journal_name(open_number_));
    }
    if (status.ok() && !path.empty() && synced_.load(std::memory_order_acquire) < written) {
      status = files_.sync_file(path);
      syncs_.fetch_add(1, std::memory_order_relaxed);
      MutexLock io(io_mutex_);
      // A checkpoint may have ended the file meanwhile, and holds all that was in it.
      if (synced_.load(std::memory_order_acquire) >= written) {
        status = {};
      } else if (status.ok()) {
        synced_.store(written, std::memory_order_release);
      } else {
        fail(status);
      }
    }
  }
  complete_waiters();
  return status;
}

void Journal::run() {
  Clock& clock = Clock::system();
  while (true) {
    {
      const TimePoint until = clock.now() + options_.interval;
      MutexLock lock(mutex_);
      const std::vector<Waiter>& waiters = waiters_[syncs_groups() ? kSynced : kWritten];
      while (!is_closed_ && waiters.empty()) {
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
  }
}

void Journal::run_syncs() {
  Clock& clock = Clock::system();
  while (true) {
    {
      const TimePoint until = clock.now() + options_.interval;
      MutexLock lock(mutex_);
      while (!is_closed_ && waiters_[kSynced].empty()) {
        if (!clock.wait_until(sync_wanted_, mutex_, until)) break;
      }
      if (is_closed_) return;
    }
    (void)sync();
  }
}

void Journal::close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    changed_.notify_all();
    sync_wanted_.notify_all();
  }
  for (auto* const thread : {&thread_, &sync_thread_}) {
    if (*thread) (*thread)->join();
    thread->reset();
  }
  if (!sync().ok()) return;
  MutexLock io(io_mutex_);
  if (!open_) return;
  // The record declares everything before it as synced, so that damage there is distinguished from
  // an interrupted write.
  record([](RecordWriter& writer) { writer.mark(); });
  (void)write_pending(/*syncs=*/false);
  open_.reset();
}

void Journal::drop_records() {
  writer_.records.clear();
  begin_group();
  writer_.count = 0;
  writer_.begin_file();
  pending_.clear();
}

}  // namespace reverie::checkpoint
