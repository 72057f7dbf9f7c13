// A member's side of a group: finds the broker, and keeps the newest membership.
//
//     looking --(broker answers)--> member --(broker lost)--> member of an epoch that cannot change
//        ^                             |
//        +---- dropped, or stalled ----+
//
// A state machine: no lock, clock or thread. It distinguishes two things. The *process* is alive
// while its native thread answers the broker's peer; that needs nothing here. The *program*
// advances while it calls advance(); with a `stall_timeout`, a member whose program does not call
// it leaves by itself, and joins again with the next call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/group/membership.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

// Not thread-safe.
class MemberCore {
 public:
  struct Options {
    std::string group;
    std::string broker = "broker";
    Member self;
    Duration stall_timeout = Duration::max();
  };
  // A message to the broker. `ticket` is passed to on_answered(); with 0 that is not called.
  struct Call {
    std::uint64_t ticket = 0;
    Payload payload;
  };

  explicit MemberCore(Options options) : options_(std::move(options)) {}

  // --- Events.
  void join(TimePoint now);
  // The program is alive. Joins again after a stall.
  void advance(TimePoint now);
  void leave();
  void set_sort_order(std::int64_t sort_order, TimePoint now);
  void set_stall_timeout(Duration timeout, TimePoint now);
  void on_answered(std::uint64_t ticket, const CallResult& result, TimePoint now);
  void tick(TimePoint now);
  TimePoint next_tick() const;
  std::vector<Call> take_calls() { return std::exchange(calls_, {}); }

  // --- State.
  const Options& options() const { return options_; }
  // Epoch 0 while there is none, and after leave() or a stall.
  const Membership& membership() const { return membership_; }
  std::size_t index() const { return index_; }
  // Why the broker will never accept this member; ok while it may.
  const Status& refusal() const { return refusal_; }
  bool is_stalled() const { return is_stalled_; }
  TimePoint last_advanced() const { return last_advanced_; }
  // Empty while the broker is believed to have this member.
  std::string why_not_watched(TimePoint now) const;

 private:
  void watch();
  void drop_membership();

  Options options_;
  Membership membership_;
  std::size_t index_ = 0;
  bool is_joined_ = false;
  bool is_stalled_ = false;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t watch_ticket_ = 0;  // of the request that the broker has; 0: none
  bool is_first_watch_ = true;      // since the broker was lost or before it was found
  TimePoint retry_at_ = TimePoint::max();
  Duration pause_{};
  std::optional<TimePoint> lost_since_;
  Status last_error_;
  Status refusal_;
  TimePoint last_advanced_{};
  std::vector<Call> calls_;
};

}  // namespace reverie
