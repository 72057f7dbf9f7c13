// The second source of journal.h: the journal during checkpoints, and once it has failed.
//
// Tested in tests/sim/journal_sim_test.cc.
#include <algorithm>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/journal.h"
#include "reverie/durable_files/journal_frames.h"

namespace reverie::checkpoint {

Status Journal::remove_files(std::uint64_t last) {
  REVERIE_ASSIGN_OR_RETURN(const auto numbers, journal_files(files_, root_));
  for (const std::uint64_t number : numbers) {
    if (number > last) break;
    REVERIE_RETURN_IF_ERROR(files_.remove_file(join_path(root_, journal_name(number))));
  }
  return {};
}

std::uint64_t Journal::cut() {
  std::uint64_t position = 0;
  locked([&] {
    mutex_.assert_held();
    position = last_record_.load(std::memory_order_relaxed);
    cut_file_ = file_;
    cut_position_ = position;
    cut_bytes_ = 0;
    cut_has_more_ = !sessions_.empty();
    is_recovering_ = !failed_.ok();
    if (is_recovering_) begin_group();
    take_records();
    begin_file();
    for (const auto& known : sessions_) {
      record_locked([&](RecordWriter& writer) { writer.numbers(known.first, known.second); });
    }
    for (std::uint32_t table = 0; table < open_draws_.size(); ++table) {
      if (open_draws_[table].empty()) continue;
      cut_has_more_ = true;
      const SampleBatch batch = open_draws_[table].batch();
      const auto ends = ends_of_parts(batch, 0, batch.size(), options_.group_bytes_max);
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        record_locked([&](RecordWriter& writer) { writer.open_draws(table, batch, begin, end); });
        begin = end;
      }
    }
  });
  return position;
}

Status Journal::write_and_sync() {
  REVERIE_RETURN_IF_ERROR(write_pending(syncs_groups()));
  if (syncs_groups() || !open_) return {};
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  Status status = open_->sync();
  syncs_.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) {
    fail(status);
    return status;
  }
  MutexLock lock(mutex_);
  note_synced(written);
  return {};
}

// While the journal is being repaired, nothing may be written before the checkpoint is complete,
// since records before the cut are missing. Then end_checkpoint() writes.
Status Journal::before_publish() {
  Status status;
  {
    MutexLock io(io_mutex_);
    {
      MutexLock lock(mutex_);
      if (!cut_has_more_ || is_recovering_) return {};
    }
    status = write_and_sync();
  }
  wake_threads();
  return status;
}

void Journal::end_checkpoint(bool is_written) {
  if (!is_written) {
    MutexLock lock(mutex_);
    if (std::exchange(is_recovering_, false)) drop_records();
    return;
  }
  {
    MutexLock io(io_mutex_);
    std::uint64_t cut_file = 0;
    bool is_recovering = false;
    {
      MutexLock lock(mutex_);
      cut_file = cut_file_;
      is_recovering = is_recovering_;
    }
    // A file that is followed by another is complete, unless it is removed.
    if (open_ && open_number_ <= cut_file) {
      if (!is_recovering) (void)open_->sync();
      open_.reset();
    }
    Status status = remove_files(cut_file);
    if (!status.ok()) {
      log_warning("files of the journal in '{}' stay: {}", root_, status.message());
    }
    if (is_recovering && status.ok()) status = files_.sync_folder(root_);
    bool must_sync = false;
    {
      MutexLock lock(mutex_);
      bytes_ = cut_bytes_;
      // The checkpoint holds what was not written yet.
      std::erase_if(pending_, [&](const Pending& group) { return group.file <= cut_file; });
      if (ring_) ring_->release(cut_position_);
      written_.store(std::max(written_.load(), cut_position_), std::memory_order_release);
      note_synced(cut_position_);
      if (std::exchange(is_recovering_, false) && status.ok()) {
        failed_ = Status();
        has_failed_.store(false, std::memory_order_release);
        must_sync = cut_has_more_;
      } else if (!failed_.ok()) {
        drop_records();
        // As in fail(): what is changed from now on has no record, so it is never confirmed.
        last_record_.fetch_add(1, std::memory_order_release);
      }
    }
    if (must_sync) (void)write_and_sync();  // check() reports a failure
  }
  wake_threads();
}

// --- Failures ----------------------------------------------------------------------------------

Status Journal::failure(const Status& why) {
  return Status(why.code(),
                format("the journal cannot be written, so nothing is confirmed any more, though "
                       "memory serves on: {}; once a checkpoint can be written it goes on",
                       why.message()));
}

void Journal::fail(const Status& status) {
  const Status failed = failure(status);
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return;
    end_records(failed);
  }
  log_warning("the journal in '{}' cannot be written: {}", root_, status.message());
}

void Journal::fail_without_memory() {
  const bool is_first = failed_.ok();
  end_records(no_memory_);
  if (!is_first) return;
  try {
    log_warning("in '{}', {}", root_, no_memory_.message());
  } catch (const std::bad_alloc&) {
    // Calls that are refused say it.
  }
}

void Journal::end_records(const Status& failed) {
  if (failed_.ok()) {
    failed_ = failed;
    has_failed_.store(true, std::memory_order_release);
    // A number that no record has. What is changed from now on is not recorded, and is confirmed up
    // to this number: never, although everything before it may be in the ring.
    last_record_.fetch_add(1, std::memory_order_release);
  }
  // A checkpoint that is to end an earlier failure lacks a record now, so the next one does.
  is_recovering_ = false;
  drop_records();
}

void Journal::drop_records() {
  writer_.records.resize(std::min(writer_.records.capacity(), kGroupHeaderBytes));
  writer_.take_late();
  writer_.has_lost_rows = false;
  writer_.count = 0;
  largest_change_ = 0;
  writer_.begin_file();
  pending_.clear();
}

}  // namespace reverie::checkpoint
