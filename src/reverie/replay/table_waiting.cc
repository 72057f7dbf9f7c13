// The second source of table.h: waiting requests, and why they wait.
//
// Tested in local_service_test.cc.
#include <algorithm>
#include <string>
#include <utility>

#include "reverie/base/format.h"
#include "reverie/base/start_thread.h"
#include "reverie/replay/table.h"

namespace reverie {

// --- Waiting -------------------------------------------------------------------------------

Status Table::start_waiting(Waiting& waiting, TimePoint now, TimePoint deadline) {
  // One that is past its deadline continues as far as the table permits, then completes.
  if (deadline > now && deadline != TimePoint::max()) {
    waiting.timer = context_->timers.schedule(deadline, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->serve();
    });
    if (waiting.timer == 0) {
      return no_thread(format("the deadline of a request to table '{}'", options().name));
    }
  }
  waiting.id = id_base_ + ++last_id_;
  waiting.since = now;
  waiting.deadline = deadline;
  first_deadline_ = std::min(first_deadline_, deadline);
  return {};
}

void Table::complete(WaitingInsert waiting, Status status, TimePoint now, Effects& effects) {
  if (waiting.timer != 0) context_->timers.cancel(waiting.timer, waiting.deadline);
  insert_wait_ += now - waiting.since;
  effects.inserts.emplace_back(std::move(waiting.done),
                               InsertResult{std::move(status), waiting.applied});
  for (Item& item : waiting.items) effects.after.garbage.add(std::move(item.trajectory));
}

void Table::complete(WaitingSample waiting, Status status, TimePoint now, Effects& effects) {
  if (waiting.timer != 0) context_->timers.cancel(waiting.timer, waiting.deadline);
  sample_wait_ += now - waiting.since;
  const SampleRequest& request = waiting.request;
  // Those of a closed store stay open: its caller can no longer hand them back.
  const bool is_exempt = request.awaits_receipt || request.batch.is_brief() || closed_;
  if (keeps_receipts() && waiting.open_draws > 0 && !is_exempt) {
    log_->on_receive(log_index_, draws_of(request.batch, 0, waiting.open_draws));
  }
  effects.samples.push_back({std::move(waiting.done),
                             {std::move(status), std::move(waiting.request.batch)},
                             waiting.request.distinct});
}

// Only here, once no request can continue, is it known which requests really have to wait: between
// two breaths, one that could continue waits too. So requests past their deadline complete here.
void Table::serve_waiting(TimePoint now, Effects& effects) {
  if (inserts_.empty() && samples_.empty() && !watches_room_) return;
  std::size_t breath = kBreath;
  do {
    bool has_moved = true;
    while (has_moved && breath > 0) {
      has_moved = serve_insert(now, breath, effects);
      has_moved = serve_samples(now, breath, effects) || has_moved;
    }
    watch_room();
    // Room that was freed between the check and the registration would otherwise be missed.
  } while (breath > 0 && ((watches_room_ && !lacks_room()) || complete_expired(now, effects)));
  effects.is_unfinished = breath == 0;
}

bool Table::serve_insert(TimePoint now, std::size_t& breath, Effects& effects) {
  if (inserts_.empty() || breath == 0) return false;
  WaitingInsert& front = inserts_.front();
  Status refusal;
  const std::size_t applied =
      insert_now(std::span(front.items).subspan(front.applied, 1),
                 {front.session, front.first_number + front.applied}, now, effects, refusal);
  front.applied += applied;
  breath -= applied;
  const bool is_over = front.applied == front.items.size() || !refusal.ok();
  if (is_over) {
    WaitingInsert served = std::move(front);
    inserts_.pop_front();
    complete(std::move(served), std::move(refusal), now, effects);
  }
  return applied > 0 || is_over;
}

// In the order of their arrival. Only a request for distinct items that lacks further ones lets
// later requests pass: they need not wait for the same thing.
bool Table::serve_samples(TimePoint now, std::size_t& breath, Effects& effects) {
  for (auto it = samples_.begin(); it != samples_.end() && breath > 0; ++it) {
    const std::size_t before = it->request.batch.size();
    const bool is_complete = sample_now(it->request, now, effects);
    const std::size_t drawn = it->request.batch.size() - before;
    it->request.batch.set_rate_limited();
    breath -= std::min(breath, drawn);
    if (is_complete) {
      WaitingSample served = std::move(*it);
      samples_.erase(it);
      complete(std::move(served), {}, now, effects);
      return true;
    }
    it->open_draws = it->request.batch.size();
    if (drawn > 0) return true;
    if (core_->sample_allowance() == 0) return false;
  }
  return false;
}

