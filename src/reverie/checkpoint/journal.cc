// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/checkpoint/journal.h"

#include <algorithm>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/journal_frames.h"
#include "reverie/checkpoint/section_file.h"

namespace reverie::checkpoint {

Journal::Journal(FileSystem& files, std::string root, JournalOptions options,
                 const std::vector<TableOptions>& tables, std::int64_t calendar_offset_ns,
                 const Replayed& replayed)
    : files_(files),
      root_(std::move(root)),
      options_(options),
      writer_(tables, calendar_offset_ns),
      file_(replayed.next_file),
      bytes_(replayed.size_bytes),
      sessions_(replayed.sessions),
      open_draws_(tables.size()),
      last_record_(replayed.last_record),
      written_(replayed.last_record),
      synced_(replayed.last_record) {
  if (options_.has_thread) thread_ = std::make_unique<std::thread>([this] { run(); });
}

// In a forked child the thread stayed with the parent, and so may the locks.
Journal::~Journal() {
  if (fork_guard_.check("store").ok()) {
    close();
  } else {
    static_cast<void>(thread_.release());
  }
}

// --- Records ---------------------------------------------------------------------------------

template <typename Write>
void Journal::record(Write write) {
  MutexLock lock(mutex_);
  record_locked(std::move(write));
}

template <typename Write>
void Journal::record_locked(Write write) {
  if (!failed_.ok() && !is_healing_) return;
  const std::uint32_t count = writer_.count;
  const std::size_t size = writer_.records.size();
  write(writer_);
  const std::uint64_t new_bytes = writer_.records.size() - size;
  file_bytes_ += new_bytes;
  bytes_ += new_bytes;
  cut_bytes_ += new_bytes;
  last_record_.fetch_add(writer_.count - count, std::memory_order_release);
}

void Journal::take_records() {
  if (writer_.count == 0) return;
  Pending& pending = pending_.emplace_back();
  pending.file = file_;
  pending.count = std::exchange(writer_.count, 0u);
  pending.first = last_record_.load(std::memory_order_relaxed) - pending.count + 1;
  pending.records = std::exchange(writer_.records, {});
  // Here and not at a record, so that the items of one call are one group.
  if (file_bytes_ >= options_.file_bytes_max) begin_file();
}

// Requires that the writer has no records.
void Journal::begin_file() {
  writer_.begin_file();
  ++file_;
  file_bytes_ = 0;
}

void Journal::prepare(std::span<const Item> items) {
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

void Journal::confirm(std::uint64_t position, Confirmed done) {
  const bool syncs = is_slow();
  const std::atomic<std::uint64_t>& durable = syncs ? synced_ : written_;
  const auto is_durable = [&] { return durable.load(std::memory_order_acquire) >= position; };
  if (syncs && options_.has_thread) {
    MutexLock lock(mutex_);
    if (!is_durable() && failed_.ok() && !is_closed_) {
      waiters_.push_back({position, std::move(done)});
      changed_.notify_all();
      return;
    }
  } else if (!is_durable()) {
    MutexLock io(io_mutex_);
    // The thread that held it may have written this too.
    if (!is_durable()) (void)write_pending(syncs);
  }
  if (is_durable()) return done({});
  Status status = check();
  if (status.ok()) status = cancelled("the store is closed");
  done(status);
}

void Journal::complete_waiters() {
  std::deque<Waiter> ready;
  Status failed;
  const std::uint64_t synced = synced_.load(std::memory_order_acquire);
  {
    MutexLock lock(mutex_);
    failed = failed_;
    std::deque<Waiter> left;
    for (Waiter& waiter : waiters_) {
      const bool is_over = waiter.position <= synced || !failed.ok();
      (is_over ? ready : left).push_back(std::move(waiter));
    }
    waiters_ = std::move(left);
  }
  for (const Waiter& waiter : ready) {
    waiter.done(waiter.position <= synced ? Status() : failed);
  }
}

// --- Writing ---------------------------------------------------------------------------------

Status Journal::open_file(std::uint64_t number) {
  // So that whatever is in a file that another follows was synced.
  if (open_) REVERIE_RETURN_IF_ERROR(open_->sync());
  open_.reset();
  REVERIE_ASSIGN_OR_RETURN(open_, files_.create(join_path(root_, journal_name(number))));
  open_number_ = number;
  // A file that is longer than its header has a good one.
  REVERIE_RETURN_IF_ERROR(open_->append(file_header(FileKind::kJournal)));
  REVERIE_RETURN_IF_ERROR(open_->sync());
  return files_.sync_folder(root_);
}

Status Journal::write_group(const Pending& pending, bool syncs) {
  if (!open_ || open_number_ != pending.file) REVERIE_RETURN_IF_ERROR(open_file(pending.file));
  Group group;
  group.first = pending.first;
  group.count = pending.count;
  // With a sync a group, all that was written before.
  group.synced = syncs ? pending.first - 1 : synced_.load(std::memory_order_acquire);
  group.records = pending.records;
  REVERIE_RETURN_IF_ERROR(open_->append(group_header(group)));
  return open_->append(pending.records);
}

Status Journal::write_pending(bool syncs) {
  std::deque<Pending> pending;
  std::uint64_t last = 0;
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return failed_;
    take_records();
    if (pending_.empty()) return {};
    pending.swap(pending_);
    last = last_record_.load(std::memory_order_relaxed);
  }
  Status status;
  for (const Pending& group : pending) {
    // What a group says is synced must be: with a sync a group, also between those of one write.
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
    // What a checkpoint that is being written now heals comes behind its cut.
    if (!is_healing_) drop_records();
  }
  log_warning("the journal in '{}' cannot be written: {}", root_, status.message());
}

Status Journal::sync() {
  Status status;
  if (is_slow()) {
    MutexLock io(io_mutex_);
    status = write_pending(/*syncs=*/true);
  } else {
    // No thread that writes waits for this sync.
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
      if (status.ok()) {
        synced_.store(std::max(written, synced_.load()), std::memory_order_release);
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
      while (!is_closed_ && waiters_.empty()) {
        if (!clock.wait_until(changed_, mutex_, until)) break;
      }
      if (is_closed_) return;
    }
    (void)sync();  // requests that wait get the error, later ones by check()
  }
}

void Journal::close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    changed_.notify_all();
  }
  if (thread_) thread_->join();
  thread_.reset();
  if (!sync().ok()) return;
  MutexLock io(io_mutex_);
  if (!open_) return;
  // It says that all before it was synced: from now on damage there is told from a torn end.
  record([](RecordWriter& writer) { writer.mark(); });
  (void)write_pending(/*syncs=*/false);
  open_.reset();
}

