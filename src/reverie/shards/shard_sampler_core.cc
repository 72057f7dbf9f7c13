#include "reverie/shards/shard_sampler_core.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace reverie {
namespace {

constexpr double kLate = 3.0;  // times the usual answer
constexpr unsigned kRequestsPerQuestion = 64;
constexpr double kSmoothing = 0.1;  // of one answer in the usual one

// The exponent that a server's selector applies to priorities; 0 if it does not use them. Needed
// only for servers that do not report a table's mass: dm-reverb's.
double exponent_of(const ComponentSpec& sampler) {
  if (sampler.name != "Prioritized") return 0.0;
  const auto found = sampler.options.find("priority_exponent");
  if (found == sampler.options.end()) return 1.0;
  if (const auto* number = std::get_if<double>(&found->second)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&found->second)) {
    return static_cast<double>(*integer);
  }
  return 1.0;
}

}  // namespace

struct ShardSamplerCore::Draw {
  RequestId id = 0;
  Pool* pool = nullptr;
  std::size_t min_count = 0;
  std::size_t count = 0;
  TimePoint deadline;
  Done done;
  SampleBatch batch;
  std::vector<Turn> turns;
  std::vector<std::shared_ptr<ShardQuery>> queries;  // under way
  std::size_t expected_samples = 0;                  // samples of asks that are not late
  TimePoint hedge_at = TimePoint::max();             // of retry_clock
  TimePoint give_up_at;                              // of retry_clock: while no shard answers
  Status shortage;                                   // the error of a shard that timed out
  bool is_cancelled = false;
  bool is_over = false;
};

// One table.
struct ShardSamplerCore::Pool {
  // Samples that arrived after their request had ended.
  struct Leftover {
    SampleBatch batch;
    std::size_t begin = 0;
    ShardIndex shard = 0;
  };

  Pool(std::string name, std::size_t shard_count, ShardSampling sampling)
      : table(std::move(name)),
        quotas(shard_count, sampling),
        epochs(shard_count),
        late(shard_count),
        sizes(shard_count) {}

  const std::string table;
  ShardQuotas quotas;
  std::vector<std::uint64_t> epochs;  // by shard: how often it was reset
  std::vector<int> late;              // by shard: asks in progress whose draw has ended
  std::vector<std::int64_t> sizes;    // last reported by the shards; 0 before
  std::deque<Leftover> leftovers;
  std::vector<DrawPtr> draws;  // that wait, oldest first
  std::vector<SampleBatch> spare;
  double answer_s = 0.02;       // smoothed: how long an answer takes
  bool needs_exponent = false;  // some shard does not report its mass
  bool has_exponent = false;
  unsigned queries_without_exponent = 0;  // requests made before it was known
  double exponent = 1.0;
};

ShardSamplerCore::ShardSamplerCore(Shards shards, const ShardSamplerOptions& options,
                                   const Clock& clock, const Clock& retry_clock)
    : shards_(std::move(shards)),
      options_(options),
      clock_(clock),
      retry_clock_(retry_clock),
      ask_sizes_at_(shards_.count, retry_clock.now()) {}

ShardSamplerCore::~ShardSamplerCore() {
  // A draw and its asks refer to each other while it waits.
  for (const auto& [table, pool] : pools_) {
    for (const DrawPtr& draw : pool->draws) draw->queries.clear();
  }
}

ShardSamplerCore::Pool& ShardSamplerCore::pool_of(std::string_view table) {
  const auto found = pools_.find(table);
  if (found != pools_.end()) return *found->second;
  auto pool = std::make_unique<Pool>(std::string(table), shards_.count, options_.sampling);
  return *pools_.emplace(std::string(table), std::move(pool)).first->second;
}

// --- What the tables are --------------------------------------------------------------------