bool Table::lacks_room() const {
  if (inserts_.empty() || !core_->can_insert()) return false;
  const WaitingInsert& front = inserts_.front();
  return !core_->has_room(front.items[front.applied]);
}

void Table::watch_room() {
  const bool lacks = lacks_room();
  if (lacks == watches_room_) return;
  watches_room_ = lacks;
  if (lacks) {
    context_->chunks.add_waiter();
  } else {
    context_->chunks.remove_waiter();
  }
}

// --- Explaining ----------------------------------------------------------------------------

std::string Table::why_no_insert() const {
  std::string reason = core_->limiter().why_no_insert();
  if (reason.empty() && lacks_room()) {
    const WaitingInsert& front = inserts_.front();
    reason = format(
        "the store's items hold {} bytes and the next one brings {} more, over max_bytes {}; "
        "delete or sample items out, or raise max_bytes",
        context_->chunks.used_bytes(),
        ChunkStore::new_bytes(front.items[front.applied].trajectory.view()),
        *context_->chunks.max_bytes());
  }
  if (reason.empty() && !inserts_.empty()) reason = "requests that came before are waiting";
  return reason;
}

Status Table::insert_timed_out(std::size_t applied, std::size_t count) const {
  std::string reason = why_no_insert();
  if (reason.empty()) {
    reason = format("the store's items hold {} of max_bytes {}", context_->chunks.used_bytes(),
                    context_->chunks.max_bytes().value_or(0));
  }
  return deadline_exceeded("insert into table '{}' timed out with {} of {} items in: {}",
                           options().name, applied, count, reason);
}

Status Table::sample_timed_out(std::size_t drawn, std::size_t count) const {
  std::string reason = core_->limiter().why_no_sample();
  if (reason.empty()) {
    reason = core_->size() == 0 ? "the table is empty"
                                : "all items of the table are in the batch already";
  }
  return deadline_exceeded("sample from table '{}' timed out with {} of {} items drawn: {}",
                           options().name, drawn, count, reason);
}

Status Table::closed_status() const {
  return cancelled("the store of table '{}' is closed", options().name);
}

TableInfo Table::info() {
  MutexLock lock(mutex_);
  TableInfo info = core_->info();
  info.pending_inserts = static_cast<std::int64_t>(inserts_.size());
  info.pending_samples = static_cast<std::int64_t>(samples_.size());
  info.missing_updates = missing_updates_;
  // Waiting requests count with the time that they have waited so far.
  const TimePoint now = context_->clock.now();
  Duration insert_wait = insert_wait_;
  for (const WaitingInsert& waiting : inserts_) insert_wait += now - waiting.since;
  Duration sample_wait = sample_wait_;
  for (const WaitingSample& waiting : samples_) sample_wait += now - waiting.since;
  info.insert_wait_s = to_seconds(insert_wait);
  info.sample_wait_s = to_seconds(sample_wait);
  return info;
}

BlockedReport Table::why_blocked() {
  MutexLock lock(mutex_);
  const TimePoint now = context_->clock.now();
  BlockedReport report;
  report.inserts.waiting = static_cast<std::int64_t>(inserts_.size());
  report.inserts.reason = why_no_insert();
  if (!inserts_.empty()) {
    const WaitingInsert& longest = inserts_.front();
    report.inserts.longest_wait_s = to_seconds(now - longest.since);
    report.inserts.longest_request =
        format("insert of {} item(s), {} done", longest.items.size(), longest.applied);
  }
  report.samples.waiting = static_cast<std::int64_t>(samples_.size());
  report.samples.reason = core_->limiter().why_no_sample();
  if (!samples_.empty()) {
    const WaitingSample& longest = samples_.front();
    report.samples.longest_wait_s = to_seconds(now - longest.since);
    report.samples.longest_request = format("sample of {} item(s), {} done", longest.request.count,
                                            longest.request.batch.size());
  }
  return report;
}

}  // namespace reverie
