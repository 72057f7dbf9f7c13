#include "reverie/shards/sharded_service.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/service/request_checks.h"

namespace reverie {
namespace {

Clock& clock_or_system(Clock* clock) {
  return clock ? *clock : Clock::system();
}

Status closed_status() {
  return cancelled("the client is closed");
}

ShardSamplerOptions sampler_options(const ShardedOptions& options) {
  ShardSamplerOptions sampler = options.sampler;
  sampler.retry_time = options.retry_time;
  return sampler;
}

// The whole table, of its parts.
void add_up(TableInfo& whole, const TableInfo& part) {
  const auto add = [](std::int64_t& to, std::int64_t from) {
    if (__builtin_add_overflow(to, from, &to)) to = std::numeric_limits<std::int64_t>::max();
  };
  add(whole.options.max_size, part.options.max_size);
  if (whole.options.max_bytes && part.options.max_bytes) {
    add(*whole.options.max_bytes, *part.options.max_bytes);
  }
  add(whole.current_size, part.current_size);
  add(whole.size_bytes, part.size_bytes);
  add(whole.num_episodes, part.num_episodes);
  add(whole.num_deleted_episodes, part.num_deleted_episodes);
  add(whole.num_unique_samples, part.num_unique_samples);
  add(whole.inserts, part.inserts);
  add(whole.samples, part.samples);
  add(whole.deletes, part.deletes);
  whole.max_priority = std::max(whole.max_priority, part.max_priority);
  add(whole.pending_inserts, part.pending_inserts);
  add(whole.pending_samples, part.pending_samples);
  whole.insert_wait_s += part.insert_wait_s;
  whole.sample_wait_s += part.sample_wait_s;
  add(whole.missing_updates, part.missing_updates);
  add(whole.corrupt_items, part.corrupt_items);
}

// The requests of one kind that wait at any shard. A bound that holds where no request waits is
// only told when it holds everywhere.
BlockedReport::Side add_up(
    const std::vector<std::pair<const std::string*, const BlockedReport::Side*>>& parts) {
  BlockedReport::Side whole;
  const bool is_everywhere =
      std::ranges::none_of(parts, [](const auto& part) { return part.second->reason.empty(); });
  for (const auto& [shard, part] : parts) {
    whole.waiting += part->waiting;
    if (part->longest_wait_s > whole.longest_wait_s) {
      whole.longest_wait_s = part->longest_wait_s;
      whole.longest_request = part->longest_request;
    }
    if (part->reason.empty() || (part->waiting == 0 && !is_everywhere)) continue;
    whole.reason += format("{}{}: {}", whole.reason.empty() ? "" : "; ", *shard, part->reason);
  }
  return whole;
}

// The first error that is not of a shard that is gone; then one of those.
template <typename T, typename StatusOf>
Status worst(const std::vector<std::optional<T>>& results, StatusOf status_of) {
  Status gone;
  for (const std::optional<T>& result : results) {
    if (!result || status_of(*result).ok()) continue;
    if (status_of(*result).code() != StatusCode::kUnavailable) return status_of(*result);
    if (gone.ok()) gone = status_of(*result);
  }
  return gone;
}

}  // namespace

// An insert on its way.
struct ShardedService::Insert {
  RequestId id = 0;
  std::string table;
  std::vector<Item> items;
  std::size_t applied = 0;
  TimePoint deadline;
  Done<InsertResult> done;
  Mutex mutex;
  std::optional<ShardConnections::Call> call REVERIE_GUARDED_BY(mutex);
  bool is_cancelled REVERIE_GUARDED_BY(mutex) = false;
  bool is_refused REVERIE_GUARDED_BY(mutex) = false;
};

// One question to several shards.
template <typename T>
struct ShardedService::Fan {
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
      park_alarm_(timers_, [this] { look_at_parked(); }),
      retry_clock_(clock_or_system(options.retry_clock)),
      retry_time_(options.retry_time),
      strays_(connections_.size()),
      inserts_out_(connections_.size()) {}

ShardedService::~ShardedService() {
  if (!fork_guard_.check("client").ok()) return;  // what is under way is the parent's
  close();
  timers_.stop();
  connections_.drain();
}

void ShardedService::close() {
  std::list<Parked> parked;
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    parked.swap(parked_);
  }
  sampler_.stop();
  connections_.close();
  sampler_.close();
  for (const Parked& waiting : parked) waiting.go(closed_status());
  warn_of_strays();
}

void ShardedService::warn_of_strays() {
  std::vector<std::size_t> counts(connections_.size());
  {
    MutexLock lock(mutex_);
    for (std::size_t s = 0; s < strays_.size(); ++s) {
      for (const auto& [table, keys] : strays_[s]) counts[s] += keys.size();
    }
  }
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] == 0) continue;
    log_warning(
        "{} did not answer before its client was closed: when it is back, it may have {} items "
        "that "
        "went elsewhere; keep the client until then if that matters",
        connections_.text(static_cast<ShardIndex>(s)), counts[s]);
  }
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
  cancels_.emplace(++last_id_, std::move(cancel));
  return last_id_;
}

