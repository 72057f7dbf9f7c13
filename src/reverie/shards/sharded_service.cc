// Tested in tests/integration/sharded_store_test.cc.
#include "reverie/shards/sharded_service.h"

#include <set>
#include <utility>

#include "reverie/service/request_checks.h"
#include "reverie/shards/shard_mutation.h"
#include "reverie/shards/shard_totals.h"

namespace reverie {
namespace {

Clock& clock_or_system(Clock* clock) {
  return clock ? *clock : Clock::system();
}

ShardSamplerOptions sampler_options(const ShardedOptions& options) {
  ShardSamplerOptions sampler = options.sampler;
  sampler.retry_time = options.retry_time;
  return sampler;
}

}  // namespace

Status ShardedService::closed_status() {
  return cancelled("the client is closed");
}

Status ShardedService::cancelled_status() {
  return cancelled("the request was cancelled");
}

// One query to several shards.
template <typename T>
struct ShardedService::FanOut {
  Mutex mutex;
  std::size_t left REVERIE_GUARDED_BY(mutex) = 0;
  std::vector<std::optional<T>> results REVERIE_GUARDED_BY(mutex);
  std::vector<ShardConnections::Call> calls REVERIE_GUARDED_BY(mutex);
  bool is_cancelled REVERIE_GUARDED_BY(mutex) = false;
  bool is_over REVERIE_GUARDED_BY(mutex) = false;
};

Result<std::shared_ptr<ShardedService>> ShardedService::open(std::vector<Shard> shards,
                                                             ShardedOptions options) {
  if (shards.empty()) return invalid_argument("there are no shards; name at least one");
  if (shards.size() > kShardsMax) {
    return invalid_argument("there are {} shards; {} are possible", shards.size(), kShardsMax);
  }
  std::set<std::string> names;
  for (const Shard& shard : shards) {
    if (!names.insert(shard.name).second) {
      return invalid_argument("shard '{}' is named twice; name each once", shard.name);
    }
  }
  return std::shared_ptr<ShardedService>(new ShardedService(std::move(shards), options));
}

ShardedService::ShardedService(std::vector<Shard> shards, const ShardedOptions& options)
    : clock_(clock_or_system(options.clock)),
      timers_(clock_or_system(options.retry_clock)),
      connections_(std::move(shards), options.connections, clock_or_system(options.retry_clock),
                   timers_,
                   {[this](ShardIndex shard, const std::function<void(Status)>& done) {
                      on_return(shard, done);
                    },
                    [this] { on_connections_changed(); }}),
      sampler_(connections_, sampler_options(options), clock_, clock_or_system(options.retry_clock),
               timers_,
               [this](std::span<const ItemKey> keys, ShardIndex shard) {
                 if (connections_.size() == 1) return;
                 MutexLock lock(keys_mutex_);
                 for (const ItemKey key : keys) keys_.put(key, shard);
               }),
      park_alarm_(timers_, [this] { retry_parked(); }),
      retry_clock_(clock_or_system(options.retry_clock)),
      retry_time_(options.retry_time),
      placement_(connections_.size(),
                 [this](ShardIndex shard) { return connections_.is_up(shard); }) {}

ShardedService::~ShardedService() {
  if (!fork_guard_.check("client").ok()) return;  // requests in progress belong to the parent
  close();
  timers_.stop();
  connections_.drain();
}

void ShardedService::close() {
  std::list<RetryQueue::Waiting> parked;
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    parked = parked_.take_all();
  }
  sampler_.stop();
  connections_.close();
  sampler_.close();
  for (const RetryQueue::Waiting& waiting : parked) waiting.go(closed_status());
  warn_of_strays();
}

bool ShardedService::is_closed() const {
  MutexLock lock(mutex_);
  return is_closed_;
}

std::vector<ShardState> ShardedService::shards() const {
  std::vector<ShardState> states;
  for (std::size_t s = 0; s < connections_.size(); ++s) {
    const auto shard = static_cast<ShardIndex>(s);
    ShardState state{connections_.name(shard), true, connections_.why_down(shard)};
    state.is_up = state.why.ok();
    states.push_back(std::move(state));
  }
  return states;
}

std::vector<ShardIndex> ShardedService::all_up() const {
  std::vector<ShardIndex> up;
  for (std::size_t s = 0; s < connections_.size(); ++s) {
    if (connections_.is_up(static_cast<ShardIndex>(s))) up.push_back(static_cast<ShardIndex>(s));
  }
  return up;
}

