#include "reverie/shards/shard_lines.h"

#include <algorithm>
#include <atomic>

#include "reverie/base/log.h"

namespace reverie {

void Alarm::set(TimePoint when) {
  {
    MutexLock lock(mutex_);
    if (armed_ <= when) return;
    armed_ = when;
  }
  timers_.schedule(when, [this, when] {
    {
      MutexLock lock(mutex_);
      if (armed_ == when) armed_ = TimePoint::max();
    }
    ring_();
  });
}

ShardLines::ShardLines(std::vector<Shard> shards, const ShardLineOptions& options, Clock& clock,
                       TimerQueue& timers, Events events)
    : options_(options),
      clock_(clock),
      events_(std::move(events)),
      alarm_(timers, [this] { look_around(); }) {
  const std::size_t count = shards.size();
  for (Shard& shard : shards) {
    auto line = std::make_unique<Line>();
    line->text =
        count == 1 ? shard.name : format("shard {} of {} ({})", lines_.size(), count, shard.name);
    line->shard = std::move(shard);
    lines_.push_back(std::move(line));
  }
}

void ShardLines::drain() {
  MutexLock lock(mutex_);
  while (under_way_ > 0) left_.wait(mutex_);
}

Status ShardLines::why_down(ShardIndex shard) const {
  MutexLock lock(mutex_);
  return is_up(shard) ? Status() : lines_[shard]->why;
}

Status ShardLines::none_answers() const {
  std::string text;
  MutexLock lock(mutex_);
  for (const auto& line : lines_) {
    if (line->is_up) continue;
    if (!text.empty()) text += "; ";
    text += format("{}: {}", line->text, line->why.message());
  }
  return unavailable("no shard answers; {}", text);
}

std::uint64_t ShardLines::open_call(ShardIndex shard) {
  Line& line = *lines_[shard];
  const TimePoint now = clock_.now();
  std::uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    ++under_way_;
    if (line.calls.empty()) {
      line.moved_at = now;
      line.patience = options_.probe_interval;
    }
    line.calls.try_emplace(id);
    // Lost meanwhile, unless this is a race that its maker could not see.
    if (!line.is_up) line.calls[id].is_lost = true;
  }
  return id;
}

void ShardLines::attach(ShardIndex shard, std::uint64_t id, RequestId request) {
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto found = lines_[shard]->calls.find(id);
    if (found == lines_[shard]->calls.end()) return;
    found->second.request = request;
    is_over = found->second.is_cancelled || found->second.is_lost;
  }
  // Something waits: somebody has to look whether anybody is there.
  alarm_.set(clock_.now() + options_.probe_interval);
  if (is_over) lines_[shard]->shard.service->cancel(request);
}

void ShardLines::cancel(const Call& call) {
  RequestId request = 0;
  {
    MutexLock lock(mutex_);
    auto& calls = lines_[call.shard]->calls;
    const auto found = calls.find(call.id);
    if (found == calls.end()) return;
    found->second.is_cancelled = true;
    request = found->second.request;
  }
  if (request != 0) lines_[call.shard]->shard.service->cancel(request);
}

Status ShardLines::judge(ShardIndex shard, std::uint64_t id, Status status) {
  Line& line = *lines_[shard];
  Pending pending;
  bool is_closed = false;
  {
    MutexLock lock(mutex_);
    const auto found = line.calls.find(id);
    pending = found->second;
    line.calls.erase(found);
    line.moved_at = clock_.now();
    line.patience = options_.probe_interval;
    is_closed = is_closed_;
    if (pending.is_lost && status.code() == StatusCode::kCancelled) {
      return line.why.ok() ? unavailable("{} was lost", line.text)
                           : unavailable("{}: {}", line.text, line.why.message());
    }
  }
  if (status.ok() || is_closed) return status;
  const bool is_gone = status.code() == StatusCode::kUnavailable ||
                       (status.code() == StatusCode::kCancelled && !pending.is_cancelled);
  if (is_gone) {
    lose(shard, status);
    return unavailable("{}: {}", line.text, status.message());
  }
  return lines_.size() == 1 ? status : status.with_context(line.text);
}

