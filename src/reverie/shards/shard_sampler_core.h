// ShardSamplerCore: samples of one table on several shards, merged; a state machine without lock,
// thread or socket.
//
//     request for 64 --split--> 22 of A, 21 of B, 21 of C          each shard's part
//                               A and B answer, C is late
//                     --------> 11 of A, 10 of B                   after the hedge: done without C
//                               C answers after all: its 21 wait
//     request for 64 ---------> 21 that wait, 22 of A, 21 of B ...
//
// A late shard keeps one request per table under way and is asked for nothing more until it has
// answered, so it costs one hedge, not one per batch. What it draws is handed out first next time:
// nothing drawn is lost while this lives. A shard is late when it takes three times as long as
// answers that did not wait for a limiter usually take, but at least hedge_min.
//
// A shard is asked with a deadline of its own, ask_time: one that has less than its part hands out
// what it has by then, and the others are asked for the rest. So a batch comes whenever the shards
// together hold it, however it lies.
//
// Probabilities are those of the whole: shard_quotas.h has the rule. table_size is the sum of the
// sizes that the shards last told, with their samples. One that has no samples to give is asked for
// its sizes, as it may have become empty.
//
// Each event returns what is to be done about it (Work). ShardSampler is the shell that locks, asks
// the shards and completes requests.
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
  // For how long a shard may gather what it is asked for.
  Duration ask_time = std::chrono::milliseconds(100);
  // How long after a request's deadline an answer may still come in.
  Duration answer_grace = std::chrono::milliseconds(250);
  // Between questions for the sizes of a shard that has no samples to give.
  Duration size_interval = std::chrono::milliseconds(500);
};

// Not thread-safe.
class ShardSamplerCore {
 private:
  struct Draw;
  struct Pool;

 public:
  using Done = ReplayService::Done<SampleResult>;

  // What it looks up of the shards.
  struct Shards {
    std::size_t count = 0;
    std::function<bool(ShardIndex)> is_up;
    std::function<Status()> none_answers;  // where all are down
  };

  // A request to one shard.
  struct Ask {
    std::string_view table;
    ShardIndex shard = 0;
    std::size_t count = 0;      // that its request counts on
    std::size_t count_max = 0;  // that are welcome
    TimePoint deadline;
    SampleBatch batch;  // to be filled

   private:
    friend class ShardSamplerCore;
    Pool* pool_ = nullptr;
    std::shared_ptr<Draw> draw_;  // null once that one is over
    TimePoint asked_at_;
    bool is_late_ = false;
    ShardCall call_;
    bool has_call_ = false;
  };

  // What an event makes the shell do, under no lock.
  struct Work {
    std::vector<std::pair<Done, SampleResult>> ends;  // to be completed
    std::vector<ShardIndex> sizes_of;                 // to be asked for their sizes
    std::vector<std::shared_ptr<Ask>> asks;           // to be asked, then attach()ed
    TimePoint wake = TimePoint::max();                // of retry_clock: on_alarm() is due
  };

  // Deadlines are of `clock`, hedges of `retry_clock`. Both outlive this.
  ShardSamplerCore(Shards shards, const ShardSamplerOptions& options, const Clock& clock,
                   const Clock& retry_clock);
  ~ShardSamplerCore();

  // See ReplayService::sample; `id` is for begin_cancel(). Requires an empty request.batch.
  void sample(RequestId id, SampleRequest request, Done done, Work& work);
  // The call that asks it was made. Whether it is to be cancelled.
  bool attach(const std::shared_ptr<Ask>& ask, const ShardCall& call);
  void on_result(const std::shared_ptr<Ask>& ask, SampleResult result, Work& work);
  void on_alarm(Work& work);
  // A shard went down or came up.
  void on_shards_changed(Work& work);

  // A request is cancelled in two steps: those of its calls that complete at once when they are
  // cancelled bring what they had drawn before end_cancel() completes it with CANCELLED.
  std::vector<ShardCall> begin_cancel(RequestId id);
  void end_cancel(RequestId id, Work& work);

  // What the tables' samplers raise priorities to: for shards that do not tell their mass.
  void learn(std::span<const TableInfo> infos);
  // Whether it is time to learn() that of a table.
  bool must_learn(std::string_view table);
  // How large a shard's tables are: of those that it gave samples of, which told before.
  void learn_sizes(ShardIndex shard, std::span<const TableInfo> infos);

  // Asks no shard any more: what comes is for those that wait.
  void stop() { is_closed_ = true; }
  // Completes all with CANCELLED and what they have. After stop().
  void close(Work& work);

 private:
  enum class Turn : std::uint8_t { kIdle, kAsked, kSpent };  // spent: its time was up there
  using DrawPtr = std::shared_ptr<Draw>;

  Pool& pool_of(std::string_view table);
  // Does what can be done for a draw: hands out what is there, asks shards that are free, or gives
  // up.
  void step(const DrawPtr& draw, Work& work);
  void step_all(Pool& pool, Work& work);
  // Where no shard can be asked: waits for one, or ends it.
  void wait_or_give_up(const DrawPtr& draw, bool is_any_late, bool is_any_spent, Work& work);
  void take_leftovers(Draw& draw);
  void ask(const DrawPtr& draw, std::size_t count, std::span<const std::uint8_t> is_open,
           Work& work);
  // Hands a draw what came for it.
  void hand_over(const DrawPtr& draw, const std::shared_ptr<Ask>& ask, SampleResult& result,
                 std::size_t& taken, Work& work);
  void finish(const DrawPtr& draw, Status status, Work& work);
  // Makes what the shards said of themselves true of the whole.
  void weigh(Draw& draw);
  void note(Pool& pool, const Ask& ask, const SampleResult& result, Work& work);
  void note_mass(Pool& pool, ShardIndex shard, const SampleBatch& batch);
  void note_empty(const Pool& pool, ShardIndex shard, Work& work);
  Status timed_out(const Draw& draw, std::string_view why) const;
  TimePoint retry_time_of(TimePoint deadline) const;

  const Shards shards_;
  const ShardSamplerOptions options_;
  const Clock& clock_;
  const Clock& retry_clock_;
  std::map<std::string, std::unique_ptr<Pool>, std::less<>> pools_;
  std::vector<TimePoint> ask_sizes_at_;  // by shard, of retry_clock: not before
  bool is_closed_ = false;
};

}  // namespace reverie