// --- Requests that can be cancelled ---------------------------------------------------------

RequestId ShardedService::begin(std::function<void()> cancel) {
  MutexLock lock(mutex_);
  pending_.emplace(++last_id_, Pending{std::move(cancel)});
  return last_id_;
}

void ShardedService::end(RequestId id) {
  Pending dropped;  // freed after the lock: it may own much
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  dropped = std::move(found->second);
  pending_.erase(found);
}

RequestId ShardedService::if_pending(RequestId id) {
  MutexLock lock(mutex_);
  return pending_.contains(id) ? id : 0;
}

void ShardedService::cancel(RequestId id) {
  std::function<void()> cancel;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    found->second.is_cancelled = true;
    cancel = found->second.cancel;
  }
  cancel();
  unpark(id, cancelled_status());
}

// --- Waiting for any shard at all -----------------------------------------------------------

void ShardedService::park(RequestId id, TimePoint deadline, std::function<void(const Status&)> go) {
  Status ended;
  {
    MutexLock lock(mutex_);
    if (is_closed_) {
      ended = closed_status();
    } else if (pending_.at(id).is_cancelled) {
      ended = cancelled_status();
    } else {
      parked_.add({id, deadline, retry_clock_.now() + retry_time_, std::move(go)});
    }
  }
  if (!ended.ok()) return go(ended);  // NOLINT(bugprone-use-after-move): not moved then
  retry_parked();
  if (!all_up().empty()) wake_parked();  // came up meanwhile
}

void ShardedService::unpark(RequestId id, const Status& status) {
  std::list<RetryQueue::Waiting> found;
  {
    MutexLock lock(mutex_);
    found = parked_.take(id);
  }
  for (const RetryQueue::Waiting& waiting : found) waiting.go(status);
}

void ShardedService::wake_parked() {
  std::list<RetryQueue::Waiting> all;
  {
    MutexLock lock(mutex_);
    all = parked_.take_all();
  }
  for (const RetryQueue::Waiting& waiting : all) waiting.go({});
}

// Ends requests past their deadline.
void ShardedService::retry_parked() {
  const TimePoint now = clock_.now();
  const TimePoint retry_now = retry_clock_.now();
  RetryQueue::Due due;
  {
    MutexLock lock(mutex_);
    due = parked_.take_due(now, retry_now);
  }
  if (due.next != TimePoint::max()) park_alarm_.set(due.next);
  for (const RetryQueue::Waiting& waiting : due.given_up) waiting.go(connections_.none_answers());
  for (const RetryQueue::Waiting& waiting : due.expired) {
    waiting.go(deadline_exceeded("{}", connections_.none_answers().message()));
  }
}

void ShardedService::on_connections_changed() {
  sampler_.on_connections_changed();
  if (!all_up().empty()) wake_parked();
}

// --- Samples --------------------------------------------------------------------------------

RequestId ShardedService::sample(SampleRequest request, Done<SampleResult> done) {
  Status refused = is_closed() ? closed_status() : check_sample_request(request);
  if (refused.ok() && request.distinct) {
    refused = unimplemented(
        "distinct samples of shards are not possible, here of {}; sample with replacement, or from "
        "an embedded store",
        connections_.size());
  }
  if (!refused.ok()) {
    request.batch.clear();
    done({std::move(refused), std::move(request.batch)});
    return 0;
  }
  if (sampler_.must_learn(request.table)) {
    // Asks for the exponent of shards that do not report their mass. Quotas are even until it is
    // known.
    info([](const Result<Infos>&) {});
  }
  const auto id = std::make_shared<RequestId>(0);
  *id = begin([this, id] { sampler_.cancel(*id); });
  const RequestId begun = *id;
  sampler_.sample(begun, std::move(request),
                  [this, begun, done = std::move(done)](SampleResult result) {
                    done(std::move(result));
                    end(begun);
                  });
  return if_pending(begun);
}

// --- Questions to several -------------------------------------------------------------------