void ShardLines::leave() {
  MutexLock lock(mutex_);
  if (--under_way_ == 0) left_.notify_all();
}

void ShardLines::lose(ShardIndex shard, const Status& why) {
  Line& line = *lines_[shard];
  std::vector<RequestId> lost;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    line.why = why;
    if (!line.is_up.exchange(false, std::memory_order_acq_rel)) return;
    for (auto& [id, pending] : line.calls) {
      pending.is_lost = true;
      if (pending.request != 0) lost.push_back(pending.request);
    }
  }
  for (const RequestId request : lost) line.shard.service->cancel(request);
  events_.on_change();
  alarm_.set(clock_.now() + options_.probe_interval);
  // Last: whoever keeps the log may let this thread wait, and requests are not to wait with it.
  log_warning("{} does not answer and is left out until it does: {}", line.text, why.message());
}

// Probes whoever is down, and whoever has kept a request waiting; gives up on whom a probe waits
// for too long.
void ShardLines::look_around() {
  const TimePoint now = clock_.now();
  std::vector<ShardIndex> to_probe;
  std::vector<ShardIndex> silent;
  bool is_needed = false;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    for (std::size_t s = 0; s < lines_.size(); ++s) {
      Line& line = *lines_[s];
      const auto shard = static_cast<ShardIndex>(s);
      const bool is_waiting = !line.calls.empty();
      is_needed |= is_waiting || !line.is_up || line.is_probed;
      if (line.is_probed) {
        if (line.is_up && now - line.probed_at >= options_.probe_timeout) silent.push_back(shard);
      } else if (!line.is_up || (is_waiting && now - line.moved_at >= line.patience)) {
        line.is_probed = true;
        line.probed_at = now;
        ++under_way_;
        to_probe.push_back(shard);
      }
    }
  }
  if (is_needed) alarm_.set(now + options_.probe_interval);
  for (const ShardIndex shard : silent) {
    lose(shard, unavailable("no answer within {:.3g} s", to_seconds(options_.probe_timeout)));
  }
  for (const ShardIndex shard : to_probe) probe(shard);
}

void ShardLines::probe(ShardIndex shard) {
  const Shard& asked = lines_[shard]->shard;
  auto done = [this, shard](const Status& status) { take_probe(shard, status); };
  if (asked.probe) {
    asked.probe(std::move(done));
  } else {
    asked.service->info([done = std::move(done)](const Result<std::vector<TableInfo>>& infos) {
      done(infos.status());
    });
  }
}

void ShardLines::take_probe(ShardIndex shard, const Status& status) {
  // Whoever refuses us is there; requests will say so.
  const bool is_gone = status.code() == StatusCode::kUnavailable ||
                       status.code() == StatusCode::kCancelled ||
                       status.code() == StatusCode::kDeadlineExceeded;
  Line& line = *lines_[shard];
  bool is_back = false;
  {
    MutexLock lock(mutex_);
    is_back = !is_gone && !line.is_up && !is_closed_;
    if (!is_back) line.is_probed = false;
    if (!is_gone && !is_back) {
      line.moved_at = clock_.now();
      line.patience = std::min(2 * line.patience, options_.probe_interval_max);
    }
  }
  if (is_back) {
    events_.on_return(shard, [this, shard](const Status& returned) {
      if (returned.ok()) come_back(shard);
      {
        MutexLock lock(mutex_);
        lines_[shard]->is_probed = false;
      }
      leave();
    });
    return;
  }
  if (is_gone) lose(shard, status);
  leave();
}

void ShardLines::come_back(ShardIndex shard) {
  Line& line = *lines_[shard];
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    line.moved_at = clock_.now();
    line.is_up.store(true, std::memory_order_release);
  }
  events_.on_change();
  log_message(LogLevel::kInfo, format("{} answers again", line.text));
}

void ShardLines::close() {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    is_closed_ = true;
  }
  for (const auto& line : lines_) line->shard.service->close();
}

}  // namespace reverie