void ShardSamplerCore::learn(std::span<const TableInfo> infos) {
  if (options_.sampling != ShardSampling::kMass) return;
  for (const TableInfo& info : infos) {
    const auto found = pools_.find(info.options.name);
    if (found == pools_.end()) continue;
    found->second->exponent = exponent_of(info.options.sampler);
    found->second->has_exponent = true;
  }
}

bool ShardSamplerCore::must_learn(std::string_view table) {
  if (options_.sampling != ShardSampling::kMass) return false;
  Pool& pool = pool_of(table);
  return pool.needs_exponent && !pool.has_exponent &&
         pool.queries_without_exponent++ % kRequestsPerQuestion == 0;
}

void ShardSamplerCore::learn_sizes(ShardIndex shard, std::span<const TableInfo> infos) {
  for (const auto& [table, pool] : pools_) {
    std::int64_t& size = pool->sizes[shard];
    if (size == 0) continue;
    const auto found = std::ranges::find(
        infos, table, [](const TableInfo& info) -> const auto& { return info.options.name; });
    size = found == infos.end() ? 0 : found->current_size;
  }
}

// --- Requests -------------------------------------------------------------------------------

void ShardSamplerCore::sample(RequestId id, SampleRequest request, Done done, Work& work) {
  auto draw = std::make_shared<Draw>();
  draw->id = id;
  draw->min_count = std::clamp<std::size_t>(request.min_count, 1, request.count);
  draw->count = request.count;
  draw->deadline = request.deadline;
  draw->done = std::move(done);
  draw->batch = std::move(request.batch);
  draw->turns.resize(shards_.count, Turn::kIdle);
  draw->give_up_at = retry_clock_.now() + options_.retry_time;
  draw->pool = &pool_of(request.table);
  draw->pool->draws.push_back(draw);
  if (is_closed_) return finish(draw, cancelled("the client is closed"), work);
  step(draw, work);
}

void ShardSamplerCore::step(const DrawPtr& draw, Work& work) {
  if (draw->is_over || draw->is_cancelled || is_closed_) return;
  Pool& pool = *draw->pool;
  take_leftovers(*draw);
  if (draw->batch.size() >= draw->min_count) return finish(draw, {}, work);
  const std::size_t missing = draw->min_count - draw->batch.size();
  if (draw->expected_samples >= missing) return;

  std::vector<std::uint8_t> is_open(shards_.count);
  bool is_any_open = false;
  bool is_any_late = false;   // of other draws
  bool is_any_spent = false;  // its time was up
  for (std::size_t s = 0; s < shards_.count; ++s) {
    if (!shards_.is_up(static_cast<ShardIndex>(s))) continue;
    is_any_spent |= draw->turns[s] == Turn::kSpent;
    if (draw->turns[s] != Turn::kIdle) continue;
    is_any_late |= pool.late[s] > 0;
    is_open[s] = pool.late[s] == 0;
    is_any_open |= pool.late[s] == 0;
  }
  if (is_any_open) return query(draw, missing - draw->expected_samples, is_open, work);
  if (draw->queries.empty()) wait_or_give_up(draw, is_any_late, is_any_spent, work);
}

void ShardSamplerCore::wait_or_give_up(const DrawPtr& draw, bool is_any_late, bool is_any_spent,
                                       Work& work) {
  const bool has_deadline = draw->deadline != TimePoint::max();
  const bool is_due = has_deadline && clock_.now() >= draw->deadline;
  if (is_any_late && !is_due) {
    if (has_deadline) work.wake = std::min(work.wake, retry_time_of(draw->deadline));
    return;
  }
  if (is_any_late || is_any_spent) {
    return finish(draw,
                  timed_out(*draw, draw->shortage.ok() ? "the shards have requests waiting"
                                                       : draw->shortage.message()),
                  work);
  }
  const Status none = shards_.none_answers();
  if (is_due) return finish(draw, timed_out(*draw, none.message()), work);
  if (retry_clock_.now() >= draw->give_up_at) return finish(draw, none, work);
  work.wake = std::min(work.wake, draw->give_up_at);
  if (has_deadline) work.wake = std::min(work.wake, retry_time_of(draw->deadline));
}