template <typename T, typename Start>
RequestId ShardedService::fan_out(RequestId id, const std::vector<ShardIndex>& to, Start start,
                                  std::function<void(std::vector<std::optional<T>>)> done,
                                  std::function<bool(const T&)> is_enough) {
  auto fan = std::make_shared<FanOut<T>>();
  const std::function<void()> cancel = [this, held = std::weak_ptr<FanOut<T>>(fan)] {
    const auto pending = held.lock();
    if (!pending) return;
    std::vector<ShardConnections::Call> calls;
    {
      MutexLock lock(pending->mutex);
      pending->is_cancelled = true;
      calls = pending->calls;
    }
    for (const ShardConnections::Call& call : calls) connections_.cancel(call);
  };
  const bool is_own = id == 0;
  bool was_cancelled = false;
  if (is_own) {
    id = begin(cancel);
  } else {
    MutexLock lock(mutex_);
    Pending& request = pending_.at(id);
    request.cancel = cancel;
    was_cancelled = request.is_cancelled;
  }
  {
    MutexLock lock(fan->mutex);
    fan->is_cancelled |= was_cancelled;
    fan->left = to.size();
    fan->results.resize(connections_.size());
  }
  for (const ShardIndex shard : to) {
    const ShardConnections::Call call = connections_.call<T>(
        shard,
        [&](ReplayService& service, Done<T> answered) {
          return start(shard, service, std::move(answered));
        },
        [this, id, is_own, shard, fan, done, is_enough](T result) {
          std::vector<std::optional<T>> results;
          {
            MutexLock lock(fan->mutex);
            if (fan->is_over) return;
            fan->is_over = --fan->left == 0 || (is_enough && is_enough(result));
            fan->results[shard] = std::move(result);
            if (!fan->is_over) return;
            results = std::move(fan->results);
          }
          done(std::move(results));
          if (is_own) end(id);
        });
    bool is_cancelled = false;
    {
      MutexLock lock(fan->mutex);
      fan->calls.push_back(call);
      is_cancelled = fan->is_cancelled;
    }
    if (is_cancelled) connections_.cancel(call);
  }
  return if_pending(id);
}

RequestId ShardedService::mutate(const MutateRequest& request, Done<MutateResult> done) {
  MutateResult refused;
  refused.status = is_closed() ? closed_status() : check_mutate_request(request);
  if (!refused.status.ok()) {
    done(std::move(refused));
    return 0;
  }
  std::vector<ShardMutationPart> parts;
  {
    MutexLock lock(keys_mutex_);
    parts = divide_mutation(request, keys_, connections_.size());
  }
  ShardMutationTotal total{
      .update_count = request.tickets.size() + request.keys.size(),
      .delete_count = request.deletes.size() + request.corrupt.size(),
      .has_deletes = std::vector<bool>(parts.size()),
      .undone = {},
  };
  // A request for nothing still learns whether there is such a table.
  const bool is_empty = total.update_count + total.delete_count == 0;
  std::vector<ShardIndex> to;
  for (std::size_t s = 0; s < parts.size(); ++s) {
    const auto shard = static_cast<ShardIndex>(s);
    total.has_deletes[s] = parts[s].has_deletes();
    if (connections_.is_up(shard)) {
      if (is_empty || !parts[s].empty()) to.push_back(shard);
    } else if (total.has_deletes[s]) {
      total.undone = unavailable("{}: {}; the others deleted theirs", connections_.text(shard),
                                 connections_.why_down(shard).message());
    }
  }
  if (to.empty()) {
    // Shards that are up may have nothing to do here: then only the lost one is to blame.
    if (!total.undone.ok() && all_up().empty()) total.undone = connections_.none_answers();
    done(total.sum_up({}));
    return 0;
  }
  return fan_out<MutateResult>(
      0, to,
      [&](ShardIndex shard, ReplayService& service, Done<MutateResult> answered) {
        return service.mutate(parts[shard].request(request.table), std::move(answered));
      },
      [total, done = std::move(done)](const std::vector<std::optional<MutateResult>>& results) {
        done(total.sum_up(results));
      });
}

RequestId ShardedService::lookup(const LookupRequest& request, Done<LookupResult> done) {
  const std::vector<ShardIndex> up = all_up();
  if (is_closed() || up.empty()) {
    done({is_closed() ? closed_status() : connections_.none_answers(), {}, {}});
    return 0;
  }
  const std::vector<ItemKey> keys(request.keys.begin(), request.keys.end());
  return fan_out<LookupResult>(
      0, up,
      [&](ShardIndex, ReplayService& service, Done<LookupResult> answered) {
        return service.lookup(request, std::move(answered));
      },
      [keys, done = std::move(done)](const std::vector<std::optional<LookupResult>>& results) {
        done(add_up(keys, results));
      });
}

