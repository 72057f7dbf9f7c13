// ShardSampler: samples of one table on several shards, merged.
//
//     request for 64 --split--> 22 of A, 21 of B, 21 of C          each shard's part
//                               A and B answer, C is late
//                     --------> 11 of A, 10 of B                   after the hedge: done without C
//                               C answers after all: its 21 wait
//     request for 64 ---------> 21 that wait, 22 of A, 21 of B ...
//
// A shard that is late keeps one request under way a table and is asked for nothing more until it
// has answered, so it costs one hedge, not one a batch. What it draws is handed out first next
// time: nothing drawn is lost while this lives. Late is who takes three times as long as answers
// that did not wait for a limiter usually take, but at least hedge_min.
//
// A shard is asked with a deadline of its own, ask_time: one that has less than its part hands out
// what it has by then, and the others are asked for the rest. So a batch comes whenever the shards
// together hold it, however it lies.
//
// Probabilities are those of the whole: shard_quotas.h has the rule. table_size is the sum of the
// sizes that the shards last told, with their samples. One that has none to give is asked for its
// sizes, as it may have become empty.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_connections.h"
#include "reverie/shards/shard_quotas.h"

namespace reverie {

struct ShardSamplerOptions {
  ShardSampling sampling = ShardSampling::kEven;
  Duration hedge_min = std::chrono::milliseconds(5);
  Duration hedge_max = std::chrono::seconds(1);
  // For how long a request waits while no shard answers.
  Duration retry_time = Duration::max();
  // For how long a shard may gather what it is asked for.
  Duration ask_time = std::chrono::milliseconds(100);
  // How long after a request's deadline an answer may still come in.
  Duration answer_grace = std::chrono::milliseconds(250);
  // Between questions for the sizes of a shard that has no samples to give.
  Duration size_interval = std::chrono::milliseconds(500);
};

// Thread-safe. No completion runs under its lock.
class ShardSampler {
 public:
  using Done = ReplayService::Done<SampleResult>;
  // Told of every item that a shard gave.
  using Seen = std::function<void(std::span<const ItemKey> keys, ShardIndex shard)>;

  // Deadlines are of `clock`, hedges of `retry_clock`, which `timers` runs on. All outlive this,
  // and `timers` is stopped and `connections` closed before it ends.
  ShardSampler(ShardConnections& connections, const ShardSamplerOptions& options, Clock& clock,
               Clock& retry_clock, TimerQueue& timers, Seen seen);

  // See ReplayService::sample; `id` is for cancel().
  void sample(RequestId id, SampleRequest request, Done done);
  // Completes it with CANCELLED and what it has.
  void cancel(RequestId id);
  // A connection went down or came up.
  void on_connections_changed();
  // What the tables draw by, which kMass must know.
  void learn(std::span<const TableInfo> infos);
  // How large a shard's tables are: of those that it gave samples of, which told before.
  void learn_sizes(ShardIndex shard, std::span<const TableInfo> infos);
  // Whether it is time to learn() what the table draws by.
  bool must_learn(std::string_view table);
  // Asks nobody any more: what comes is for those that wait.
  void stop();
  // Completes all with CANCELLED and what they have. After stop(), and the connections' close().
  void close();

 private:
  enum class Turn : std::uint8_t { kIdle, kAsked, kSpent };  // spent: its time was up there
  struct Draw;
  struct Pool;
  // A request to one shard.
  struct Ask {
    std::shared_ptr<Draw> draw;  // null once that one is over
    Pool* pool = nullptr;
    ShardIndex shard = 0;
    std::size_t count = 0;      // that the draw counts on
    std::size_t count_max = 0;  // that are welcome
    TimePoint deadline;
    TimePoint asked_at;
    bool is_late = false;
    ShardConnections::Call call;  // once has_call
    bool has_call = false;
    SampleBatch batch;
  };
  struct Draw {
    RequestId id = 0;
    Pool* pool = nullptr;
    std::size_t min_count = 0;
    std::size_t count = 0;
    TimePoint deadline;
    Done done;
    SampleBatch batch;
    std::vector<Turn> turns;
    std::vector<std::shared_ptr<Ask>> asks;  // under way
    std::size_t coming = 0;                  // samples of asks that are not late
    TimePoint hedge_at = TimePoint::max();   // of retry_clock
    TimePoint give_up_at;                    // of retry_clock: while no shard answers
    Status shortage;                         // what a shard said whose time was up
    bool is_cancelled = false;
    bool is_over = false;
  };
  // Drawn for a request that was over by then.
  struct Leftover {
    SampleBatch batch;
    std::size_t begin = 0;
    ShardIndex shard = 0;
  };
  // One table.
  struct Pool {
    Pool(std::string name, std::size_t shard_count, ShardSampling sampling)
        : table(std::move(name)),
          quotas(shard_count, sampling),
          late(shard_count),
          sizes(shard_count) {}
    const std::string table;
    ShardQuotas quotas;
    std::vector<int> late;            // asks under way, by shard, whose draw is over
    std::vector<std::int64_t> sizes;  // that the shards last told; 0 before
    std::deque<Leftover> leftovers;
    std::vector<std::shared_ptr<Draw>> draws;  // that wait, oldest first
    std::vector<SampleBatch> spare;
    double answer_s = 0.02;  // smoothed: how long an answer takes
    bool knows_exponent = false;
    unsigned unknowing = 0;  // requests that came before it was known
    double exponent = 1.0;
  };
  // What is to be done once the lock is let go.
  struct Work {
    std::vector<std::shared_ptr<Ask>> asks;
    std::vector<std::pair<Done, SampleResult>> ends;
    std::vector<ShardIndex> sizes_of;   // to be asked for their sizes
    TimePoint wake = TimePoint::max();  // of retry_clock
  };

  Pool& pool_of(std::string_view table) REVERIE_REQUIRES(mutex_);
  void step(const std::shared_ptr<Draw>& draw, Work& work) REVERIE_REQUIRES(mutex_);
  void take_leftovers(Draw& draw) REVERIE_REQUIRES(mutex_);
  void ask(const std::shared_ptr<Draw>& draw, std::size_t count,
           std::span<const std::uint8_t> is_open, Work& work) REVERIE_REQUIRES(mutex_);
  void finish(const std::shared_ptr<Draw>& draw, Status status, Work& work)
      REVERIE_REQUIRES(mutex_);
  void weigh(Draw& draw) REVERIE_REQUIRES(mutex_);
  void step_all(Pool& pool, Work& work) REVERIE_REQUIRES(mutex_);
  void note(Pool& pool, const Ask& ask, const SampleResult& result, Work& work)
      REVERIE_REQUIRES(mutex_);
  void note_empty(const Pool& pool, ShardIndex shard, Work& work) REVERIE_REQUIRES(mutex_);
  void on_result(const std::shared_ptr<Ask>& ask, SampleResult result);
  void on_alarm();
  void run(Work&& work);
  TimePoint retry_time_of(TimePoint deadline) const;

  ShardConnections& connections_;
  const ShardSamplerOptions options_;
  Clock& clock_;
  Clock& retry_clock_;
  const Seen seen_;
  Alarm alarm_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<Pool>, std::less<>> pools_ REVERIE_GUARDED_BY(mutex_);
  // When a shard may be asked for its sizes again, of retry_clock.
  std::vector<TimePoint> ask_sizes_at_ REVERIE_GUARDED_BY(mutex_);
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