void ShardedService::end(RequestId id) {
  std::function<void()> dropped;  // freed after the lock: it may own much
  MutexLock lock(mutex_);
  const auto found = cancels_.find(id);
  if (found == cancels_.end()) return;
  dropped = std::move(found->second);
  cancels_.erase(found);
}

RequestId ShardedService::if_pending(RequestId id) {
  MutexLock lock(mutex_);
  return cancels_.contains(id) ? id : 0;
}

void ShardedService::cancel(RequestId id) {
  std::function<void()> cancel;
  {
    MutexLock lock(mutex_);
    const auto found = cancels_.find(id);
    if (found == cancels_.end()) return;
    cancel = found->second;
  }
  cancel();
  unpark(id, cancelled("the request was cancelled"));
}

// --- Waiting for any shard at all -----------------------------------------------------------

void ShardedService::park(RequestId id, TimePoint deadline, std::function<void(const Status&)> go) {
  bool is_closed = false;
  {
    MutexLock lock(mutex_);
    is_closed = is_closed_;
    if (!is_closed) {
      parked_.push_back({id, deadline, retry_clock_.now() + retry_time_, std::move(go)});
    }
  }
  if (is_closed) return go(closed_status());  // NOLINT(bugprone-use-after-move): not moved then
  look_at_parked();
  if (!all_up().empty()) wake_parked();  // came up meanwhile
}

void ShardedService::unpark(RequestId id, const Status& status) {
  std::list<Parked> found;
  {
    MutexLock lock(mutex_);
    for (auto at = parked_.begin(); at != parked_.end();) {
      const auto next = std::next(at);
      if (at->id == id) found.splice(found.end(), parked_, at);
      at = next;
    }
  }
  for (const Parked& parked : found) parked.go(status);
}

void ShardedService::wake_parked() {
  std::list<Parked> parked;
  {
    MutexLock lock(mutex_);
    parked.swap(parked_);
  }
  for (const Parked& waiting : parked) waiting.go({});
}

// Ends those whose time is up.
void ShardedService::look_at_parked() {
  std::list<Parked> due;
  std::list<Parked> given_up;
  TimePoint next = TimePoint::max();
  const TimePoint now = clock_.now();
  const TimePoint retry_now = retry_clock_.now();
  {
    MutexLock lock(mutex_);
    for (auto at = parked_.begin(); at != parked_.end();) {
      const auto after = std::next(at);
      if (at->deadline <= now) {
        due.splice(due.end(), parked_, at);
      } else if (at->give_up_at <= retry_now) {
        given_up.splice(given_up.end(), parked_, at);
      } else {
        next = std::min(next, at->give_up_at);
        if (at->deadline != TimePoint::max())
          next = std::min(next, retry_now + (at->deadline - now));
      }
      at = after;
    }
  }
  if (next != TimePoint::max()) park_alarm_.set(next);
  for (const Parked& waiting : given_up) waiting.go(connections_.none_answers());
  for (const Parked& waiting : due) {
    waiting.go(deadline_exceeded("{}", connections_.none_answers().message()));
  }
}

