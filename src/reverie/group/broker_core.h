// A broker's logic: which members each group has, in numbered epochs.
//
//     watch, leave, a request withdrawn, tick  -->  BrokerCore  -->  answers
//
// A state machine: no lock, clock or thread. Each member has a request at the broker that waits for
// the next membership. A request that is withdrawn means that the member is gone: its process
// died, or is frozen, or cannot be reached, which the peers' native threads find out. So an idle
// group sends nothing.
//
// The rules:
// - A change (a member comes, goes, or is back as another incarnation) becomes a new epoch when
//   `settle` has passed, so that members that start together make one epoch.
// - A member whose request is withdrawn has `grace` to ask again, one that was answered `return`.
// - A broker that starts knows nothing. The first member that comes back tells it the membership;
//   the others have `comeback` to do the same. If all do, the epoch goes on, and nothing was lost.
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
  Duration comeback = std::chrono::seconds(3);
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
    Status status;  // else:
    Payload payload;
  };

  explicit BrokerCore(BrokerOptions options) : options_(std::move(options)) {}

  void on_request(const Request& request, TimePoint now);
  void on_withdrawn(InboundId request, TimePoint now);
  void tick(TimePoint now);
  TimePoint next_tick() const;
  // Tells all members that wait here to look for another broker.
  void close();
  // What is to be answered since the last call.
  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }

  std::vector<GroupInfo> groups() const;

 private:
  struct Entry {
    Member member;
    std::uint64_t joined = 0;
    std::optional<InboundId> request;
    TimePoint lost_at = TimePoint::max();  // while there is no request
    bool is_listed = false;                // in the current membership
    bool is_awaited = false;               // of another broker's time, and not back yet
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
  // Members of `known` that this broker never heard of are waited for.
  void adopt(State& state, const Membership& known, TimePoint now);
  void changed(State& state, TimePoint now);
  void publish(State& state, TimePoint now);
  void tell(State& state, Entry& entry, TimePoint now);
  // True while members of another broker's time may still come back.
  static bool is_awaiting(const State& state);

  const BrokerOptions options_;
  std::map<std::string, State> groups_;
  std::vector<Answer> answers_;
};

}  // namespace reverie
