// A broker's logic: which members each group has, in numbered epochs.
//
//     watch, leave, a request withdrawn, tick  -->  BrokerCore  -->  answers
//
// A state machine: no lock, clock or thread. Each member has a request at the broker that waits for
// the next membership. A withdrawn request means that the member is gone: its process has died, is
// frozen, or cannot be reached, which the peers' native threads detect. So an idle group sends
// nothing.
//
// The rules:
// - A change (a member joins, leaves, or returns as another incarnation) becomes a new epoch after
//   `settle`, so that members that start together make one epoch.
// - A member whose request is withdrawn has `grace` to ask again, one that was answered
//   `return_grace`.
// - A broker knows nothing when it starts. The first member that returns tells it the membership;
//   the others have `rejoin_timeout` to do the same. If all do, the epoch continues, and nothing
//   was lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/group/membership.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

struct BrokerOptions {
  Duration settle = std::chrono::milliseconds(20);
  Duration grace = std::chrono::milliseconds(100);
  Duration return_grace = std::chrono::milliseconds(1750);
  Duration rejoin_timeout = std::chrono::seconds(3);
  std::size_t groups_max = 65'536;
  std::function<std::uint64_t()> random;  // fresh random bits
};

struct GroupInfo {
  std::string name;
  Membership membership;
  std::vector<std::string> missing;  // members that the broker waits for
};

// Not thread-safe.
class BrokerCore {
 public:
  struct Answer {
    InboundId to;
    Status status;  // else the membership:
    Payload payload;
  };

  explicit BrokerCore(BrokerOptions options) : options_(std::move(options)) {}

  void on_request(const Request& request, TimePoint now);
  void on_withdrawn(InboundId request, TimePoint now);
  void tick(TimePoint now);
  TimePoint next_tick() const;
  // Tells all waiting members to look for another broker.
  void close();
  // The answers to send since the last call.
  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }

  std::vector<GroupInfo> groups() const;

 private:
  struct Entry {
    Member member;
    std::uint64_t joined = 0;
    std::optional<InboundId> request;
    TimePoint lost_at = TimePoint::max();  // while there is no request
    bool is_listed = false;                // in the current membership
    bool is_awaited = false;               // known to the previous broker, and not back yet
  };
  struct State {
    Membership current;
    std::map<std::string, Entry> entries;
    TimePoint change_at = TimePoint::max();
    std::uint64_t epoch_floor = 0;
    std::uint64_t next_joined = 0;
  };

  void on_watch(InboundId id, BrokerRequest request, TimePoint now);
  void on_leave(InboundId id, const BrokerRequest& request, TimePoint now);
  // Waits for members of `known` that this broker has not heard from.
  void adopt(State& state, const Membership& known, TimePoint now);
  void changed(State& state, TimePoint now);
  void publish(State& state, TimePoint now);
  void answer_watch(State& state, Entry& entry, TimePoint now);
  // True while members known to the previous broker may still return.
  static bool is_awaiting(const State& state);

  const BrokerOptions options_;
  std::map<std::string, State> groups_;
  std::vector<Answer> answers_;
};

}  // namespace reverie