void ShardedService::on_connections_changed() {
  sampler_.on_connections_changed();
  if (!all_up().empty()) wake_parked();
}

// --- Inserts --------------------------------------------------------------------------------

// Where an item goes: where its episode went, or to the next in turn. One more is out there then.
std::optional<ShardIndex> ShardedService::place_of(const Item& item) {
  std::optional<std::uint64_t> episode;
  if (!item.trajectory.empty() && !item.trajectory.pieces().empty()) {
    const Chunk* const newest = item.trajectory.pieces().back().chunk;
    if (newest) episode = newest->episode();
  }
  MutexLock lock(mutex_);
  if (episode) {
    const std::optional<ShardIndex> known = episodes_.find(*episode);
    if (known && connections_.is_up(*known)) {
      ++inserts_out_[*known];
      return known;
    }
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const auto shard = static_cast<ShardIndex>((turn_ + i) % connections_.size());
    if (!connections_.is_up(shard)) continue;
    turn_ = (shard + std::size_t{1}) % connections_.size();
    if (episode) episodes_.put(*episode, shard);
    ++inserts_out_[shard];
    return shard;
  }
  return std::nullopt;
}

RequestId ShardedService::insert(InsertRequest request, Done<InsertResult> done) {
  if (is_closed() || request.items.empty()) {
    done({is_closed() ? closed_status() : Status(), 0});
    return 0;
  }
  auto insert = std::make_shared<Insert>();
  insert->table = request.table;
  insert->items.reserve(request.items.size());
  for (Item& item : request.items) insert->items.push_back(std::move(item));
  insert->deadline = request.deadline;
  insert->done = std::move(done);
  insert->id = begin([this, held = std::weak_ptr<Insert>(insert)] {
    const std::shared_ptr<Insert> pending = held.lock();
    if (!pending) return;
    std::optional<ShardConnections::Call> call;
    {
      MutexLock lock(pending->mutex);
      pending->is_cancelled = true;
      call = pending->call;
    }
    if (call) connections_.cancel(*call);
  });
  const RequestId id = insert->id;
  send(insert);
  bool is_refused = false;
  {
    MutexLock lock(insert->mutex);
    is_refused = insert->is_refused;
  }
  if (is_refused) std::ranges::move(insert->items, request.items.begin());
  return if_pending(id);
}

// To a shard, or to none until there is one.
void ShardedService::send(const std::shared_ptr<Insert>& insert) {
  const std::optional<ShardIndex> shard = place_of(insert->items[insert->applied]);
  if (!shard) {
    park(insert->id, insert->deadline, [this, insert](const Status& status) {
      if (status.ok()) {
        send(insert);
      } else {
        complete(insert, status);
      }
    });
    return;
  }
  // The items stay here, for another shard if need be: these are references to them.
  std::vector<Item> items;
  items.reserve(insert->items.size() - insert->applied);
  for (std::size_t i = insert->applied; i < insert->items.size(); ++i) {
    const Item& item = insert->items[i];
    items.push_back({item.key, item.priority, item.trajectory.copy(), item.version});
  }
  const ShardConnections::Call call = connections_.call<InsertResult>(
      *shard,
      [&](ReplayService& service, Done<InsertResult> done) {
        return service.insert({insert->table, items, insert->deadline}, std::move(done));
      },
      [this, insert, shard = *shard](InsertResult result) {
        on_inserted(insert, shard, std::move(result));
      });
  bool is_cancelled = false;
  {
    MutexLock lock(insert->mutex);
    insert->call = call;
    is_cancelled = insert->is_cancelled;
  }
  if (is_cancelled) connections_.cancel(call);
}

