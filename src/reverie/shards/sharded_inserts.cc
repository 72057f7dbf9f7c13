// Inserts of a ShardedService, and shards that return after they were lost.
//
// Tested in tests/integration/sharded_store_test.cc.
#include <utility>

#include "reverie/base/log.h"
#include "reverie/shards/sharded_service.h"

namespace reverie {
namespace {

// The episode of the newest chunk; empty if the item has no chunk.
std::optional<std::uint64_t> episode_of(const Item& item) {
  if (item.trajectory.empty() || item.trajectory.pieces().empty()) return std::nullopt;
  const Chunk* const newest = item.trajectory.pieces().back().chunk;
  if (newest == nullptr) return std::nullopt;
  return newest->episode();
}

}  // namespace

// An insert in progress.
struct ShardedService::Insert {
  RequestId id = 0;
  std::string table;
  std::vector<Item> items;
  std::size_t applied = 0;
  TimePoint deadline;
  Done<InsertResult> done;
  Mutex mutex;
  std::uint64_t attempts REVERIE_GUARDED_BY(mutex) = 0;
  std::optional<ShardConnections::Call> call REVERIE_GUARDED_BY(mutex);  // of the last attempt
  bool is_cancelled REVERIE_GUARDED_BY(mutex) = false;
  bool is_refused REVERIE_GUARDED_BY(mutex) = false;
};

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

// Sends it to a shard, or keeps it until one is up.
void ShardedService::send(const std::shared_ptr<Insert>& insert) {
  const std::optional<std::uint64_t> episode = episode_of(insert->items[insert->applied]);
  std::optional<ShardIndex> shard;
  {
    MutexLock lock(mutex_);
    shard = placement_.place(episode);
  }
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
  // The items stay here, in case another shard needs them: these are references to them.
  std::vector<Item> items;
  items.reserve(insert->items.size() - insert->applied);
  for (std::size_t i = insert->applied; i < insert->items.size(); ++i) {
    const Item& item = insert->items[i];
    items.push_back({item.key, item.priority, item.trajectory.copy(), item.version});
  }
  std::uint64_t attempt = 0;
  {
    MutexLock lock(insert->mutex);
    attempt = ++insert->attempts;
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
    // If this attempt has failed already, a later one may have kept its call.
    if (insert->attempts == attempt) insert->call = call;
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
    std::vector<ItemKey> keys;
    for (std::size_t i = insert->applied; is_to_go_on && i < insert->items.size(); ++i) {
      keys.push_back(insert->items[i].key);
    }
    MutexLock lock(mutex_);
    if (is_to_go_on) {
      placement_.settle_lost(shard, insert->table, keys);
    } else {
      placement_.settle(shard);
    }
  }
  if (!is_to_go_on) return complete(insert, std::move(result.status));
  // The shard has returned so soon that on_return() did not see these.
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

// A shard that answers again may have processed items that were sent before it was lost, and have
// been inserted elsewhere since. Before it is used again, it deletes them and reports the sizes of
// its tables.
void ShardedService::on_return(ShardIndex shard, const std::function<void(Status)>& done) {
  bool is_settled = false;
  {
    MutexLock lock(mutex_);
    is_settled = placement_.is_settled(shard);
  }
  if (!is_settled) {
    done(unavailable("earlier inserts are being withdrawn"));
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

// If the shard is lost again, strays are kept for its next return, and `done` gets that error.
// Other errors are ignored: a shard that refuses would do so again.
void ShardedService::delete_strays(ShardIndex shard, const std::function<void(Status)>& done) {
  struct Deletion {
    Mutex mutex;
    std::size_t left REVERIE_GUARDED_BY(mutex) = 0;
    Status failure REVERIE_GUARDED_BY(mutex);
  };
  ShardPlacement::Strays strays;
  {
    MutexLock lock(mutex_);
    strays = placement_.take_strays(shard);
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
            placement_.put_back(shard, table, keys);
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

void ShardedService::warn_of_strays() {
  std::vector<std::size_t> counts(connections_.size());
  {
    MutexLock lock(mutex_);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      counts[s] = placement_.stray_count(static_cast<ShardIndex>(s));
    }
  }
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] == 0) continue;
    log_warning(
        "{} did not answer before its client was closed: when it is back, it may have {} items "
        "that went elsewhere; keep the client until then if that matters",
        connections_.text(static_cast<ShardIndex>(s)), counts[s]);
  }
}

}  // namespace reverie
