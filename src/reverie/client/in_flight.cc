// Tested in trajectory_writer_test.cc.
#include "reverie/client/in_flight.h"

#include <algorithm>
#include <utility>

#include "reverie/base/waiting.h"

namespace reverie {
namespace {

constexpr double kFirstNoticeS = 10.0;
constexpr double kUnreachableAfterS = 0.25;
// A caller that waits for at most this many items may get them before it would sleep.
constexpr std::size_t kLookItemsMax = 4;

}  // namespace

Status InFlight::insert(ReplayService& service, std::string_view table, Item item,
                        std::uint64_t writer) {
  if (!spare_) spare_ = std::make_unique<Record>();
  Record* const record = spare_.get();
  record->owner = this;
  record->phase.store(Record::kInserting, std::memory_order_relaxed);
  // One pointer: small enough that the function object allocates nothing.
  const RequestId id =
      service.insert({table, {&item, 1}, TimePoint::max(), writer},
                     [record](InsertResult result) { complete(record, std::move(result)); });
  if (id != 0) return enlist(service, table, id);
  REVERIE_CHECK(record->phase.load(std::memory_order_acquire) == Record::kDone);
  return std::exchange(record->result, {}).status;
}

void InFlight::complete(Record* record, InsertResult result) {
  record->result = std::move(result);
  // If it is not queued, the inserting thread takes the result, and owns the record.
  if (record->phase.exchange(Record::kDone, std::memory_order_acq_rel) == Record::kQueued) {
    record->owner->finish(record);
  }
}

Status InFlight::enlist(ReplayService& service, std::string_view table, RequestId id) {
  Record* const record = spare_.get();
  record->table = table;
  record->id = id;
  {
    MutexLock lock(mutex_);
    record->place = records_.size();
    records_.push_back(std::move(spare_));
    queued_.fetch_add(1, std::memory_order_release);
  }
  add_ref();
  if (record->phase.exchange(Record::kQueued, std::memory_order_acq_rel) == Record::kDone) {
    // It was completed on another thread before it was registered.
    {
      MutexLock lock(mutex_);
      spare_ = strike(record);
    }
    release();
    return std::exchange(spare_->result, {}).status;
  }
  if (closed()) service.cancel(id);  // close() may have been called before it was registered
  return {};
}

void InFlight::finish(Record* record) {
  std::unique_ptr<Record> finished;
  {
    MutexLock lock(mutex_);
    if (!record->result.status.ok() && !closed()) add_loss(*record);
    // Done last, since a flush that finds nothing queued checks for losses without the lock.
    finished = strike(record);
    if (waits_for_ && (queued() <= *waits_for_ || has_changes())) changed_.notify_all();
  }
  release();
}

void InFlight::add_loss(const Record& record) {
  // The table of a store with a journal may have an item whose record could not be written.
  const bool is_in = record.result.applied > 0;
  const auto loss = std::ranges::find_if(losses_, [&](const Loss& other) {
    return other.table == record.table && other.is_in == is_in;
  });
  if (loss == losses_.end()) {
    losses_.push_back({record.table, is_in, 1, record.result.status});
  } else {
    ++loss->count;
  }
  has_changes_.store(true, std::memory_order_release);
}

std::unique_ptr<InFlight::Record> InFlight::strike(Record* record) {
  std::swap(records_[record->place], records_.back());
  records_[record->place]->place = record->place;
  std::unique_ptr<Record> struck = std::move(records_.back());
  records_.pop_back();
  queued_.fetch_sub(1, std::memory_order_release);
  return struck;
}

bool InFlight::wait_for(std::size_t max_queued, TimePoint until) {
  MutexLock lock(mutex_);
  waits_for_ = max_queued;
  while (queued() > max_queued && !has_changes()) {
    if (!clock_.wait_until(changed_, mutex_, until)) break;
  }
  waits_for_.reset();
  return queued() <= max_queued || has_changes();
}

Status InFlight::wait(ReplayService& service, std::size_t max_queued, TimePoint deadline,
                      const WaitOptions& options) {
  const auto is_done = [&] { return queued() <= max_queued || has_changes(); };
  if (is_done()) return {};
  const WaitScope scope(options);
  const std::optional<bool> looked = service.look(is_done);
  if (looked && *looked) return {};
  if (!looked && queued() <= max_queued + kLookItemsMax &&
      spinner_.look(Clock::system(), is_done)) {
    return {};
  }
  const TimePoint begin = clock_.now();
  double next_notice_s = kFirstNoticeS;
  while (!wait_for(max_queued, std::min(deadline, clock_.now() + kInterruptInterval))) {
    const TimePoint now = clock_.now();
    const double waited_s = to_seconds(now - begin);
    if (now >= deadline) {
      // To ask takes a moment, which a caller that tries for less does not have.
      const Status unreachable =
          waited_s < kUnreachableAfterS ? Status() : service.why_unreachable();
      return deadline_exceeded(
          "{} items still wait for their tables after {:.3f} s, and {} are permitted; {}, or wait "
          "longer",
          queued(), waited_s, max_queued,
          unreachable.ok()
              ? "sample from the table or widen its rate limiter (why_blocked tells which bound "
                "holds)"
              : format("their server does not answer: {}; see that it runs and can be reached",
                       unreachable.message()));
    }
    if (options.interrupted && options.interrupted()) {
      return cancelled("interrupted with {} items waiting for their tables", queued());
    }
    if (options.still_waiting && waited_s >= next_notice_s) {
      options.still_waiting(waited_s);
      next_notice_s *= 2;
    }
  }
  return {};
}

Status InFlight::take_losses() {
  std::vector<Loss> losses;
  {
    MutexLock lock(mutex_);
    losses.swap(losses_);
    has_changes_.store(closed(), std::memory_order_release);
  }
  if (losses.empty()) return {};
  std::string text;
  for (const Loss& loss : losses) {
    if (!text.empty()) text += "; ";
    const bool is_one = loss.count == 1;
    text +=
        loss.is_in
            ? format("{} item{} in table '{}' {} not confirmed as durable: {}", loss.count,
                     is_one ? "" : "s", loss.table, is_one ? "is" : "are", loss.first.message())
            : format("{} queued item{} for table '{}' {} lost: {}", loss.count, is_one ? "" : "s",
                     loss.table, is_one ? "was" : "were", loss.first.message());
  }
  const StatusCode code = losses.front().first.code();  // kCancelled: by a close, for good
  return Status(code, text + (code == StatusCode::kCancelled ? "" : " (the writer can go on)"));
}

void InFlight::close(ReplayService& service) {
  std::vector<RequestId> ids;
  {
    MutexLock lock(mutex_);
    if (closed()) return;
    closed_.store(true, std::memory_order_release);
    has_changes_.store(true, std::memory_order_release);
    for (const auto& record : records_) ids.push_back(record->id);
    changed_.notify_all();
  }
  for (const RequestId id : ids) service.cancel(id);
}

}  // namespace reverie
