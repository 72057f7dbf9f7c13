// ShardedService: one store that is spread over several services.
//
//     writers --episode by episode, in turn--> [ shard 0 ] --each its part--> samples, merged
//                                              [ shard 1 ]
//                 priorities, deletions   <--> [ shard 2 ]   to the shard that has the key
//
// - An episode's items go to one shard, so that they share its chunks; each new episode takes the
//   next shard, and so does each item that belongs to no episode. An insert whose shard is lost
//   goes to another (shard_placement.h).
// - Samples come from all shards; a slow one delays no request (shard_sampler_core.h).
// - Tickets are keys. An update goes to the shard that has the item, if that is remembered from its
//   sampling; else to all shards.
// - reset() and info() go to all. The info of a table describes the whole: counts and sizes are
//   sums, max_size and max_bytes included; other options are the first shard's.
// - A shard that does not answer (rules in shard_health.h) is left out: the others give its part of
//   the samples, priorities for its items count as missing, deletions and resets return UNAVAILABLE
//   after the others did theirs. When no shard answers, inserts, samples and info() wait for one,
//   up to retry_time, then fail with UNAVAILABLE (retry_queue.h).
//
// - An item whose insert was not confirmed when its shard was lost goes to another. The first may
//   still have it: it is deleted there before that shard is used again. So an item is in one shard
//   only, as long as this object lives.
//
// These hold for each shard but not for the whole: the order of a table, and that a refused batch
// of updates changes nothing. Distinct samples are refused.
//
// See docs/concepts/shards.md for what a lost shard loses, limiters, and weights.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/table_describer.h"
#include "reverie/shards/retry_queue.h"
#include "reverie/shards/shard_connections.h"
#include "reverie/shards/shard_directory.h"
#include "reverie/shards/shard_placement.h"
#include "reverie/shards/shard_sampler.h"

namespace reverie {

struct ShardedOptions {
  ShardConnectionOptions connections = {};
  ShardSamplerOptions sampler = {};
  // How long a request waits while no shard answers. Also sets the sampler's retry_time.
  Duration retry_time = Duration::max();
  Clock* clock = nullptr;        // for deadlines, the shards' too; null: the system's
  Clock* retry_clock = nullptr;  // for hedges and probes; null: the system's
};

// The state of one shard.
struct ShardState {
  std::string name;
  bool is_up = true;
  Status why;  // it is not
};

// Thread-safe. Must not be destroyed by one of its completions.
class ShardedService final : public ReplayService, public TableDescriber {
 public:
  static constexpr std::size_t kShardsMax = 1024;

  // INVALID_ARGUMENT if there are no or more than kShardsMax shards, or two have one name. Closes
  // the services when it is closed.
  static Result<std::shared_ptr<ShardedService>> open(std::vector<Shard> shards,
                                                      ShardedOptions options = {});
  ~ShardedService() override;

  RequestId insert(InsertRequest request, Done<InsertResult> done) override;
  RequestId sample(SampleRequest request, Done<SampleResult> done) override;
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override;
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override;
  RequestId reset(std::string_view table, Done<Status> done) override;
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override;
  RequestId describe(Done<Result<std::vector<TableInfo>>> done) override;
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override;
  Status why_unreachable() override {
    return all_up().empty() ? connections_.none_answers() : Status();
  }
  void cancel(RequestId id) override;
  void close() override;

  std::vector<ShardState> shards() const;

 private:
  struct Insert;
  template <typename T>
  struct FanOut;
  // A request that has not ended.
  struct Pending {
    std::function<void()> cancel;
    bool is_cancelled = false;  // whatever it does next: it may be between two calls
  };
  using Infos = std::vector<TableInfo>;

  ShardedService(std::vector<Shard> shards, const ShardedOptions& options);

  RequestId begin(std::function<void()> cancel);
  void end(RequestId id);
  RequestId if_pending(RequestId id);
  bool is_closed() const;
  static Status closed_status();
  static Status cancelled_status();

  // --- sharded_inserts.cc
  void send(const std::shared_ptr<Insert>& insert);
  void on_inserted(const std::shared_ptr<Insert>& insert, ShardIndex shard, InsertResult result);
  void complete(const std::shared_ptr<Insert>& insert, Status status);
  void on_return(ShardIndex shard, const std::function<void(Status)>& done);
  void warn_of_strays();
  void delete_strays(ShardIndex shard, const std::function<void(Status)>& done);

  // --- sharded_service.cc
  // Requests info() of all shards that are up; completes with all answers, or with the first.
  RequestId query_info(bool is_one_enough, const Done<Result<Infos>>& done);
  void send_info(RequestId id, bool is_one_enough, const Done<Result<Infos>>& done);

  // Asks each of `to`, then passes all answers to `done`; empty ones for shards that were not
  // asked. With id 0 it begins and ends the request; else `done` ends it. After an answer that
  // `is_enough`, it does not wait for the others.
  template <typename T, typename Start>
  RequestId fan_out(RequestId id, const std::vector<ShardIndex>& to, Start start,
                    std::function<void(std::vector<std::optional<T>>)> done,
                    std::function<bool(const T&)> is_enough = {});
  std::vector<ShardIndex> all_up() const;

  void park(RequestId id, TimePoint deadline, std::function<void(const Status&)> go);
  void unpark(RequestId id, const Status& status);
  void wake_parked();
  void retry_parked();
  void on_connections_changed();

  const ForkGuard fork_guard_;
  Clock& clock_;
  TimerQueue timers_;
  ShardConnections connections_;
  ShardSampler sampler_;
  Alarm park_alarm_;
  Clock& retry_clock_;
  const Duration retry_time_;

  mutable Mutex mutex_;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::map<RequestId, Pending> pending_ REVERIE_GUARDED_BY(mutex_);
  RetryQueue parked_ REVERIE_GUARDED_BY(mutex_);  // until a shard is up
  ShardPlacement placement_ REVERIE_GUARDED_BY(mutex_);
  Mutex keys_mutex_;
  ShardDirectory keys_ REVERIE_GUARDED_BY(keys_mutex_){16};  // 262144 of them
};

}  // namespace reverie
