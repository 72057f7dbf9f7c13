// Tested in tests/sim/journal_sim_test.cc.
#include "reverie/checkpoint/journal.h"

#include <algorithm>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/durable_files/section_file.h"

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

// The size of a record has 32 bits.
constexpr std::uint64_t kRecordBytesMax = std::uint64_t{4} << 30;
// What describes the chunks of a change, and its last record.
constexpr std::uint64_t kDescriptionBytesMax = std::uint64_t{1} << 30;
// Groups with their headers take less than this many times their records.
constexpr std::uint64_t kHeadersFactor = 8;
static_assert(kGroupHeaderBytes <= (kHeadersFactor - 1) * kRecordHeaderBytes);

// No file becomes longer: groups that do not fill it, then one whose last change is the largest.
constexpr std::uint64_t longest_file(const JournalOptions& options) {
  const std::uint64_t change =
      std::max({options.item_bytes_max, options.group_bytes_max, kRecordBytesMax}) +
      kDescriptionBytesMax;
  return kFileHeaderBytes + kHeadersFactor * options.file_bytes_max + kGroupHeaderBytes +
         std::max(options.group_bytes_max, 2 * change) + change;
}
static_assert(longest_file(JournalOptions()) <= kJournalFileBytesMax);

}  // namespace

Journal::Journal(FileSystem& files, std::string root, JournalOptions options,
                 const std::vector<TableOptions>& tables, std::int64_t calendar_offset_ns,
                 const Replayed& replayed)
    : files_(files),
      root_(std::move(root)),
      options_(options),
      durability_(durability_of(tables, options.durability)),
      has_unsynced_(std::ranges::count(durability_, Durability::kInterval) > 0),
      no_memory_(failure(resource_exhausted("there was no memory for its records; free some"))),
      writer_(tables, calendar_offset_ns),
      window_(2 * options.interval),
      file_(replayed.next_file),
      bytes_(replayed.size_bytes),
      sessions_(replayed.sessions),
      open_draws_(tables.size()),
      last_record_(replayed.last_record),
      written_(replayed.last_record),
      kept_(replayed.last_record),
      synced_(replayed.last_record) {
  {
    const MutexLock lock(mutex_);
    begin_group();
    if (has_unsynced_ && options_.ring_bytes > 0) {
      auto ring = JournalRing::create(files_, root_, options_.ring_bytes);
      if (ring.ok()) {
        ring_ = std::move(*ring);
      } else if (ring.status().code() != StatusCode::kUnimplemented) {
        log_warning("the journal in '{}' has no ring, so calls wait for its writes: {}", root_,
                    ring.status().message());
      }
    }
  }
}

Status Journal::start() {
  const std::uint64_t file = options_.file_bytes_max;
  const std::uint64_t group = options_.group_bytes_max;
  const std::uint64_t item = options_.item_bytes_max;
  // Each by itself as well: their sum may overflow.
  if (std::max({file, group, item, longest_file(options_)}) > kJournalFileBytesMax) {
    return invalid_argument(
        "file_bytes_max {}, group_bytes_max {} and item_bytes_max {} of a journal allow files that "
        "no restart reads; the bound is {} bytes, so make them smaller",
        file, group, item, kJournalFileBytesMax);
  }
  if (!options_.has_thread) return {};
  REVERIE_ASSIGN_OR_RETURN(
      thread_, start_thread("the journal", [this] { own_thread_.run([this] { run(); }); }));
  if (syncs_groups()) return {};
  REVERIE_ASSIGN_OR_RETURN(sync_thread_, start_thread("the journal's syncs", [this] {
                             own_sync_thread_.run([this] { run_syncs(); });
                           }));
  return {};
}

// In a forked child the threads belong to the parent, and the locks may stay locked.
Journal::~Journal() {
  if (fork_guard_.check("store").ok()) {
    close();
  } else {
    leave_to_parent(std::move(thread_));
    leave_to_parent(std::move(sync_thread_));
  }
}

