// Tested in tests/integration/sharded_store_test.cc.
#include "reverie/shards/shard_sampler.h"

#include <utility>

namespace reverie {

ShardSampler::ShardSampler(ShardConnections& connections, const ShardSamplerOptions& options,
                           const Clock& clock, const Clock& retry_clock, TimerQueue& timers,
                           Seen seen)
    : connections_(connections),
      seen_(std::move(seen)),
      alarm_(timers,
             [this] { apply([](ShardSamplerCore& core, Work& work) { core.on_alarm(work); }); }),
      core_({connections.size(),
             [&connections](ShardIndex shard) { return connections.is_up(shard); },
             [&connections] { return connections.none_answers(); }},
            options, clock, retry_clock) {}

template <typename Event>
void ShardSampler::apply(Event event) {
  Work work;
  {
    MutexLock lock(mutex_);
    event(core_, work);
  }
  if (work.wake != TimePoint::max()) alarm_.set(work.wake);
  for (auto& [done, result] : work.ends) done(std::move(result));
  for (const ShardIndex shard : work.sizes_of) ask_sizes(shard);
  for (const ShardQueryPtr& made : work.queries) query(made);
}

void ShardSampler::query(const ShardQueryPtr& query) {
  SampleRequest request;
  request.table = query->table;
  request.count = query->count_max;
  request.min_count = query->count;
  request.deadline = query->deadline;
  request.batch = std::move(query->batch);
  const ShardCall call = connections_.call<SampleResult>(
      query->shard,
      [&request](ReplayService& service, Done done) {
        return service.sample(std::move(request), std::move(done));
      },
      [this, query](SampleResult result) {
        if (!result.batch.empty()) seen_(result.batch.keys(), query->shard);
        apply([&](ShardSamplerCore& core, Work& work) {
          core.on_result(query, std::move(result), work);
        });
      });
  bool is_cancelled = false;
  {
    MutexLock lock(mutex_);
    is_cancelled = core_.attach(query, call);
  }
  if (is_cancelled) connections_.cancel(call);
}

void ShardSampler::ask_sizes(ShardIndex shard) {
  using Infos = Result<std::vector<TableInfo>>;
  connections_.call<Infos>(
      shard,
      [](ReplayService& service, ReplayService::Done<Infos> done) {
        return service.info(std::move(done));
      },
      [this, shard](const Infos& infos) {
        if (infos.ok()) learn_sizes(shard, *infos);
      });
}

void ShardSampler::sample(RequestId id, SampleRequest request, Done done) {
  request.batch.clear();  // not under the lock: its pins call their tables
  apply([&](ShardSamplerCore& core, Work& work) {
    core.sample(id, std::move(request), std::move(done), work);
  });
}

void ShardSampler::cancel(RequestId id) {
  std::vector<ShardCall> calls;
  {
    MutexLock lock(mutex_);
    calls = core_.begin_cancel(id);
  }
  // Calls that complete at once return the samples that they have drawn.
  for (const ShardCall& call : calls) connections_.cancel(call);
  apply([&](ShardSamplerCore& core, Work& work) { core.end_cancel(id, work); });
}

void ShardSampler::on_connections_changed() {
  apply([](ShardSamplerCore& core, Work& work) { core.on_shards_changed(work); });
}

void ShardSampler::on_reset(std::string_view table, ShardIndex shard) {
  apply([&](ShardSamplerCore& core, Work& work) { core.on_reset(table, shard, work); });
}

void ShardSampler::learn(std::span<const TableInfo> infos) {
  MutexLock lock(mutex_);
  core_.learn(infos);
}

void ShardSampler::learn_sizes(ShardIndex shard, std::span<const TableInfo> infos) {
  MutexLock lock(mutex_);
  core_.learn_sizes(shard, infos);
}

bool ShardSampler::must_learn(std::string_view table) {
  MutexLock lock(mutex_);
  return core_.must_learn(table);
}

void ShardSampler::stop() {
  MutexLock lock(mutex_);
  core_.stop();
}

void ShardSampler::close() {
  apply([](ShardSamplerCore& core, Work& work) { core.close(work); });
}

}  // namespace reverie