Status ShardSamplerCore::timed_out(const Draw& draw, std::string_view why) const {
  return deadline_exceeded("{} of {} samples were drawn before the deadline; {}", draw.batch.size(),
                           draw.min_count, why);
}

void ShardSamplerCore::take_leftovers(Draw& draw) {
  std::deque<Pool::Leftover>& leftovers = draw.pool->leftovers;
  while (!leftovers.empty() && draw.batch.size() < draw.min_count) {
    Pool::Leftover& leftover = leftovers.front();
    const std::size_t count =
        std::min(draw.min_count - draw.batch.size(), leftover.batch.size() - leftover.begin);
    draw.batch.take(leftover.batch, leftover.begin, count, leftover.shard);
    leftover.begin += count;
    if (leftover.begin >= leftover.batch.size()) leftovers.pop_front();
  }
}

void ShardSamplerCore::query(const DrawPtr& draw, std::size_t count,
                             std::span<const std::uint8_t> is_open, Work& work) {
  Pool& pool = *draw->pool;
  const TimePoint now = retry_clock_.now();
  std::vector<std::size_t> parts(shards_.count);
  pool.quotas.split(count, is_open, parts);
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (parts[s] == 0) continue;
    auto made = std::make_shared<ShardQuery>();
    made->table = pool.table;
    made->shard = static_cast<ShardIndex>(s);
    made->count = parts[s];
    made->count_max = parts[s] + (draw->count - draw->min_count);
    made->deadline = std::min(draw->deadline, clock_.now() + options_.query_timeout);
    made->draw_ = draw;
    made->pool_ = &pool;
    made->asked_at_ = now;
    made->epoch_ = pool.epochs[s];
    if (!pool.spare.empty()) {
      made->batch = std::move(pool.spare.back());
      pool.spare.pop_back();
    }
    draw->turns[s] = Turn::kAsked;
    draw->expected_samples += parts[s];
    draw->queries.push_back(made);
    work.queries.push_back(std::move(made));
  }
  const Duration usual = std::clamp(seconds(kLate * pool.answer_s), options_.hedge_min,
                                    std::max(options_.hedge_min, options_.hedge_max));
  draw->hedge_at = now + usual;
  work.wake = std::min(work.wake, draw->hedge_at);
  if (draw->deadline != TimePoint::max()) {
    work.wake = std::min(work.wake, retry_time_of(draw->deadline) + options_.answer_grace);
  }
}

bool ShardSamplerCore::attach(const std::shared_ptr<ShardQuery>& query, const ShardCall& call) {
  query->call_ = call;
  query->has_call_ = true;
  return query->draw_ && query->draw_->is_cancelled;
}

void ShardSamplerCore::finish(const DrawPtr& draw, Status status, Work& work) {
  draw->is_over = true;
  Pool& pool = *draw->pool;
  std::erase(pool.draws, draw);
  for (const std::shared_ptr<ShardQuery>& query : draw->queries) {
    query->draw_ = nullptr;
    ++pool.late[query->shard];
  }
  draw->queries.clear();
  if (!draw->batch.empty()) weigh(*draw);
  SampleResult result;
  result.status = std::move(status);
  result.batch = std::move(draw->batch);
  work.ends.emplace_back(std::move(draw->done), std::move(result));
}

void ShardSamplerCore::weigh(Draw& draw) {
  Pool& pool = *draw.pool;
  std::vector<std::size_t> counts(shards_.count);
  for (const ShardIndex shard : draw.batch.shards()) ++counts[shard];
  pool.quotas.note_batch(counts);
  std::vector<double> parts(shards_.count);
  std::int64_t size = 0;
  for (std::size_t s = 0; s < shards_.count; ++s) {
    parts[s] = pool.quotas.part(s);
    if (counts[s] > 0 || shards_.is_up(static_cast<ShardIndex>(s))) size += pool.sizes[s];
  }
  const SampleRows rows = draw.batch.rows();
  const std::span<const ShardIndex> shards = draw.batch.shards();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    rows.probabilities[i] *= parts[shards[i]];
    rows.table_sizes[i] = size;
    rows.tickets[i] = rows.keys[i];
  }
  draw.batch.set_table_size(size);
}