RequestId ShardedService::reset(std::string_view table, Done<Status> done) {
  const std::vector<ShardIndex> up = all_up();
  if (is_closed() || up.empty()) {
    done(is_closed() ? closed_status() : connections_.none_answers());
    return 0;
  }
  Status undone;
  for (std::size_t s = 0; s < connections_.size(); ++s) {
    const auto shard = static_cast<ShardIndex>(s);
    if (connections_.is_up(shard)) continue;
    undone = unavailable("{}: {}; the others were reset", connections_.text(shard),
                         connections_.why_down(shard).message());
  }
  return fan_out<Status>(
      0, up,
      [&](ShardIndex shard, ReplayService& service, Done<Status> answered) {
        // With any status: a shard whose answer was lost may have done it, too.
        return service.reset(table, [this, shard, name = std::string(table),
                                     answered = std::move(answered)](const Status& status) {
          sampler_.on_reset(name, shard);
          answered(status);
        });
      },
      [undone, done = std::move(done)](const std::vector<std::optional<Status>>& results) {
        const Status status = worst(results, [](const Status& result) { return result; });
        done(status.ok() ? undone : status);
      });
}

RequestId ShardedService::info(Done<Result<Infos>> done) {
  return query_info(/*is_one_enough=*/false, done);
}

RequestId ShardedService::describe(Done<Result<Infos>> done) {
  return query_info(/*is_one_enough=*/true, done);
}

RequestId ShardedService::query_info(bool is_one_enough, const Done<Result<Infos>>& done) {
  if (is_closed()) {
    done(closed_status());
    return 0;
  }
  const RequestId id = begin([] {});
  send_info(id, is_one_enough, done);
  return if_pending(id);
}

void ShardedService::send_info(RequestId id, bool is_one_enough, const Done<Result<Infos>>& done) {
  const auto wait = [this, id, is_one_enough, done] {
    park(id, TimePoint::max(), [this, id, is_one_enough, done](const Status& status) {
      if (status.ok()) return send_info(id, is_one_enough, done);
      done(status);
      end(id);
    });
  };
  const std::vector<ShardIndex> up = all_up();
  if (up.empty()) return wait();
  std::function<bool(const Result<Infos>&)> is_enough;
  if (is_one_enough) is_enough = [](const Result<Infos>& infos) { return infos.ok(); };
  fan_out<Result<Infos>>(
      id, up,
      [](ShardIndex, ReplayService& service, Done<Result<Infos>> answered) {
        return service.info(std::move(answered));
      },
      [this, id, is_one_enough, done](std::vector<std::optional<Result<Infos>>> results) {
        const Status status =
            worst(results, [](const Result<Infos>& result) { return result.status(); });
        std::optional<Infos> whole = add_up(results);
        if (!whole && status.code() == StatusCode::kUnavailable && !is_closed()) {
          send_info(id, is_one_enough, done);  // all were lost meanwhile: wait for one
          return;
        }
        const bool is_refused = !status.ok() && status.code() != StatusCode::kUnavailable;
        if (!whole || (is_refused && !is_one_enough)) {
          done(status);
        } else {
          sampler_.learn(*whole);
          done(std::move(*whole));
        }
        end(id);
      },
      std::move(is_enough));
}

RequestId ShardedService::why_blocked(std::string_view table, Done<Result<BlockedReport>> done) {
  const std::vector<ShardIndex> up = all_up();
  if (is_closed() || up.empty()) {
    done(is_closed() ? closed_status() : connections_.none_answers());
    return 0;
  }
  return fan_out<Result<BlockedReport>>(
      0, up,
      [&](ShardIndex, ReplayService& service, Done<Result<BlockedReport>> answered) {
        return service.why_blocked(table, std::move(answered));
      },
      [this,
       done = std::move(done)](const std::vector<std::optional<Result<BlockedReport>>>& results) {
        const Status status =
            worst(results, [](const Result<BlockedReport>& result) { return result.status(); });
        if (!status.ok()) return done(status);
        std::vector<std::pair<const std::string*, const BlockedReport::Side*>> inserts;
        std::vector<std::pair<const std::string*, const BlockedReport::Side*>> samples;
        for (std::size_t s = 0; s < results.size(); ++s) {
          if (!results[s]) continue;
          const std::string* const shard = &connections_.text(static_cast<ShardIndex>(s));
          inserts.emplace_back(shard, &(*results[s])->inserts);
          samples.emplace_back(shard, &(*results[s])->samples);
        }
        done(BlockedReport{add_up(inserts), add_up(samples)});
      });
}

}  // namespace reverie
