#include "reverie/shards/shard_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

namespace reverie {
namespace {

constexpr double kLate = 3.0;  // times the usual answer
constexpr unsigned kRequestsPerQuestion = 64;
constexpr double kSmoothing = 0.1;  // of one answer in the usual one

// The power that a selector raises priorities to; 0 where it does not look at them.
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

ShardSampler::ShardSampler(ShardConnections& connections, const ShardSamplerOptions& options,
                           Clock& clock, Clock& retry_clock, TimerQueue& timers, Seen seen)
    : connections_(connections),
      options_(options),
      clock_(clock),
      retry_clock_(retry_clock),
      seen_(std::move(seen)),
      alarm_(timers, [this] { on_alarm(); }),
      ask_sizes_at_(connections.size(), retry_clock.now()) {}

ShardSampler::Pool& ShardSampler::pool_of(std::string_view table) {
  const auto found = pools_.find(table);
  if (found != pools_.end()) return *found->second;
  auto pool = std::make_unique<Pool>(std::string(table), connections_.size(), options_.sampling);
  return *pools_.emplace(std::string(table), std::move(pool)).first->second;
}

void ShardSampler::learn(std::span<const TableInfo> infos) {
  if (options_.sampling != ShardSampling::kMass) return;
  MutexLock lock(mutex_);
  for (const TableInfo& info : infos) {
    const auto found = pools_.find(info.options.name);
    if (found == pools_.end()) continue;
    found->second->exponent = exponent_of(info.options.sampler);
    found->second->knows_exponent = true;
  }
}

void ShardSampler::learn_sizes(ShardIndex shard, std::span<const TableInfo> infos) {
  MutexLock lock(mutex_);
  for (const auto& [table, pool] : pools_) {
    std::int64_t& size = pool->sizes[shard];
    if (size == 0) continue;
    const auto found = std::ranges::find(
        infos, table, [](const TableInfo& info) -> const auto& { return info.options.name; });
    size = found == infos.end() ? 0 : found->current_size;
  }
}

bool ShardSampler::must_learn(std::string_view table) {
  if (options_.sampling != ShardSampling::kMass) return false;
  MutexLock lock(mutex_);
  Pool& pool = pool_of(table);
  return !pool.knows_exponent && pool.unknowing++ % kRequestsPerQuestion == 0;
}

void ShardSampler::sample(RequestId id, SampleRequest request, Done done) {
  auto draw = std::make_shared<Draw>();
  draw->id = id;
  draw->min_count = std::clamp<std::size_t>(request.min_count, 1, request.count);
  draw->count = request.count;
  draw->deadline = request.deadline;
  draw->done = std::move(done);
  draw->batch = std::move(request.batch);
  draw->batch.clear();
  draw->turns.resize(connections_.size(), Turn::kIdle);
  draw->give_up_at = retry_clock_.now() + options_.retry_time;
  Work work;
  {
    MutexLock lock(mutex_);
    draw->pool = &pool_of(request.table);
    draw->pool->draws.push_back(draw);
    if (is_closed_) {
      finish(draw, cancelled("the client is closed"), work);
    } else {
      step(draw, work);
    }
  }
  run(std::move(work));
}

// Does what can be done for a draw: hands out what is there, asks who is free, or gives up.
void ShardSampler::step(const std::shared_ptr<Draw>& draw, Work& work) {
  if (draw->is_over || draw->is_cancelled || is_closed_) return;
  Pool& pool = *draw->pool;
  take_leftovers(*draw);
  if (draw->batch.size() >= draw->min_count) return finish(draw, {}, work);
  const std::size_t missing = draw->min_count - draw->batch.size();
  if (draw->coming >= missing) return;

  std::vector<std::uint8_t> is_open(connections_.size());
  bool is_any_open = false;
  bool is_any_late = false;   // of other draws
  bool is_any_spent = false;  // its time was up
  for (std::size_t s = 0; s < connections_.size(); ++s) {
    if (!connections_.is_up(static_cast<ShardIndex>(s))) continue;
    is_any_spent |= draw->turns[s] == Turn::kSpent;
    if (draw->turns[s] != Turn::kIdle) continue;
    is_any_late |= pool.late[s] > 0;
    is_open[s] = pool.late[s] == 0;
    is_any_open |= pool.late[s] == 0;
  }
  if (is_any_open) return ask(draw, missing - draw->coming, is_open, work);
  if (!draw->asks.empty()) return;
  const bool is_due = draw->deadline != TimePoint::max() && clock_.now() >= draw->deadline;
  if (is_any_late && !is_due) {
    if (draw->deadline != TimePoint::max()) {
      work.wake = std::min(work.wake, retry_time_of(draw->deadline));
    }
    return;
  }
  if (is_any_late || is_any_spent) {
    return finish(draw,
                  deadline_exceeded("{} of {} samples were drawn before the deadline; {}",
                                    draw->batch.size(), draw->min_count,
                                    draw->shortage.ok() ? "the shards have requests waiting"
                                                        : draw->shortage.message()),
                  work);
  }
  const Status nobody = connections_.none_answers();
  if (is_due) {
    return finish(draw,
                  deadline_exceeded("{} of {} samples were drawn before the deadline; {}",
                                    draw->batch.size(), draw->min_count, nobody.message()),
                  work);
  }
  if (retry_clock_.now() >= draw->give_up_at) return finish(draw, nobody, work);
  work.wake = std::min(work.wake, draw->give_up_at);
  if (draw->deadline != TimePoint::max()) {
    work.wake = std::min(work.wake, retry_time_of(draw->deadline));
  }
}

void ShardSampler::take_leftovers(Draw& draw) {
  std::deque<Leftover>& leftovers = draw.pool->leftovers;
  while (!leftovers.empty() && draw.batch.size() < draw.min_count) {
    Leftover& leftover = leftovers.front();
    const std::size_t count =
        std::min(draw.min_count - draw.batch.size(), leftover.batch.size() - leftover.begin);
    draw.batch.take(leftover.batch, leftover.begin, count, leftover.shard);
    leftover.begin += count;
    if (leftover.begin >= leftover.batch.size()) leftovers.pop_front();
  }
}

void ShardSampler::ask(const std::shared_ptr<Draw>& draw, std::size_t count,
                       std::span<const std::uint8_t> is_open, Work& work) {
  Pool& pool = *draw->pool;
  const TimePoint now = retry_clock_.now();
  std::vector<std::size_t> parts(connections_.size());
  pool.quotas.split(count, is_open, parts);
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (parts[s] == 0) continue;
    auto made = std::make_shared<Ask>();
    made->draw = draw;
    made->pool = &pool;
    made->shard = static_cast<ShardIndex>(s);
    made->count = parts[s];
    made->count_max = parts[s] + (draw->count - draw->min_count);
    made->deadline = std::min(draw->deadline, clock_.now() + options_.ask_time);
    made->asked_at = now;
    if (!pool.spare.empty()) {
      made->batch = std::move(pool.spare.back());
      pool.spare.pop_back();
    }
    draw->turns[s] = Turn::kAsked;
    draw->coming += parts[s];
    draw->asks.push_back(made);
    work.asks.push_back(std::move(made));
  }
  const Duration usual = std::clamp(seconds(kLate * pool.answer_s), options_.hedge_min,
                                    std::max(options_.hedge_min, options_.hedge_max));
  draw->hedge_at = now + usual;
  work.wake = std::min(work.wake, draw->hedge_at);
  if (draw->deadline != TimePoint::max()) {
    work.wake = std::min(work.wake, retry_time_of(draw->deadline) + options_.answer_grace);
  }
}

void ShardSampler::finish(const std::shared_ptr<Draw>& draw, Status status, Work& work) {
  draw->is_over = true;
  Pool& pool = *draw->pool;
  std::erase(pool.draws, draw);
  for (const std::shared_ptr<Ask>& ask : draw->asks) {
    ask->draw = nullptr;
    ++pool.late[ask->shard];
  }
  draw->asks.clear();
  if (!draw->batch.empty()) weigh(*draw);
  SampleResult result;
  result.status = std::move(status);
  result.batch = std::move(draw->batch);
  work.ends.emplace_back(std::move(draw->done), std::move(result));
}

// Makes what the shards said of themselves true of the whole.
void ShardSampler::weigh(Draw& draw) {
  Pool& pool = *draw.pool;
  std::vector<std::size_t> counts(connections_.size());
  for (const ShardIndex shard : draw.batch.shards()) ++counts[shard];
  pool.quotas.note_batch(counts);
  std::vector<double> parts(connections_.size());
  std::int64_t size = 0;
  for (std::size_t s = 0; s < connections_.size(); ++s) {
    parts[s] = pool.quotas.part(s);
    if (counts[s] > 0 || connections_.is_up(static_cast<ShardIndex>(s))) size += pool.sizes[s];
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

void ShardSampler::note_empty(const Pool& pool, ShardIndex shard, Work& work) {
  const TimePoint now = retry_clock_.now();
  if (pool.sizes[shard] == 0 || now < ask_sizes_at_[shard]) return;
  if (is_closed_ || !connections_.is_up(shard)) return;
  ask_sizes_at_[shard] = now + options_.size_interval;
  work.sizes_of.push_back(shard);
}

void ShardSampler::note(Pool& pool, const Ask& ask, const SampleResult& result, Work& work) {
  const SampleBatch& batch = result.batch;
  if (batch.empty()) return note_empty(pool, ask.shard, work);
  pool.sizes[ask.shard] = batch.table_sizes().back();
  if (options_.sampling == ShardSampling::kMass && pool.knows_exponent) {
    // The newest draw knows the mass best.
    pool.quotas.note_draw(ask.shard, std::pow(batch.priorities().back(), pool.exponent),
                          batch.probabilities().back());
  }
  if (result.status.ok() && !batch.rate_limited()) {
    const double took_s = to_seconds(retry_clock_.now() - ask.asked_at);
    pool.answer_s +=
        kSmoothing * (std::min(took_s, to_seconds(options_.hedge_max)) - pool.answer_s);
  }
}

void ShardSampler::on_result(const std::shared_ptr<Ask>& ask, SampleResult result) {
  if (!result.batch.empty()) seen_(result.batch.keys(), ask->shard);
  Work work;
  {
    MutexLock lock(mutex_);
    Pool& pool = *ask->pool;
    note(pool, *ask, result, work);
    const std::shared_ptr<Draw> draw = std::move(ask->draw);
    std::size_t taken = 0;
    if (draw) {
      std::erase(draw->asks, ask);
      if (!ask->is_late) draw->coming -= ask->count;
      const StatusCode code = result.status.code();
      const bool is_short = code == StatusCode::kDeadlineExceeded || code == StatusCode::kCancelled;
      // One that gave up before its time would do so again.
      const bool may_ask_again = code == StatusCode::kDeadlineExceeded &&
                                 ask->deadline < draw->deadline &&
                                 clock_.now() + options_.ask_time / 2 >= ask->deadline;
      draw->turns[ask->shard] = is_short && !may_ask_again ? Turn::kSpent : Turn::kIdle;
      if (is_short) draw->shortage = result.status;
      if (result.batch.rate_limited()) draw->batch.set_rate_limited();
      taken = std::min(result.batch.size(), draw->count - draw->batch.size());
      const bool is_fatal = !result.status.ok() && !is_short && code != StatusCode::kUnavailable;
      draw->batch.take(result.batch, 0, taken, ask->shard);
      if (is_fatal) {
        finish(draw, result.status, work);
      } else {
        step(draw, work);
      }
    } else {
      --pool.late[ask->shard];
    }
    if (result.batch.empty()) {
      if (pool.spare.size() < connections_.size()) pool.spare.push_back(std::move(result.batch));
    } else {
      pool.leftovers.push_back({std::move(result.batch), taken, ask->shard});
      // Pins hold back what their tables free, and these may wait for long.
      pool.leftovers.back().batch.retain();
    }
    if (!pool.draws.empty()) step_all(pool, work);
  }
  run(std::move(work));
}

void ShardSampler::step_all(Pool& pool, Work& work) {
  const std::vector<std::shared_ptr<Draw>> waiting = pool.draws;
  for (const std::shared_ptr<Draw>& draw : waiting) step(draw, work);
}

void ShardSampler::run(Work&& work) {
  if (work.wake != TimePoint::max()) alarm_.set(work.wake);
  for (auto& [done, result] : work.ends) done(std::move(result));
  for (const ShardIndex shard : work.sizes_of) {
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
  for (const std::shared_ptr<Ask>& ask : work.asks) {
    SampleRequest request;
    request.table = ask->pool->table;
    request.count = ask->count_max;
    request.min_count = ask->count;
    request.deadline = ask->deadline;
    request.batch = std::move(ask->batch);
    const ShardConnections::Call call = connections_.call<SampleResult>(
        ask->shard,
        [&request](ReplayService& service, ReplayService::Done<SampleResult> done) {
          return service.sample(std::move(request), std::move(done));
        },
        [this, ask](SampleResult result) { on_result(ask, std::move(result)); });
    bool is_cancelled = false;
    {
      MutexLock lock(mutex_);
      ask->call = call;
      ask->has_call = true;
      is_cancelled = ask->draw && ask->draw->is_cancelled;
    }
    if (is_cancelled) connections_.cancel(call);
  }
}

TimePoint ShardSampler::retry_time_of(TimePoint deadline) const {
  return retry_clock_.now() + std::max(Duration::zero(), deadline - clock_.now());
}

void ShardSampler::on_alarm() {
  Work work;
  {
    MutexLock lock(mutex_);
    const TimePoint now = retry_clock_.now();
    for (const auto& [table, pool] : pools_) {
      const std::vector<std::shared_ptr<Draw>> waiting = pool->draws;
      for (const std::shared_ptr<Draw>& draw : waiting) {
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
        if (draw->coming > 0 && now >= draw->hedge_at) {
          for (const std::shared_ptr<Ask>& ask : draw->asks) ask->is_late = true;
          draw->coming = 0;
        }
        if (draw->coming > 0) work.wake = std::min(work.wake, draw->hedge_at);
        step(draw, work);
      }
    }
  }
  run(std::move(work));
}

void ShardSampler::on_connections_changed() {
  Work work;
  {
    MutexLock lock(mutex_);
    for (const auto& [table, pool] : pools_) step_all(*pool, work);
  }
  run(std::move(work));
}

void ShardSampler::cancel(RequestId id) {
  std::shared_ptr<Draw> draw;
  std::vector<ShardConnections::Call> calls;
  {
    MutexLock lock(mutex_);
    for (const auto& [table, pool] : pools_) {
      for (const std::shared_ptr<Draw>& waiting : pool->draws) {
        if (waiting->id == id) draw = waiting;
      }
    }
    if (!draw) return;
    draw->is_cancelled = true;
    for (const std::shared_ptr<Ask>& ask : draw->asks) {
      if (ask->has_call) calls.push_back(ask->call);
    }
  }
  // Those that complete at once bring what they had drawn.
  for (const ShardConnections::Call& call : calls) connections_.cancel(call);
  Work work;
  {
    MutexLock lock(mutex_);
    if (!draw->is_over) {
      finish(
          draw,
          cancelled("cancelled with {} of {} samples drawn", draw->batch.size(), draw->min_count),
          work);
    }
  }
  run(std::move(work));
}

void ShardSampler::stop() {
  MutexLock lock(mutex_);
  is_closed_ = true;
}

void ShardSampler::close() {
  Work work;
  {
    MutexLock lock(mutex_);
    for (const auto& [table, pool] : pools_) {
      const std::vector<std::shared_ptr<Draw>> waiting = pool->draws;
      for (const std::shared_ptr<Draw>& draw : waiting) {
        finish(draw, cancelled("the client is closed"), work);
      }
    }
  }
  run(std::move(work));
}

}  // namespace reverie