// --- Records ---------------------------------------------------------------------------------

void Journal::take_records() {
  if (writer_.count == 0) return;
  if (!put_in_ring()) {
    Pending& pending = pending_.emplace_back();
    pending.file = file_;
    pending.count = writer_.count;
    last_outside_ring_ = last_record_.load(std::memory_order_relaxed);
    pending.first = last_outside_ring_ - pending.count + 1;
    pending.bytes = std::exchange(writer_.records, {});
    pending.late = writer_.take_late();
    pending.has_lost_rows = std::exchange(writer_.has_lost_rows, false);
  }
  end_group();
}

// A file ends here and not at a record, so that the items of one call usually are one group.
void Journal::end_group() {
  writer_.count = 0;
  largest_change_ = 0;
  begin_group();
  if (file_bytes_ >= options_.file_bytes_max) begin_file();
}

bool Journal::put_in_ring() {
  if (!ring_ || ring_->is_lost() || !failed_.ok() || is_closed_) return false;
  if (last_outside_ring_ > written_.load(std::memory_order_acquire)) return false;
  if (!ring_->has_room(writer_.size_bytes())) return false;
  if (!writer_.join()) return false;
  const std::uint64_t last = last_record_.load(std::memory_order_relaxed);
  Group group;
  group.count = writer_.count;
  group.first = last - group.count + 1;
  group.synced = synced_.load(std::memory_order_acquire);
  group.records = std::span(writer_.records).subspan(kGroupHeaderBytes);
  std::ranges::copy(group_header(group), writer_.records.begin());
  const std::span<const std::byte> at = ring_->put(file_, group, writer_.records);
  if (ring_->is_lost()) return false;
  Pending* const before = pending_.empty() ? nullptr : &pending_.back();
  const bool follows = before != nullptr && before->file == file_ && !before->in_ring.empty() &&
                       before->in_ring.data() + before->in_ring.size() == at.data();
  if (follows) {
    before->count += group.count;
    before->in_ring = {before->in_ring.data(), before->in_ring.size() + at.size()};
  } else {
    pending_.push_back({.file = file_, .first = group.first, .count = group.count, .in_ring = at});
  }
  in_ring_.store(last, std::memory_order_release);
  update_kept();
  return true;
}

