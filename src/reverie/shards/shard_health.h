// ShardHealth: which of some services answer, as a state machine without lock, clock or thread.
//
//      up --- a call ends with UNAVAILABLE, or one waits and a probe is not answered ---> down
//       ^--------------------------- a probe is answered ---------------------------------|
//
// A service that goes down loses its calls: each ends as if it had returned UNAVAILABLE, so that
// its caller can use another shard. A service that is down is probed every probe_interval. Before
// it is used again, its owner repairs what it missed.
//
// A call may wait for a good reason (a limiter, a slow reader), so silence is not a failure. A
// service with waiting calls and no progress is probed, less and less often while it answers, and
// goes down when a probe is not answered within probe_timeout.
//
// All times are on one clock, which only moves forward. ShardConnections is the shell that locks,
// makes the calls and sends the probes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_directory.h"

namespace reverie {

struct ShardConnectionOptions {
  Duration probe_interval = std::chrono::milliseconds(250);
  // The longest time between probes of a service that answers them.
  Duration probe_interval_max = std::chrono::seconds(2);
  Duration probe_timeout = std::chrono::seconds(2);
};

// Identifies a call to one shard.
struct ShardCall {
  ShardIndex shard = 0;
  std::uint64_t id = 0;
};

// Not thread-safe.
class ShardHealth {
 public:
  // `texts` names the services in messages. Initially all are up.
  ShardHealth(std::vector<std::string> texts, const ShardConnectionOptions& options);

  bool is_up(ShardIndex shard) const { return states_[shard].is_up; }
  // Its latest error; ok while it is up.
  Status why_down(ShardIndex shard) const;
  // UNAVAILABLE, listing the shards that are down, for a request that no shard can serve.
  Status none_answers() const;

  // --- Calls. Each call is opened, attached to the service's request, and ended once.
  ShardCall open_call(ShardIndex shard, TimePoint now);
  enum class Attached {
    kOver,        // the call has ended
    kWaiting,     // call check_health() after probe_interval
    kMustCancel,  // also, the call was lost or cancelled meanwhile: cancel its request
  };
  Attached attach(const ShardCall& call, RequestId request);
  // The request to cancel; 0 if the call is over, or not attached yet.
  RequestId cancel(const ShardCall& call);
  struct Ended {
    Status told;           // for the caller: errors name the shard, UNAVAILABLE: it is lost
    bool is_gone = false;  // the service is gone: call lose()
  };
  Ended end_call(const ShardCall& call, Status status, TimePoint now);

  // Marks a service down. Returns the requests to cancel; no value if it was down already.
  std::optional<std::vector<RequestId>> lose(ShardIndex shard, const Status& why);

  // --- Probes. Each probe that check_health() requests ends with take_probe(), then end_return()
  // if that returns kReturning.
  struct Checkup {
    std::vector<ShardIndex> to_probe;
    std::vector<ShardIndex> silent;  // whose probes timed out: call lose()
    Status silence;                  // the reason
    bool is_needed = false;          // call it again after probe_interval
  };
  Checkup check_health(TimePoint now);
  enum class Probed {
    kAlive,      // or the answer is obsolete
    kGone,       // call lose()
    kReturning,  // was down and answers: repair what it missed, then end_return()
  };
  Probed take_probe(ShardIndex shard, const Status& status, TimePoint now);
  // `is_repaired`: it is used again. Returns whether it came up.
  bool end_return(ShardIndex shard, bool is_repaired, TimePoint now);

  // From now on nothing is lost or probed.
  void close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }

 private:
  struct Pending {
    RequestId request = 0;  // 0 until it is attached
    bool is_cancelled = false;
    bool is_lost = false;
  };
  struct State {
    std::string text;
    bool is_up = true;
    Status why;
    std::unordered_map<std::uint64_t, Pending> calls;
    TimePoint last_progress;  // when something was last begun while idle, ended, or was answered
    Duration silence_max{};   // how long it may be silent after that
    bool is_probed = false;
    TimePoint probed_at;
  };

  const ShardConnectionOptions options_;
  std::vector<State> states_;
  std::uint64_t last_id_ = 0;
  bool is_closed_ = false;
};

}  // namespace reverie