// --- Answers --------------------------------------------------------------------------------

void ShardSamplerCore::on_result(const std::shared_ptr<ShardQuery>& query, SampleResult result,
                                 Work& work) {
  Pool& pool = *query->pool_;
  const bool is_old = query->epoch_ != pool.epochs[query->shard];
  if (!is_old) note(pool, *query, result, work);
  const DrawPtr draw = std::move(query->draw_);
  std::size_t taken = 0;
  if (draw) {
    deliver_samples(draw, query, result, taken, work);
  } else {
    --pool.late[query->shard];
  }
  if (result.batch.empty()) {
    if (pool.spare.size() < shards_.count) pool.spare.push_back(std::move(result.batch));
  } else if (is_old) {
    work.dropped.push_back(std::move(result.batch));
  } else {
    pool.leftovers.push_back({std::move(result.batch), taken, query->shard});
    // Pins delay freeing in their tables, and these samples may wait for long.
    pool.leftovers.back().batch.retain();
  }
  if (!pool.draws.empty()) step_all(pool, work);
}

void ShardSamplerCore::deliver_samples(const DrawPtr& draw,
                                       const std::shared_ptr<ShardQuery>& query,
                                       SampleResult& result, std::size_t& taken, Work& work) {
  std::erase(draw->queries, query);
  if (!query->is_late_) draw->expected_samples -= query->count;
  const StatusCode code = result.status.code();
  const bool is_short = code == StatusCode::kDeadlineExceeded || code == StatusCode::kCancelled;
  // A shard that gave up before its deadline would do so again.
  const bool may_query_again = code == StatusCode::kDeadlineExceeded &&
                               query->deadline < draw->deadline &&
                               clock_.now() + options_.query_timeout / 2 >= query->deadline;
  draw->turns[query->shard] = is_short && !may_query_again ? Turn::kSpent : Turn::kIdle;
  if (is_short) draw->shortage = result.status;
  if (result.batch.rate_limited()) draw->batch.set_rate_limited();
  taken = std::min(result.batch.size(), draw->count - draw->batch.size());
  const bool is_fatal = !result.status.ok() && !is_short && code != StatusCode::kUnavailable;
  draw->batch.take(result.batch, 0, taken, query->shard);
  if (is_fatal) return finish(draw, result.status, work);
  step(draw, work);
}

void ShardSamplerCore::note(Pool& pool, const ShardQuery& query, const SampleResult& result,
                            Work& work) {
  const SampleBatch& batch = result.batch;
  if (batch.empty()) return note_empty(pool, query.shard, work);
  pool.sizes[query.shard] = batch.table_sizes().back();
  if (options_.sampling == ShardSampling::kMass) note_mass(pool, query.shard, batch);
  if (result.status.ok() && !batch.rate_limited()) {
    const double elapsed_s = to_seconds(retry_clock_.now() - query.asked_at_);
    pool.answer_s +=
        kSmoothing * (std::min(elapsed_s, to_seconds(options_.hedge_max)) - pool.answer_s);
  }
}

void ShardSamplerCore::note_mass(Pool& pool, ShardIndex shard, const SampleBatch& batch) {
  if (batch.sampler_mass() > 0) return pool.quotas.note_mass(shard, batch.sampler_mass());
  pool.needs_exponent = true;
  if (!pool.has_exponent) return;
  // The newest draw knows the mass best.
  pool.quotas.note_draw(shard, std::pow(batch.priorities().back(), pool.exponent),
                        batch.probabilities().back());
}