bool Journal::is_ring_due() const {
  return ring_ && ring_->is_due() && !pending_.empty() && failed_.ok();
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

Status Journal::prepare(std::span<const Item> items) {
  REVERIE_ASSIGN_OR_RETURN(const std::size_t size_bytes,
                           recordable_bytes(items, options_.item_bytes_max));
  // Small rows take as long to write under the table's lock as taking the journal's lock would.
  if (size_bytes <= kSmallBytes) return {};
  locked([&] {
    mutex_.assert_held();
    for (const Item& item : items) {
      record_locked([&](RecordWriter& writer) { writer.prepare(item); });
    }
  });
  return check();
}

void Journal::on_insert(std::uint32_t table, TimePoint now, const LoggedInsert& item) {
  locked([&] {
    mutex_.assert_held();
    if (!item.session.empty()) {
      auto found = sessions_.find(item.session);
      if (found == sessions_.end()) found = sessions_.try_emplace(std::string(item.session)).first;
      found->second.add(item.number);
    }
    change_locked(now, [&](RecordWriter& writer) { writer.insert(table, now, item); });
  });
}

void Journal::on_update(std::uint32_t table, TimePoint now, std::span<const Slot> slots,
                        std::span<const double> priorities) {
  change(now, [&](RecordWriter& writer) { writer.update(table, now, slots, priorities); });
}

void Journal::on_erase(std::uint32_t table, TimePoint now, std::span<const ItemKey> keys) {
  change(now, [&](RecordWriter& writer) { writer.erase(table, now, keys); });
}

void Journal::on_corrupt(std::uint32_t table, TimePoint now, ItemKey key, std::size_t draws) {
  change(now, [&](RecordWriter& writer) { writer.corrupt(table, now, key, draws); });
}

void Journal::on_sample(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                        std::size_t begin, SampleKind kind) {
  locked([&] {
    mutex_.assert_held();
    if (kind == SampleKind::kAwaited) open_draws_[table].add(batch, begin);
    change_locked(now,
                  [&](RecordWriter& writer) { writer.sample(table, now, batch, begin, kind); });
  });
}

void Journal::on_settle(std::string_view session, std::uint64_t below) {
  locked([&] {
    mutex_.assert_held();
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    if (below == UINT64_MAX) {
      sessions_.erase(found);
    } else {
      found->second.drop_below(below);
    }
    record_locked([&](RecordWriter& writer) { writer.settled(session, below); });
  });
}

void Journal::on_receive(std::uint32_t table, std::span<const DrawId> draws) {
  locked([&] {
    mutex_.assert_held();
    for (const DrawId& draw : draws) open_draws_[table].remove(draw);
    record_locked([&](RecordWriter& writer) { writer.receipt(table, draws); });
  });
}

void Journal::on_take_back(std::uint32_t table, TimePoint now, const SampleBatch& batch,
                           std::size_t begin, std::size_t end, std::size_t count, bool by_item) {
  if (!by_item) {
    change(now,
           [&](RecordWriter& writer) { writer.draws(table, -static_cast<std::int64_t>(count)); });
    return;
  }
  locked([&] {
    mutex_.assert_held();
    for (std::size_t i = begin; i < end; ++i) {
      open_draws_[table].remove({batch.tickets()[i], batch.times_sampled()[i]});
    }
    // The last part first: so they are undone.
    std::vector<std::size_t> bounds = ends_of_parts(batch, begin, end, options_.group_bytes_max);
    bounds.insert(bounds.begin(), begin);
    for (std::size_t i = bounds.size() - 1; i > 0; --i) {
      change_locked(now, [&](RecordWriter& writer) {
        writer.take_back(table, now, batch, bounds[i - 1], bounds[i]);
      });
    }
  });
}

void Journal::on_reset(std::uint32_t table, TimePoint now) {
  locked([&] {
    mutex_.assert_held();
    open_draws_[table].clear();
    change_locked(now, [&](RecordWriter& writer) { writer.reset(table); });
  });
}

// --- Writing ---------------------------------------------------------------------------------

Status Journal::open_file(std::uint64_t number) {
  // So that a file that is followed by another is completely synced.
  if (open_) REVERIE_RETURN_IF_ERROR(open_->sync());
  open_.reset();
  REVERIE_ASSIGN_OR_RETURN(open_, create_journal_file(files_, root_, number));
  open_number_ = number;
  return {};
}

void Journal::complete_header(const Pending& pending, bool syncs, std::span<std::byte> bytes) {
  Group group;
  group.first = pending.first;
  group.count = pending.count;
  // With one sync per group: everything that was written before.
  group.synced = syncs ? pending.first - 1 : synced_.load(std::memory_order_acquire);
  group.records = bytes.subspan(kGroupHeaderBytes);
  std::ranges::copy(group_header(group), bytes.begin());
}

Status Journal::write_group(Pending& pending, bool syncs) {
  if (!open_ || open_number_ != pending.file) REVERIE_RETURN_IF_ERROR(open_file(pending.file));
  if (!pending.in_ring.empty()) return open_->append(pending.in_ring);
  const bool is_joined = !pending.late.empty();
  bool has_rows = !pending.has_lost_rows;
  if (is_joined && has_rows) {
    has_rows = join(pending.bytes, pending.late, joined_);
    pending.late.clear();
  }
  if (!has_rows) {
    return data_loss("the disk of spill_folder could not read rows back that it is to record");
  }
  std::vector<std::byte>& bytes = is_joined ? joined_ : pending.bytes;
  complete_header(pending, syncs, bytes);
  Status status = open_->append(bytes);
  if (joined_.capacity() > kSpareBytesMax) joined_ = {};
  return status;
}

Status Journal::write_pending(bool syncs) {
  try {
    return write_groups(syncs);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex_);
    if (failed_.ok()) fail_without_memory();
    return no_memory_;
  }
}

