// ShardSampler: samples from several shards as if they were one table's. The shell around
// shard_sampler_core.h, which splits requests, hedges, retries and merges.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_connections.h"
#include "reverie/shards/shard_sampler_core.h"

namespace reverie {

// Thread-safe. No completion runs under its lock.
class ShardSampler {
 public:
  using Done = ShardSamplerCore::Done;
  // Called for every item that a shard gave.
  using Seen = std::function<void(std::span<const ItemKey> keys, ShardIndex shard)>;

  // Deadlines are on `clock`, hedges on `retry_clock`, which `timers` runs on. All outlive this;
  // before it is destroyed, `timers` must be stopped and `connections` closed.
  ShardSampler(ShardConnections& connections, const ShardSamplerOptions& options,
               const Clock& clock, const Clock& retry_clock, TimerQueue& timers, Seen seen);

  // See ReplayService::sample; `id` is for cancel().
  void sample(RequestId id, SampleRequest request, Done done);
  // Completes it with CANCELLED and the samples that it has.
  void cancel(RequestId id);
  // A shard went down or came up.
  void on_connections_changed();
  // See ShardSamplerCore.
  void on_reset(std::string_view table, ShardIndex shard);
  void learn(std::span<const TableInfo> infos);
  void learn_sizes(ShardIndex shard, std::span<const TableInfo> infos);
  bool must_learn(std::string_view table);
  // Asks no shard any more: samples that still arrive go to waiting requests.
  void stop();
  // Completes all with CANCELLED and what they have. Requires stop() and the connections' close().
  void close();

 private:
  using Work = ShardSamplerCore::Work;
  using ShardQueryPtr = std::shared_ptr<ShardSamplerCore::ShardQuery>;

  // Runs an event of the core under the lock, then the work that it leaves.
  template <typename Event>
  void apply(Event event);
  void query(const ShardQueryPtr& query);
  void ask_sizes(ShardIndex shard);

  ShardConnections& connections_;
  const Seen seen_;
  Alarm alarm_;
  Mutex mutex_;
  ShardSamplerCore core_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