void ShardedService::on_inserted(const std::shared_ptr<Insert>& insert, ShardIndex shard,
                                 InsertResult result) {
  insert->applied += result.applied;
  const bool is_lost = result.status.code() == StatusCode::kUnavailable;
  if (is_lost && insert->applied == insert->items.size()) result.status = {};
  const bool is_to_go_on = is_lost && !result.status.ok();
  {
    MutexLock lock(mutex_);
    --inserts_out_[shard];
    if (is_to_go_on) {
      std::vector<ItemKey>& keys = strays_[shard][insert->table];
      for (std::size_t i = insert->applied; i < insert->items.size(); ++i) {
        keys.push_back(insert->items[i].key);
      }
    }
  }
  if (!is_to_go_on) return complete(insert, std::move(result.status));
  // Back so soon that on_return() did not see these.
  if (connections_.is_up(shard)) delete_strays(shard, [](const Status&) {});
  bool is_cancelled = false;
  {
    MutexLock lock(insert->mutex);
    is_cancelled = insert->is_cancelled;
  }
  if (is_cancelled) return complete(insert, cancelled("the insert was cancelled"));
  if (is_closed()) return complete(insert, closed_status());
  send(insert);
}

void ShardedService::complete(const std::shared_ptr<Insert>& insert, Status status) {
  {
    MutexLock lock(insert->mutex);
    insert->is_refused = insert->applied == 0 && !status.ok();
  }
  insert->done({std::move(status), insert->applied});
  end(insert->id);
}

// --- Shards that come back ------------------------------------------------------------------

// A shard that answers again may have read what was sent before it was lost, and gone elsewhere
// since. It gives that up, and says how large its tables are, before it is used.
void ShardedService::on_return(ShardIndex shard, const std::function<void(Status)>& done) {
  bool is_too_soon = false;
  {
    MutexLock lock(mutex_);
    is_too_soon = inserts_out_[shard] > 0;
  }
  if (is_too_soon) {
    done(unavailable("inserts of before are being taken back"));
    return;
  }
  delete_strays(shard, [this, shard, done](const Status& deleted) {
    if (!deleted.ok()) return done(deleted);
    connections_.service(shard).info([this, shard, done](const Result<Infos>& infos) {
      if (infos.ok()) sampler_.learn_sizes(shard, *infos);
      const bool is_gone = infos.status().code() == StatusCode::kUnavailable ||
                           infos.status().code() == StatusCode::kCancelled;
      done(is_gone ? infos.status() : Status());
    });
  });
}

// Strays come back to strays_ where the shard is lost again. `done` is told that, and nothing else:
// what a shard refuses it would refuse again.
void ShardedService::delete_strays(ShardIndex shard, std::function<void(Status)> done) {
  struct Deletion {
    Mutex mutex;
    std::size_t left REVERIE_GUARDED_BY(mutex) = 0;
    Status failure REVERIE_GUARDED_BY(mutex);
  };
  Strays strays;
  {
    MutexLock lock(mutex_);
    strays.swap(strays_[shard]);
  }
  if (strays.empty()) return done({});
  const auto deletion = std::make_shared<Deletion>();
  {
    MutexLock lock(deletion->mutex);
    deletion->left = strays.size();
  }
  for (const auto& entry : strays) {
    const std::string& table = entry.first;
    const std::vector<ItemKey>& keys = entry.second;
    MutateRequest request;
    request.table = table;
    request.deletes = keys;
    connections_.service(shard).mutate(
        request, [this, shard, deletion, done, table, keys](const MutateResult& result) {
          const bool is_lost = result.status.code() == StatusCode::kUnavailable ||
                               result.status.code() == StatusCode::kCancelled;
          if (is_lost) {
            MutexLock lock(mutex_);
            std::vector<ItemKey>& kept = strays_[shard][table];
            kept.insert(kept.end(), keys.begin(), keys.end());
          }
          Status failure;
          {
            MutexLock lock(deletion->mutex);
            if (is_lost) deletion->failure = result.status;
            if (--deletion->left > 0) return;
            failure = deletion->failure;
          }
          done(failure);
        });
  }
}

