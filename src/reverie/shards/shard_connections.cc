// Tested in tests/integration/sharded_store_test.cc.
#include "reverie/shards/shard_connections.h"

#include "reverie/base/log.h"

namespace reverie {
namespace {

std::string text_of(const std::vector<Shard>& shards, std::size_t index) {
  if (shards.size() == 1) return shards[index].name;
  return format("shard {} of {} ({})", index, shards.size(), shards[index].name);
}

std::vector<std::string> texts_of(const std::vector<Shard>& shards) {
  std::vector<std::string> texts;
  for (std::size_t s = 0; s < shards.size(); ++s) texts.push_back(text_of(shards, s));
  return texts;
}

}  // namespace

ShardConnections::ShardConnections(std::vector<Shard> shards, const ShardConnectionOptions& options,
                                   Clock& clock, TimerQueue& timers, Events events)
    : options_(options),
      clock_(clock),
      events_(std::move(events)),
      endpoints_([&shards] {
        std::vector<std::unique_ptr<Endpoint>> endpoints;
        for (std::size_t s = 0; s < shards.size(); ++s) {
          auto endpoint = std::make_unique<Endpoint>();
          endpoint->text = text_of(shards, s);
          endpoint->shard = shards[s];
          endpoints.push_back(std::move(endpoint));
        }
        return endpoints;
      }()),
      alarm_(timers, [this] { check_health(); }),
      health_(texts_of(shards), options) {}

void ShardConnections::drain() {
  MutexLock lock(mutex_);
  while (under_way_ > 0) left_.wait(mutex_);
}

Status ShardConnections::why_down(ShardIndex shard) const {
  MutexLock lock(mutex_);
  return health_.why_down(shard);
}

Status ShardConnections::none_answers() const {
  MutexLock lock(mutex_);
  return health_.none_answers();
}

ShardCall ShardConnections::open_call(ShardIndex shard) {
  const TimePoint now = clock_.now();
  MutexLock lock(mutex_);
  ++under_way_;
  return health_.open_call(shard, now);
}

void ShardConnections::attach(const Call& call, RequestId request) {
  ShardHealth::Attached attached{};
  {
    MutexLock lock(mutex_);
    attached = health_.attach(call, request);
  }
  if (attached == ShardHealth::Attached::kOver) return;
  alarm_.set(clock_.now() + options_.probe_interval);
  if (attached == ShardHealth::Attached::kMustCancel)
    endpoints_[call.shard]->shard.service->cancel(request);
}

void ShardConnections::cancel(const Call& call) {
  RequestId request = 0;
  {
    MutexLock lock(mutex_);
    request = health_.cancel(call);
  }
  if (request != 0) endpoints_[call.shard]->shard.service->cancel(request);
}

Status ShardConnections::end_call(const Call& call, Status status) {
  const TimePoint now = clock_.now();
  ShardHealth::Ended ended;
  const Status said = status;
  {
    MutexLock lock(mutex_);
    ended = health_.end_call(call, std::move(status), now);
  }
  if (ended.is_gone) lose(call.shard, said);
  return std::move(ended.told);
}

void ShardConnections::leave() {
  MutexLock lock(mutex_);
  if (--under_way_ == 0) left_.notify_all();
}

void ShardConnections::lose(ShardIndex shard, const Status& why) {
  Endpoint& endpoint = *endpoints_[shard];
  std::optional<std::vector<RequestId>> lost;
  {
    MutexLock lock(mutex_);
    lost = health_.lose(shard, why);
    if (lost) endpoint.is_up.store(false, std::memory_order_release);
  }
  if (!lost) return;
  for (const RequestId request : *lost) endpoint.shard.service->cancel(request);
  events_.on_change();
  alarm_.set(clock_.now() + options_.probe_interval);
  // Last: the log's sink may block this thread, and requests must not wait for it.
  log_warning("{} does not answer and is left out until it does: {}", endpoint.text, why.message());
}

void ShardConnections::check_health() {
  const TimePoint now = clock_.now();
  ShardHealth::Checkup checkup;
  {
    MutexLock lock(mutex_);
    checkup = health_.check_health(now);
    under_way_ += checkup.to_probe.size();
  }
  if (checkup.is_needed) alarm_.set(now + options_.probe_interval);
  for (const ShardIndex shard : checkup.silent) lose(shard, checkup.silence);
  for (const ShardIndex shard : checkup.to_probe) probe(shard);
}

void ShardConnections::probe(ShardIndex shard) {
  const Shard& asked = endpoints_[shard]->shard;
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
  const TimePoint now = clock_.now();
  ShardHealth::Probed probed{};
  {
    MutexLock lock(mutex_);
    probed = health_.take_probe(shard, status, now);
  }
  if (probed == ShardHealth::Probed::kReturning) {
    events_.on_return(shard, [this, shard](const Status& repaired) {
      end_return(shard, repaired);
      leave();
    });
    return;
  }
  if (probed == ShardHealth::Probed::kGone) lose(shard, status);
  leave();
}

void ShardConnections::end_return(ShardIndex shard, const Status& repaired) {
  const TimePoint now = clock_.now();
  bool is_back = false;
  {
    MutexLock lock(mutex_);
    is_back = health_.end_return(shard, repaired.ok(), now);
    if (is_back) endpoints_[shard]->is_up.store(true, std::memory_order_release);
  }
  if (!is_back) return;
  events_.on_change();
  log_message(LogLevel::kInfo, format("{} answers again", endpoints_[shard]->text));
}

void ShardConnections::close() {
  {
    MutexLock lock(mutex_);
    if (health_.is_closed()) return;
    health_.close();
  }
  for (const auto& endpoint : endpoints_) endpoint->shard.service->close();
}

}  // namespace reverie