void Journal::drop_records() {
  writer_.records.clear();
  writer_.count = 0;
  writer_.begin_file();
  pending_.clear();
}

Status Journal::remove_files(std::uint64_t last) {
  REVERIE_ASSIGN_OR_RETURN(const auto numbers, journal_files(files_, root_));
  for (const std::uint64_t number : numbers) {
    if (number > last) break;
    REVERIE_RETURN_IF_ERROR(files_.remove_file(join_path(root_, journal_name(number))));
  }
  return {};
}

// --- Checkpoints -----------------------------------------------------------------------------

std::uint64_t Journal::cut() {
  MutexLock lock(mutex_);
  const std::uint64_t position = last_record_.load(std::memory_order_relaxed);
  cut_file_ = file_;
  cut_position_ = position;
  cut_bytes_ = 0;
  is_healing_ = !failed_.ok();
  take_records();
  begin_file();
  cut_has_more_ = !sessions_.empty();
  for (const auto& known : sessions_) {
    record_locked([&](RecordWriter& writer) { writer.numbers(known.first, known.second); });
  }
  for (std::uint32_t table = 0; table < open_draws_.size(); ++table) {
    if (open_draws_[table].empty()) continue;
    cut_has_more_ = true;
    const SampleBatch batch = open_draws_[table].batch();
    record_locked([&](RecordWriter& writer) { writer.open_draws(table, batch); });
  }
  return position;
}

Status Journal::write_and_sync() {
  REVERIE_RETURN_IF_ERROR(write_pending(is_slow()));
  if (is_slow() || !open_) return {};
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  const Status status = open_->sync();
  syncs_.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) {
    fail(status);
    return status;
  }
  synced_.store(std::max(written, synced_.load()), std::memory_order_release);
  return {};
}

// While the journal heals, nothing may be written before the checkpoint is there: records before
// the cut are missing. Then end_checkpoint() does it.
Status Journal::before_publish() {
  MutexLock io(io_mutex_);
  {
    MutexLock lock(mutex_);
    if (!cut_has_more_ || is_healing_) return {};
  }
  return write_and_sync();
}

void Journal::end_checkpoint(bool is_written) {
  if (!is_written) {
    MutexLock lock(mutex_);
    if (std::exchange(is_healing_, false)) drop_records();
    return;
  }
  {
    MutexLock io(io_mutex_);
    std::uint64_t cut_file = 0;
    bool is_healing = false;
    {
      MutexLock lock(mutex_);
      cut_file = cut_file_;
      is_healing = is_healing_;
    }
    // A file that another follows is whole, unless it is removed for good.
    if (open_ && open_number_ <= cut_file) {
      if (!is_healing) (void)open_->sync();
      open_.reset();
    }
    Status status = remove_files(cut_file);
    if (!status.ok()) {
      log_warning("files of the journal in '{}' stay: {}", root_, status.message());
    }
    if (is_healing && status.ok()) status = files_.sync_folder(root_);
    bool must_sync = false;
    {
      MutexLock lock(mutex_);
      bytes_ = cut_bytes_;
      // The checkpoint holds what was not written yet.
      std::erase_if(pending_, [&](const Pending& group) { return group.file <= cut_file; });
      for (auto* const position : {&written_, &synced_}) {
        position->store(std::max(position->load(), cut_position_), std::memory_order_release);
      }
      if (std::exchange(is_healing_, false) && status.ok()) {
        failed_ = Status();
        must_sync = cut_has_more_;
      } else if (!failed_.ok()) {
        drop_records();
      }
    }
    if (must_sync) (void)write_and_sync();  // check() tells of what failed
  }
  complete_waiters();
}

}  // namespace reverie::checkpoint