// --- Samples --------------------------------------------------------------------------------

RequestId ShardedService::sample(SampleRequest request, Done<SampleResult> done) {
  Status refused = is_closed() ? closed_status() : check_sample_request(request);
  if (refused.ok() && request.distinct && connections_.size() > 1) {
    refused = unimplemented(
        "distinct samples of {} shards are not possible; sample with replacement, or from one "
        "shard",
        connections_.size());
  }
  if (!refused.ok()) {
    request.batch.clear();
    done({std::move(refused), std::move(request.batch)});
    return 0;
  }
  if (sampler_.must_learn(request.table)) {
    // What priorities are raised to. Parts are even until it is known.
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
  auto fan = std::make_shared<Fan<T>>();
  const std::function<void()> cancel = [this, held = std::weak_ptr<Fan<T>>(fan)] {
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
  if (is_own) {
    id = begin(cancel);
  } else {
    MutexLock lock(mutex_);
    cancels_[id] = cancel;
  }
  {
    MutexLock lock(fan->mutex);
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
  struct Part {
    std::vector<CorruptItem> corrupt;
    std::vector<ItemKey> deletes;
    std::vector<ItemKey> keys;
    std::vector<double> priorities;
  };
  MutateResult refused;
  refused.status = is_closed() ? closed_status() : check_mutate_request(request);
  if (!refused.status.ok()) {
    done(std::move(refused));
    return 0;
  }
  std::vector<Part> parts(connections_.size());
  {
    MutexLock lock(keys_mutex_);
    const auto each_place = [&](ItemKey key, auto put) {
      keys_mutex_.assert_held();
      if (const std::optional<ShardIndex> shard = keys_.find(key)) return put(parts[*shard]);
      for (Part& part : parts) put(part);
    };
    for (const CorruptItem& item : request.corrupt) {
      each_place(item.key, [&item](Part& part) { part.corrupt.push_back(item); });
    }
    for (const ItemKey key : request.deletes) {
      each_place(key, [key](Part& part) { part.deletes.push_back(key); });
    }
    const auto update = [&](std::span<const ItemKey> keys, std::span<const double> priorities) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        each_place(keys[i], [&, i](Part& part) {
          part.keys.push_back(keys[i]);
          part.priorities.push_back(priorities[i]);
        });
      }
    };
    update(request.tickets, request.ticket_priorities);
    update(request.keys, request.key_priorities);
  }
  const std::size_t updates = request.tickets.size() + request.keys.size();
  const std::size_t deletes = request.deletes.size() + request.corrupt.size();
  const bool is_empty = updates + deletes == 0;
  std::vector<ShardIndex> to;
  std::vector<std::uint8_t> has_deletes(connections_.size());
  Status undone;  // a deletion whose shard is not there
  for (const auto shard : all_up()) {
    // One that asks for nothing still learns whether there is such a table.
    const Part& part = parts[shard];
    if (is_empty || !part.corrupt.empty() || !part.deletes.empty() || !part.keys.empty()) {
      to.push_back(shard);
    }
  }
  for (std::size_t s = 0; s < parts.size(); ++s) {
    const auto shard = static_cast<ShardIndex>(s);
    has_deletes[s] = !parts[s].deletes.empty() || !parts[s].corrupt.empty();
    if (!has_deletes[s] || connections_.is_up(shard)) continue;
    undone = unavailable("{}: {}; the others deleted theirs", connections_.text(shard),
                         connections_.why_down(shard).message());
  }
  if (!undone.ok() && to.empty()) undone = connections_.none_answers();
  const auto sum_up = [updates, deletes, has_deletes, undone, done = std::move(done)](
                          const std::vector<std::optional<MutateResult>>& results) {
    MutateResult whole;
    for (const auto& result : results) {
      if (!result) continue;
      whole.updated += result->updated;
      whole.deleted += result->deleted;
    }
    // A service that cannot know counts all it was asked for.
    whole.updated = std::min(whole.updated, updates);
    whole.deleted = std::min(whole.deleted, deletes);
    whole.missing = updates - whole.updated + deletes - whole.deleted;
    whole.status = undone;
    for (std::size_t s = 0; s < results.size(); ++s) {
      if (!results[s] || results[s]->status.ok()) continue;
      // Priorities for a shard that is gone are those of items that are gone.
      const bool is_gone = results[s]->status.code() == StatusCode::kUnavailable;
      if (!is_gone || (whole.status.ok() && has_deletes[s])) whole.status = results[s]->status;
      if (!is_gone) break;
    }
    done(std::move(whole));
  };
  if (to.empty()) {
    sum_up({});
    return 0;
  }
  return fan_out<MutateResult>(
      0, to,
      [&](ShardIndex shard, ReplayService& service, Done<MutateResult> answered) {
        MutateRequest part;
        part.table = request.table;
        part.corrupt = parts[shard].corrupt;
        part.deletes = parts[shard].deletes;
        part.keys = parts[shard].keys;
        part.key_priorities = parts[shard].priorities;
        return service.mutate(part, std::move(answered));
      },
      sum_up);
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
        LookupResult whole;
        whole.status = worst(results, [](const LookupResult& result) { return result.status; });
        bool is_answered = false;
        whole.priorities.assign(keys.size(), std::numeric_limits<double>::quiet_NaN());
        whole.tickets.assign(keys.size(), 0);
        for (const auto& result : results) {
          if (!result || !result->status.ok()) continue;
          is_answered = true;
          for (std::size_t i = 0; i < keys.size(); ++i) {
            if (std::isnan(result->priorities[i])) continue;
            whole.priorities[i] = result->priorities[i];
            whole.tickets[i] = keys[i];
          }
        }
        // Items of a shard that is gone are not there.
        if (is_answered && whole.status.code() == StatusCode::kUnavailable) whole.status = {};
        if (!whole.status.ok()) whole = {whole.status, {}, {}};
        done(std::move(whole));
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
      [&](ShardIndex, ReplayService& service, Done<Status> answered) {
        return service.reset(table, std::move(answered));
      },
      [undone, done = std::move(done)](const std::vector<std::optional<Status>>& results) {
        const Status status = worst(results, [](const Status& result) { return result; });
        done(status.ok() ? undone : status);
      });
}