void ShardSamplerCore::note_empty(const Pool& pool, ShardIndex shard, Work& work) {
  const TimePoint now = retry_clock_.now();
  if (pool.sizes[shard] == 0 || now < ask_sizes_at_[shard]) return;
  if (is_closed_ || !shards_.is_up(shard)) return;
  ask_sizes_at_[shard] = now + options_.size_interval;
  work.sizes_of.push_back(shard);
}

// --- Time, shards that come and go, the end --------------------------------------------------

void ShardSamplerCore::step_all(Pool& pool, Work& work) {
  const std::vector<DrawPtr> waiting = pool.draws;
  for (const DrawPtr& draw : waiting) step(draw, work);
}

TimePoint ShardSamplerCore::retry_time_of(TimePoint deadline) const {
  return retry_clock_.now() + std::max(Duration::zero(), deadline - clock_.now());
}

void ShardSamplerCore::on_alarm(Work& work) {
  const TimePoint now = retry_clock_.now();
  for (const auto& [table, pool] : pools_) {
    const std::vector<DrawPtr> waiting = pool->draws;
    for (const DrawPtr& draw : waiting) {
      if (draw->is_over || draw->is_cancelled) continue;
      const bool has_deadline = draw->deadline != TimePoint::max();
      if (has_deadline && clock_.now() >= draw->deadline + options_.answer_grace) {
        finish(draw,
               deadline_exceeded("{} of {} samples were drawn before the deadline",
                                 draw->batch.size(), draw->min_count),
               work);
        continue;
      }
      if (has_deadline) {
        work.wake = std::min(work.wake, retry_time_of(draw->deadline + options_.answer_grace));
      }
      if (draw->expected_samples > 0 && now >= draw->hedge_at) {
        for (const std::shared_ptr<ShardQuery>& query : draw->queries) query->is_late_ = true;
        draw->expected_samples = 0;
      }
      if (draw->expected_samples > 0) work.wake = std::min(work.wake, draw->hedge_at);
      step(draw, work);
    }
  }
}

void ShardSamplerCore::on_shards_changed(Work& work) {
  for (const auto& [table, pool] : pools_) step_all(*pool, work);
}

void ShardSamplerCore::on_reset(std::string_view table, ShardIndex shard, Work& work) {
  const auto found = pools_.find(table);
  if (found == pools_.end()) return;
  Pool& pool = *found->second;
  ++pool.epochs[shard];
  pool.sizes[shard] = 0;
  for (Pool::Leftover& leftover : pool.leftovers) {
    if (leftover.shard == shard) work.dropped.push_back(std::move(leftover.batch));
  }
  std::erase_if(pool.leftovers, [&](const auto& leftover) { return leftover.shard == shard; });
}

std::vector<ShardCall> ShardSamplerCore::begin_cancel(RequestId id) {
  std::vector<ShardCall> calls;
  for (const auto& [table, pool] : pools_) {
    for (const DrawPtr& draw : pool->draws) {
      if (draw->id != id) continue;
      draw->is_cancelled = true;
      for (const std::shared_ptr<ShardQuery>& query : draw->queries) {
        if (query->has_call_) calls.push_back(query->call_);
      }
    }
  }
  return calls;
}

void ShardSamplerCore::end_cancel(RequestId id, Work& work) {
  for (const auto& [table, pool] : pools_) {
    const std::vector<DrawPtr> waiting = pool->draws;
    for (const DrawPtr& draw : waiting) {
      if (draw->id != id) continue;
      finish(
          draw,
          cancelled("cancelled with {} of {} samples drawn", draw->batch.size(), draw->min_count),
          work);
    }
  }
}

void ShardSamplerCore::close(Work& work) {
  for (const auto& [table, pool] : pools_) {
    const std::vector<DrawPtr> waiting = pool->draws;
    for (const DrawPtr& draw : waiting) finish(draw, cancelled("the client is closed"), work);
  }
}

}  // namespace reverie
