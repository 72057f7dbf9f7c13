// ShardConnections: connections to services that share one load. The shell around shard_health.h,
// which decides which of them answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_health.h"

namespace reverie {

struct Shard {
  std::string name;  // for messages: its address
  std::shared_ptr<ReplayService> service;
  // Checks whether it answers, without waiting for a connection. Null: info() is called instead.
  std::function<void(std::function<void(Status)> done)> probe = {};
};

// Thread-safe. Destroyed after close() and drain().
class ShardConnections {
 public:
  using Call = ShardCall;

  struct Events {
    // Called when a service that was down answers. It stays down until `done` is called with ok;
    // after an error it is probed again.
    std::function<void(ShardIndex, std::function<void(Status)> done)> on_return;
    // Called when a service went down or came up.
    std::function<void()> on_change;
  };

  // Events are called under no lock. `timers` runs on `clock`, and is stopped before this ends.
  ShardConnections(std::vector<Shard> shards, const ShardConnectionOptions& options, Clock& clock,
                   TimerQueue& timers, Events events);

  std::size_t size() const { return endpoints_.size(); }
  // "shard 1 of 3 (10.0.0.6:7000)"; only the name if there is one shard.
  const std::string& text(ShardIndex shard) const { return endpoints_[shard]->text; }
  const std::string& name(ShardIndex shard) const { return endpoints_[shard]->shard.name; }
  bool is_up(ShardIndex shard) const {
    return endpoints_[shard]->is_up.load(std::memory_order_acquire);
  }
  // For requests outside call(): these neither mark the service down nor are lost with it.
  ReplayService& service(ShardIndex shard) const { return *endpoints_[shard]->shard.service; }
  // Its latest error; ok while it is up.
  Status why_down(ShardIndex shard) const;
  // UNAVAILABLE, listing the shards that are down, for a request that no shard can serve.
  Status none_answers() const;

  // Makes one request: start(service, done). then(T) is called once, like `done`, with errors that
  // name the shard; UNAVAILABLE means that the shard is lost.
  template <typename T, typename Start, typename Then>
  Call call(ShardIndex shard, Start start, Then then) {
    const Call call = open_call(shard);
    const RequestId request =
        start(*endpoints_[shard]->shard.service, [this, call, then = std::move(then)](T result) {
          settle(call, result);
          then(std::move(result));
          leave();
        });
    attach(call, request);
    return call;
  }
  // Completes it with CANCELLED and what was done so far; no effect once it has completed.
  void cancel(const Call& call);
  // Closes the services: pending and later requests end with CANCELLED.
  void close();
  // Waits for the completions that are running. Call it after close(), not within a completion.
  void drain();

 private:
  struct Endpoint {
    Shard shard;
    std::string text;
    std::atomic<bool> is_up{true};  // copy of health_; written under mutex_
  };

  Call open_call(ShardIndex shard);
  void attach(const Call& call, RequestId request);
  // Ends a call; returns the status for its caller.
  Status end_call(const Call& call, Status status);
  void leave();
  void lose(ShardIndex shard, const Status& why);
  void check_health();
  void probe(ShardIndex shard);
  void take_probe(ShardIndex shard, const Status& status);
  void end_return(ShardIndex shard, const Status& repaired);

  template <typename T>
  void settle(const Call& call, T& result) {
    if constexpr (std::is_same_v<T, Status>) {
      result = end_call(call, std::move(result));
    } else if constexpr (requires { result.value(); }) {
      Status status = end_call(call, result.status());
      if (!result.ok()) result = std::move(status);
    } else {
      result.status = end_call(call, std::move(result.status));
    }
  }

  const ShardConnectionOptions options_;
  Clock& clock_;
  const Events events_;
  const std::vector<std::unique_ptr<Endpoint>> endpoints_;
  Alarm alarm_;
  mutable Mutex mutex_;
  CondVar left_;
  ShardHealth health_ REVERIE_GUARDED_BY(mutex_);
  std::size_t under_way_ REVERIE_GUARDED_BY(mutex_) = 0;  // pending completions, probes included
};

}  // namespace reverie