RequestId ShardedService::info(Done<Result<Infos>> done) {
  return ask_info(/*is_one_enough=*/false, std::move(done));
}

RequestId ShardedService::describe(Done<Result<Infos>> done) {
  return ask_info(/*is_one_enough=*/true, std::move(done));
}

RequestId ShardedService::ask_info(bool is_one_enough, Done<Result<Infos>> done) {
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
        Infos whole;
        bool is_answered = false;
        for (auto& result : results) {
          if (!result || !result->ok()) continue;
          is_answered = true;
          for (TableInfo& part : result->value()) {
            const auto same = [&part](const TableInfo& info) {
              return info.options.name == part.options.name;
            };
            const auto found = std::ranges::find_if(whole, same);
            if (found == whole.end()) {
              whole.push_back(std::move(part));
            } else {
              add_up(*found, part);
            }
          }
        }
        if (!is_answered && status.code() == StatusCode::kUnavailable && !is_closed()) {
          send_info(id, is_one_enough, done);  // all were lost meanwhile: wait for one
          return;
        }
        const bool is_refused = !status.ok() && status.code() != StatusCode::kUnavailable;
        if (!is_answered || (is_refused && !is_one_enough)) {
          done(status);
        } else {
          sampler_.learn(whole);
          done(std::move(whole));
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
