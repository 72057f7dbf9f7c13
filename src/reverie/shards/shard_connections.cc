#include "reverie/shards/shard_connections.h"

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

ShardConnections::ShardConnections(std::vector<Shard> shards, const ShardConnectionOptions& options,
                                   Clock& clock, TimerQueue& timers, Events events)
    : options_(options),
      clock_(clock),
      events_(std::move(events)),
      alarm_(timers, [this] { look_around(); }) {
  const std::size_t count = shards.size();
  for (Shard& shard : shards) {
    auto connection = std::make_unique<Connection>();
    connection->text = count == 1
                           ? shard.name
                           : format("shard {} of {} ({})", connections_.size(), count, shard.name);
    connection->shard = std::move(shard);
    connections_.push_back(std::move(connection));
  }
}

void ShardConnections::drain() {
  MutexLock lock(mutex_);
  while (under_way_ > 0) left_.wait(mutex_);
}

Status ShardConnections::why_down(ShardIndex shard) const {
  MutexLock lock(mutex_);
  return is_up(shard) ? Status() : connections_[shard]->why;
}

Status ShardConnections::none_answers() const {
  std::string text;
  MutexLock lock(mutex_);
  for (const auto& connection : connections_) {
    if (connection->is_up) continue;
    if (!text.empty()) text += "; ";
    text += format("{}: {}", connection->text, connection->why.message());
  }
  return unavailable("no shard answers; {}", text);
}

std::uint64_t ShardConnections::open_call(ShardIndex shard) {
  Connection& connection = *connections_[shard];
  const TimePoint now = clock_.now();
  std::uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    ++under_way_;
    if (connection.calls.empty()) {
      connection.moved_at = now;
      connection.patience = options_.probe_interval;
    }
    connection.calls.try_emplace(id);
    // Lost meanwhile, unless this is a race that its maker could not see.
    if (!connection.is_up) connection.calls[id].is_lost = true;
  }
  return id;
}

void ShardConnections::attach(ShardIndex shard, std::uint64_t id, RequestId request) {
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto found = connections_[shard]->calls.find(id);
    if (found == connections_[shard]->calls.end()) return;
    found->second.request = request;
    is_over = found->second.is_cancelled || found->second.is_lost;
  }
  // Something waits: somebody has to look whether anybody is there.
  alarm_.set(clock_.now() + options_.probe_interval);
  if (is_over) connections_[shard]->shard.service->cancel(request);
}

void ShardConnections::cancel(const Call& call) {
  RequestId request = 0;
  {
    MutexLock lock(mutex_);
    auto& calls = connections_[call.shard]->calls;
    const auto found = calls.find(call.id);
    if (found == calls.end()) return;
    found->second.is_cancelled = true;
    request = found->second.request;
  }
  if (request != 0) connections_[call.shard]->shard.service->cancel(request);
}

Status ShardConnections::classify(ShardIndex shard, std::uint64_t id, Status status) {
  Connection& connection = *connections_[shard];
  Pending pending;
  bool is_closed = false;
  {
    MutexLock lock(mutex_);
    const auto found = connection.calls.find(id);
    pending = found->second;
    connection.calls.erase(found);
    connection.moved_at = clock_.now();
    connection.patience = options_.probe_interval;
    is_closed = is_closed_;
    if (pending.is_lost && status.code() == StatusCode::kCancelled) {
      return connection.why.ok() ? unavailable("{} was lost", connection.text)
                                 : unavailable("{}: {}", connection.text, connection.why.message());
    }
  }
  if (status.ok() || is_closed) return status;
  const bool is_gone = status.code() == StatusCode::kUnavailable ||
                       (status.code() == StatusCode::kCancelled && !pending.is_cancelled);
  if (is_gone) {
    lose(shard, status);
    return unavailable("{}: {}", connection.text, status.message());
  }
  return connections_.size() == 1 ? status : status.with_context(connection.text);
}

void ShardConnections::leave() {
  MutexLock lock(mutex_);
  if (--under_way_ == 0) left_.notify_all();
}

void ShardConnections::lose(ShardIndex shard, const Status& why) {
  Connection& connection = *connections_[shard];
  std::vector<RequestId> lost;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    connection.why = why;
    if (!connection.is_up.exchange(false, std::memory_order_acq_rel)) return;
    for (auto& [id, pending] : connection.calls) {
      pending.is_lost = true;
      if (pending.request != 0) lost.push_back(pending.request);
    }
  }
  for (const RequestId request : lost) connection.shard.service->cancel(request);
  events_.on_change();
  alarm_.set(clock_.now() + options_.probe_interval);
  // Last: the log's keeper may let this thread wait, and requests are not to wait with it.
  log_warning("{} does not answer and is left out until it does: {}", connection.text,
              why.message());
}

// Probes whoever is down, and whoever has kept a request waiting; gives up on whom a probe waits
// for too long.
void ShardConnections::look_around() {
  const TimePoint now = clock_.now();
  std::vector<ShardIndex> to_probe;
  std::vector<ShardIndex> silent;
  bool is_needed = false;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    for (std::size_t s = 0; s < connections_.size(); ++s) {
      Connection& connection = *connections_[s];
      const auto shard = static_cast<ShardIndex>(s);
      const bool is_waiting = !connection.calls.empty();
      is_needed |= is_waiting || !connection.is_up || connection.is_probed;
      if (connection.is_probed) {
        if (connection.is_up && now - connection.probed_at >= options_.probe_timeout)
          silent.push_back(shard);
      } else if (!connection.is_up ||
                 (is_waiting && now - connection.moved_at >= connection.patience)) {
        connection.is_probed = true;
        connection.probed_at = now;
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

void ShardConnections::probe(ShardIndex shard) {
  const Shard& asked = connections_[shard]->shard;
  auto done = [this, shard](const Status& status) { take_probe(shard, status); };
  if (asked.probe) {
    asked.probe(std::move(done));
  } else {
    asked.service->info([done = std::move(done)](const Result<std::vector<TableInfo>>& infos) {
      done(infos.status());
    });
  }
}

void ShardConnections::take_probe(ShardIndex shard, const Status& status) {
  // A shard that refuses us is there; requests will say so.
  const bool is_gone = status.code() == StatusCode::kUnavailable ||
                       status.code() == StatusCode::kCancelled ||
                       status.code() == StatusCode::kDeadlineExceeded;
  Connection& connection = *connections_[shard];
  bool is_back = false;
  {
    MutexLock lock(mutex_);
    is_back = !is_gone && !connection.is_up && !is_closed_;
    if (!is_back) connection.is_probed = false;
    if (!is_gone && !is_back) {
      connection.moved_at = clock_.now();
      connection.patience = std::min(2 * connection.patience, options_.probe_interval_max);
    }
  }
  if (is_back) {
    events_.on_return(shard, [this, shard](const Status& returned) {
      if (returned.ok()) come_back(shard);
      {
        MutexLock lock(mutex_);
        connections_[shard]->is_probed = false;
      }
      leave();
    });
    return;
  }
  if (is_gone) lose(shard, status);
  leave();
}

void ShardConnections::come_back(ShardIndex shard) {
  Connection& connection = *connections_[shard];
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    connection.moved_at = clock_.now();
    connection.is_up.store(true, std::memory_order_release);
  }
  events_.on_change();
  log_message(LogLevel::kInfo, format("{} answers again", connection.text));
}

void ShardConnections::close() {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    is_closed_ = true;
  }
  for (const auto& connection : connections_) connection->shard.service->close();
}

}  // namespace reverie
