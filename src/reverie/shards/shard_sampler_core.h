// ShardSamplerCore: samples of one table on several shards, merged; a state machine without lock,
// thread or socket.
//
//     request for 64 --split--> 22 of A, 21 of B, 21 of C          each shard's part
//                               A and B answer, C is late
//                     --------> 11 of A, 10 of B                   after the hedge: done without C
//                               C answers after all: its 21 wait
//     request for 64 ---------> 21 that wait, 22 of A, 21 of B ...
//
// A late shard has one pending request per table and is asked for nothing more until it has
// answered, so it costs one hedge, not one per batch. Its samples are used first next time: no draw
// is lost while this object lives, except by a reset. A shard is late when it takes three times as
// long as answers usually take when no limiter delays them, but at least hedge_min.
//
// A request to a shard has its own deadline, query_timeout: a shard with less than its part returns
// what it has by then, and the others are asked for the rest. So a batch is complete whenever the
// shards together have enough items, however they are distributed.
//
// Probabilities are those of the whole store: the rule is in shard_quotas.h. table_size is the sum
// of the sizes that the shards last reported with their samples. A shard that has no samples to
// give is asked for its sizes, since it may have become empty.
//
// Each event returns the work to do (Work). ShardSampler is the shell that locks, asks the shards
// and completes requests.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_health.h"
#include "reverie/shards/shard_quotas.h"

namespace reverie {

struct ShardSamplerOptions {
  ShardSampling sampling = ShardSampling::kEven;
  Duration hedge_min = std::chrono::milliseconds(5);
  Duration hedge_max = std::chrono::seconds(1);
  // How long a request waits while no shard answers.
  Duration retry_time = Duration::max();
  // How long a shard may take to collect what it is asked for.
  Duration query_timeout = std::chrono::milliseconds(100);
  // How long after a request's deadline an answer may still arrive.
  Duration answer_grace = std::chrono::milliseconds(250);
  // The time between requests for the sizes of a shard that has no samples to give.
  Duration size_interval = std::chrono::milliseconds(500);
};

// Not thread-safe.
class ShardSamplerCore {
 private:
  struct Draw;
  struct Pool;

 public:
  using Done = ReplayService::Done<SampleResult>;

  // What it needs to know about the shards.
  struct Shards {
    std::size_t count = 0;
    std::function<bool(ShardIndex)> is_up;
    std::function<Status()> none_answers;  // when all are down
  };

  // A request to one shard.
  struct ShardQuery {
    std::string_view table;
    ShardIndex shard = 0;
    std::size_t count = 0;      // that its request relies on
    std::size_t count_max = 0;  // at most
    TimePoint deadline;
    SampleBatch batch;  // to fill

   private:
    friend class ShardSamplerCore;
    Pool* pool_ = nullptr;
    std::shared_ptr<Draw> draw_;  // null once that draw is over
    TimePoint asked_at_;
    std::uint64_t epoch_ = 0;
    bool is_late_ = false;
    ShardCall call_;
    bool has_call_ = false;
  };

  // What the shell must do after an event, under no lock.
  struct Work {
    std::vector<std::pair<Done, SampleResult>> ends;   // to complete
    std::vector<ShardIndex> sizes_of;                  // to ask for their sizes
    std::vector<std::shared_ptr<ShardQuery>> queries;  // to ask, then attach()
    std::vector<SampleBatch> dropped;                  // to free
    TimePoint wake = TimePoint::max();                 // on retry_clock: when on_alarm() is due
  };

  // Deadlines are on `clock`, hedges on `retry_clock`. Both outlive this.
  ShardSamplerCore(Shards shards, const ShardSamplerOptions& options, const Clock& clock,
                   const Clock& retry_clock);
  ~ShardSamplerCore();

  // See ReplayService::sample; `id` is for begin_cancel(). Requires an empty request.batch.
  void sample(RequestId id, SampleRequest request, Done done, Work& work);
  // The call for it was made. Returns whether to cancel it.
  bool attach(const std::shared_ptr<ShardQuery>& query, const ShardCall& call);
  void on_result(const std::shared_ptr<ShardQuery>& query, SampleResult result, Work& work);
  void on_alarm(Work& work);
  // A shard went down or came up.
  void on_shards_changed(Work& work);

  // A shard's table was reset, or may have been. Its samples that wait are dropped, and so are
  // those that were requested before and have no request that waits for them: they may be of items
  // that are gone. Its size is not known until it answers again.
  void on_reset(std::string_view table, ShardIndex shard, Work& work);

  // A request is cancelled in two steps, so that calls that complete at once when they are
  // cancelled can deliver what they have drawn before end_cancel() completes it with CANCELLED.
  std::vector<ShardCall> begin_cancel(RequestId id);
  void end_cancel(RequestId id, Work& work);

  // Learns the tables' priority exponents, for shards that do not report their mass.
  void learn(std::span<const TableInfo> infos);
  // Whether learn() must be called for a table.
  bool must_learn(std::string_view table);
  // Learns the sizes of a shard's tables, for those that it has given samples of before.
  void learn_sizes(ShardIndex shard, std::span<const TableInfo> infos);

  // Asks no shard any more: samples that still arrive go to waiting requests.
  void stop() { is_closed_ = true; }
  // Completes all requests with CANCELLED and what they have. Call it after stop().
  void close(Work& work);

 private:
  enum class Turn : std::uint8_t { kIdle, kAsked, kSpent };  // spent: its time was up there
  using DrawPtr = std::shared_ptr<Draw>;

  Pool& pool_of(std::string_view table);
  // Advances a draw: uses samples that are there, asks shards that are free, or ends
  // it.
  void step(const DrawPtr& draw, Work& work);
  void step_all(Pool& pool, Work& work);
  // If no shard can be asked: waits for one, or ends the draw.
  void wait_or_give_up(const DrawPtr& draw, bool is_any_late, bool is_any_spent, Work& work);
  void take_leftovers(Draw& draw);
  void query(const DrawPtr& draw, std::size_t count, std::span<const std::uint8_t> is_open,
             Work& work);
  // Adds arrived samples to a draw.
  void deliver_samples(const DrawPtr& draw, const std::shared_ptr<ShardQuery>& query,
                       SampleResult& result, std::size_t& taken, Work& work);
  void finish(const DrawPtr& draw, Status status, Work& work);
  // Converts probabilities and sizes of shards to those of the whole store.
  void weigh(Draw& draw);
  void note(Pool& pool, const ShardQuery& query, const SampleResult& result, Work& work);
  void note_mass(Pool& pool, ShardIndex shard, const SampleBatch& batch);
  void note_empty(const Pool& pool, ShardIndex shard, Work& work);
  Status timed_out(const Draw& draw, std::string_view why) const;
  TimePoint retry_time_of(TimePoint deadline) const;

  const Shards shards_;
  const ShardSamplerOptions options_;
  const Clock& clock_;
  const Clock& retry_clock_;
  std::map<std::string, std::unique_ptr<Pool>, std::less<>> pools_;
  std::vector<TimePoint> ask_sizes_at_;  // by shard, on retry_clock: not earlier
  bool is_closed_ = false;
};

}  // namespace reverie