Status Journal::write_groups(bool syncs) {
  std::vector<Pending> pending;
  std::uint64_t last = 0;
  bool is_ring_lost = false;
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return failed_;
    take_records();
    if (pending_.empty()) return {};
    pending.swap(pending_);
    is_ring_lost = ring_ && ring_->is_lost();
    if (spare_.capacity() > writer_.records.capacity()) {
      writer_.records.swap(spare_);
      begin_group();
    }
    last = last_record_.load(std::memory_order_relaxed);
  }
  const auto ring_lost = [&] {
    return data_loss("the memory of '{}' cannot be written", join_path(root_, kRingName));
  };
  const bool reads_ring =
      std::ranges::any_of(pending, [](const Pending& group) { return !group.in_ring.empty(); });
  Status status;
  if (is_ring_lost) status = ring_lost();
  for (Pending& group : pending) {
    if (!status.ok()) break;
    // What a group declares as synced must be synced: with one sync per group, also between the
    // groups of one write.
    if (syncs && open_ && &group != &pending.front()) status = open_->sync();
    if (status.ok()) status = write_group(group, syncs);
  }
  if (status.ok() && syncs && open_) {
    status = open_->sync();
    syncs_.fetch_add(1, std::memory_order_relaxed);
  }
  if (!is_ring_lost && reads_ring) {
    // Its memory may have been lost meanwhile. A system call that reads it then fails without that
    // ring_->is_lost() tells, or was given zeros.
    if (!status.ok()) {
      for (const Pending& group : pending) JournalRing::read_again(group.in_ring);
    }
    MutexLock lock(mutex_);
    is_ring_lost = ring_ && ring_->is_lost();
    if (is_ring_lost) status = ring_lost();
  }
  if (!status.ok()) {
    fail(status);
    if (is_ring_lost) {
      MutexLock lock(mutex_);
      ring_.reset();  // its file stays, with what was confirmed, until a checkpoint has that too
    }
    return status;
  }
  std::vector<std::byte>& used = pending.front().bytes;
  if (!used.empty() && used.capacity() <= kSpareBytesMax) {
    spare_ = std::move(used);
  }
  MutexLock lock(mutex_);
  written_.store(last, std::memory_order_release);
  if (ring_) ring_->release(last);
  if (syncs) note_synced(last);
  update_kept();
  return {};
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
      } else {
        // The writer may have synced the file meanwhile and failed. The system reports that only
        // once: this sync succeeds, although what it was for may be lost.
        if (status.ok()) status = check();
        if (status.ok()) {
          MutexLock lock(mutex_);
          note_synced(written);
        } else {
          fail(status);
        }
      }
    }
  }
  complete_waiters();
  return status;
}

void Journal::close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    changed_.notify_all();
    sync_wanted_.notify_all();
  }
  for (std::thread* const thread : {&thread_, &sync_thread_}) {
    if (thread->joinable()) thread->join();
  }
  if (!sync().ok()) return;
  MutexLock io(io_mutex_);
  if (open_) {
    // The record declares everything before it as synced, so that damage there is distinguished
    // from an interrupted write.
    locked([this] {
      mutex_.assert_held();
      record_locked([](RecordWriter& writer) { writer.mark(); });
    });
    if (!write_pending(/*syncs=*/false).ok()) return;
    open_.reset();
  }
  if (!has_unsynced_) return;
  {
    MutexLock lock(mutex_);
    ring_.reset();
  }
  // The files, or a checkpoint, have everything.
  const Status status = remove_ring(files_, root_);
  if (!status.ok()) log_warning("the journal's ring stays: {}", status.message());
}

}  // namespace reverie::checkpoint
