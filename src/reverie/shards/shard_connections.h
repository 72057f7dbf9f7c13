// ShardConnections: connections to services that share one load, and which of them answer.
//
//      up --- a request ends with UNAVAILABLE, or one waits and a probe is not answered ---> down
//       ^--------------------------- a probe is answered ------------------------------------|
//
// A connection that goes down ends its requests: each completes as if the service had said
// UNAVAILABLE, so that its caller can turn to another shard. A connection that is down is probed
// every probe_interval. Before it is used again its owner is told, and may repair what it missed.
//
// A request may wait for a good reason (a limiter, a slow reader), so silence is no failure. A
// connection on which something waits and nothing moves is probed, less and less often while it
// answers, and goes down when a probe is not answered within probe_timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_directory.h"

namespace reverie {

struct Shard {
  std::string name;  // for messages: its address
  std::shared_ptr<ReplayService> service;
  // Asks whether it answers, at once: a service that waits for a connection would not say. info()
  // is asked when there is none.
  std::function<void(std::function<void(Status)> done)> probe = {};
};

struct ShardConnectionOptions {
  Duration probe_interval = std::chrono::milliseconds(250);
  // Between probes of a connection that answers them.
  Duration probe_interval_max = std::chrono::seconds(2);
  Duration probe_timeout = std::chrono::seconds(2);
};

// Rings once at a time that may be moved nearer.
class Alarm {
 public:
  // `timers` is stopped before this ends.
  Alarm(TimerQueue& timers, std::function<void()> ring) : timers_(timers), ring_(std::move(ring)) {}
  // Rings at `when`, and maybe before.
  void set(TimePoint when);

 private:
  TimerQueue& timers_;
  const std::function<void()> ring_;
  Mutex mutex_;
  TimePoint armed_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
};

// Thread-safe. Destroyed after close() and drain().
class ShardConnections {
 public:
  // Names a request on one connection for cancel().
  struct Call {
    ShardIndex shard = 0;
    std::uint64_t id = 0;
  };

  struct Events {
    // A connection that was down answers. It stays down until `done` is called with ok; after an
    // error it is probed again.
    std::function<void(ShardIndex, std::function<void(Status)> done)> on_return;
    // A connection went down or came up.
    std::function<void()> on_change;
  };

  // Events are called under no lock. `timers` runs on `clock`, and is stopped before this ends.
  ShardConnections(std::vector<Shard> shards, const ShardConnectionOptions& options, Clock& clock,
                   TimerQueue& timers, Events events);

  std::size_t size() const { return connections_.size(); }
  // "shard 1 of 3 (10.0.0.6:7000)"; the name alone where there is one.
  const std::string& text(ShardIndex shard) const { return connections_[shard]->text; }
  const std::string& name(ShardIndex shard) const { return connections_[shard]->shard.name; }
  bool is_up(ShardIndex shard) const {
    return connections_[shard]->is_up.load(std::memory_order_acquire);
  }
  // For requests that are no call(): they neither lose the connection nor are lost with it.
  ReplayService& service(ShardIndex shard) const { return *connections_[shard]->shard.service; }
  // What it said last; ok while it is up.
  Status why_down(ShardIndex shard) const;
  // UNAVAILABLE with all that are down, for a request that none is left for.
  Status none_answers() const;

  // Makes one request: start(service, done). then(T) is called once, as `done` would be, with
  // errors that name the shard; UNAVAILABLE says that it is lost.
  template <typename T, typename Start, typename Then>
  Call call(ShardIndex shard, Start start, Then then) {
    const std::uint64_t id = open_call(shard);
    const RequestId request = start(*connections_[shard]->shard.service,
                                    [this, shard, id, then = std::move(then)](T result) {
                                      settle(shard, id, result);
                                      then(std::move(result));
                                      leave();
                                    });
    attach(shard, id, request);
    return {shard, id};
  }
  // Completes it with CANCELLED and what was done so far; no effect once it completed.
  void cancel(const Call& call);
  // Closes the services: what is under way and what comes ends with CANCELLED.
  void close();
  // Waits for the completions that are running. After close(); not within one.
  void drain();

 private:
  struct Pending {
    RequestId request = 0;  // 0 until its call has returned
    bool is_cancelled = false;
    bool is_lost = false;
  };
  struct Connection {
    Shard shard;
    std::string text;
    std::atomic<bool> is_up{true};
    // Under mutex_:
    Status why;
    std::unordered_map<std::uint64_t, Pending> calls;
    TimePoint moved_at;   // when something was last begun while idle, ended, or was answered
    Duration patience{};  // that it may be silent from then on
    bool is_probed = false;
    TimePoint probed_at;
  };

  std::uint64_t open_call(ShardIndex shard);
  void attach(ShardIndex shard, std::uint64_t id, RequestId request);
  // The end of a call: what its status means for the connection, and what its maker is told.
  Status classify(ShardIndex shard, std::uint64_t id, Status status);
  void leave();
  void lose(ShardIndex shard, const Status& why);
  void look_around();
  void probe(ShardIndex shard);
  void take_probe(ShardIndex shard, const Status& status);
  void come_back(ShardIndex shard);

  template <typename T>
  void settle(ShardIndex shard, std::uint64_t id, T& result) {
    if constexpr (std::is_same_v<T, Status>) {
      result = classify(shard, id, std::move(result));
    } else if constexpr (requires { result.value(); }) {
      Status status = classify(shard, id, result.status());
      if (!result.ok()) result = std::move(status);
    } else {
      result.status = classify(shard, id, std::move(result.status));
    }
  }

  const ShardConnectionOptions options_;
  Clock& clock_;
  const Events events_;
  std::vector<std::unique_ptr<Connection>> connections_;
  Alarm alarm_;
  mutable Mutex mutex_;
  CondVar left_;
  std::uint64_t last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t under_way_ REVERIE_GUARDED_BY(mutex_) = 0;  // completions to come, probes too
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
