// A member's logic: its membership (member_core.h), and its group's rounds in progress.
//
//     begin a round, requests and answers of others, tick
//          |
//          v
//     GroupCore  -->  Outgoing: calls and answers        Ended: rounds        membership()
//
// A state machine: no lock, clock, thread or socket. The rules of rounds:
// - A round belongs to one membership, whose members all take part. It is identified by the name
//   that the program gives it, and by how often that name was used in this membership. Parts that
//   other members send before the round has begun here are kept.
// - A round that ends without a result does so on all members: a member that sees the reason tells
//   the others. When a membership ends, so do its rounds.
// - A round that takes long asks the members that it waits for whether they have begun it.
// - If the members of each host can map the memory of the first of them, arrays go through it. The
//   members agree on that once in each membership, when the first round of arrays begins
//   (group_sharing.cc); rounds wait until then. So all members choose alike.
// - With several hosts a reduction has three steps: in shared memory to the leader of each host;
//   by calls among the leaders; in shared memory from each leader to its host.
//
//     host 0   a b c --> [a]        [a] --> a b c
//     host 1   d     --> [d] <====> [d] --> d
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/group/member_core.h"
#include "reverie/group/round.h"
#include "reverie/group/round_message.h"
#include "reverie/reduce/hosts.h"
#include "reverie/reduce/shared_rounds.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

using RoundId = std::uint64_t;

// The function that members of a group call on each other.
std::string group_function(const std::string& group);

// Not thread-safe.
class GroupCore {
 public:
  // Bounds the messages that are kept for rounds that have not begun here. One of any size is kept.
  static constexpr std::size_t kEarlyBytesMax = std::size_t{4} << 30;

  struct Outgoing {
    enum class Kind { kCall, kAnswer, kFail };
    Kind kind = Kind::kCall;
    // A call. `ticket` is passed to on_answered(); with 0 that is not called.
    std::string peer;
    std::string function;
    std::uint64_t ticket = 0;
    TimePoint deadline = TimePoint::max();
    // An answer.
    InboundId request;
    RemoteError error;
    Payload payload;
  };
  struct Ended {
    RoundId id = 0;
    Status status;  // ok: the round has its result
    std::vector<std::string> lost;
  };
  // A step of a round to do in shared memory. on_shared() reports its outcome.
  struct Shared {
    RoundId id = 0;
    std::uint64_t key = 0;  // the same on all members of the host, and not 0
    SharedStep step = SharedStep::kAll;
  };
  // The memory that the members of a host share, in the membership with this id. Both functions
  // return the maximum size of an array in it, or empty if there is no such memory.
  struct ShareSource {
    std::string host;  // equal for members that may share
    std::function<std::optional<std::size_t>(std::uint64_t membership, std::size_t member_count,
                                             ShareOffer&)>
        make;
    std::function<std::optional<std::size_t>(std::uint64_t membership, std::size_t member,
                                             std::size_t member_count, const ShareOffer&)>
        open;
  };

  explicit GroupCore(MemberCore::Options options, ShareSource source = {},
                     std::size_t early_bytes_max = kEarlyBytesMax);

  // --- Calls of the program.
  void join(TimePoint now);
  void advance(TimePoint now);
  void leave(TimePoint now);
  void set_sort_order(std::int64_t sort_order, TimePoint now);
  void set_stall_timeout(Duration timeout, TimePoint now);
  // `round` was made for the membership of this id: UNAVAILABLE if that is not the current one.
  // FAILED_PRECONDITION without a membership; ALREADY_EXISTS while one of this name is under way.
  // INVALID_ARGUMENT for a name of more than kRoundNameMax bytes.
  Result<RoundId> begin(const std::string& name, std::uint64_t membership,
                        std::shared_ptr<Round> round, TimePoint deadline, TimePoint now);
  // Ends the round on all members.
  void give_up(RoundId round, const Status& why, TimePoint now);

  // --- Events.
  void on_request(Request request, TimePoint now);
  void on_answered(std::uint64_t ticket, const CallResult& result, TimePoint now);
  // A step in shared memory has ended: with its result, an error, or a member of the host whose
  // arrays differ.
  void on_shared(RoundId round, const Status& status, std::optional<std::size_t> differs_with,
                 TimePoint now);
  void tick(TimePoint now);
  TimePoint next_tick() const;

  std::vector<Shared> take_shared() { return std::exchange(shared_, {}); }
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }

  // --- State.
  const Membership& membership() const { return current_; }
  const MemberCore& member() const { return member_; }
  // Whether arrays of this many bytes go through shared memory, as far as is known.
  bool is_shared(std::size_t size_bytes) const {
    return sharing_ == Sharing::kShared && size_bytes > 0 && size_bytes <= share_bytes_max_;
  }
  // Whether any do; empty before it is known.
  std::optional<bool> shares_memory() const {
    if (sharing_ == Sharing::kUnknown) return std::nullopt;
    return sharing_ == Sharing::kShared;
  }
  // How many hosts the members are on, if they share memory.
  std::optional<std::size_t> host_count() const {
    if (sharing_ != Sharing::kShared) return std::nullopt;
    return hosts_->count();
  }
  std::size_t rounds_under_way() const { return running_.size(); }
  // A text that says what this member waits for; empty if nothing.
  std::string why_waiting(TimePoint now) const;

 private:
  enum class Path {
    kHeld,      // until it is known how arrays go
    kCalls,     // among all members
    kShared,    // through the memory of the one host
    kToLeader,  // through that of each host; then
    kAcross,    // among the leaders, over calls; then
    kFromLeader,
  };
  struct Running {
    RoundId id = 0;
    std::shared_ptr<Round> round;
    TimePoint since;
    TimePoint deadline;
    TimePoint next_ask;
    std::map<std::string, RoundWord> words;
    Path path = Path::kHeld;
    bool is_over_calls() const { return path == Path::kCalls || path == Path::kAcross; }
    // Then little or nothing is sent to some members: what they reduce is asked, and so is whether
    // they can be reached.
    bool is_asked_about() const { return path != Path::kCalls; }
  };
  enum class Sharing { kUnknown, kShared, kCalls };
  struct Early {
    std::size_t from = 0;
    std::string caller;
    RoundMessage message;
    Payload payload;  // without its head, which is decoded
    TimePoint came;
    std::size_t size_bytes = 0;  // of the payload as it came, and of what keeps it
  };
  struct Failed {
    RoundKey round;
    Status status;
    std::string lost;
  };
  struct Sent {
    enum class What { kMember, kPart, kAsk, kCompare, kShare };
    What what = What::kPart;
    std::uint64_t member_ticket = 0;
    RoundKey round;
    RoundId id = 0;  // 0 for an abort
    std::uint64_t membership = 0;
    std::string to;
    bool must_arrive = false;
  };

  void after_member();
  void enter(const Membership& next);
  Status why_no_member() const;
  void call(const std::string& peer, std::string function, Payload payload, Sent sent,
            TimePoint deadline = TimePoint::max());
  void answer(InboundId request, Payload payload = {});
  void fail(InboundId request, StatusCode code, std::string type, std::string text);
  // Returns null and fails the request if the part is not accepted.
  void take(Running& running, const RoundKey& key, std::size_t from, const RoundMessage& message,
            Payload payload, InboundId request);
  // Ends the round instead if a part is too large for a message.
  void send_parts(const RoundKey& key, RoundId id, Round& round, std::vector<RoundPart> parts);
  void end_if_done(const RoundKey& key);
  void end(const RoundKey& key, const Status& status, const std::vector<std::string>& lost,
           bool notifies_others);
  void note_failed(const RoundKey& key, const Status& status, const std::vector<std::string>& lost);
  void on_part(std::size_t from, RoundMessage message, Request request, TimePoint now);
  void on_abort(const RoundMessage& message);
  // Asks `with` what it reduces, so that the error can name the difference.
  void compare(const RoundKey& key, RoundId id, const std::string& with, TimePoint now);
  void end_as_different(const RoundKey& key, const std::string& other, std::string_view signature);
  void on_part_answered(const Sent& sent, const CallResult& result);
  // A part of a round whose result is here already did not reach its member.
  void on_part_lost(const Sent& sent, const CallResult& result);
  void abort_on(const std::string& member, const RoundKey& key, const Status& status,
                const std::string& lost);
  // Answers the request, and returns the message to keep. Empty, and the request has failed, if
  // there is no room for it.
  std::optional<Early> keep(std::size_t from, RoundMessage message, Request request, TimePoint now);
  void keep_future(RoundMessage message, Request request, TimePoint now);
  void ask(const RoundKey& key, Running& running, TimePoint now);
  // Whether the round cannot go on if that member is out of reach.
  bool needs(const Running& running, const std::string& member) const;
  bool is_past(std::uint64_t membership) const;
  void start(const RoundKey& key, TimePoint now);
  void start_over_calls(const RoundKey& key, TimePoint now);
  void start_across(const RoundKey& key, TimePoint now);
  void start_from_leader(const RoundKey& key);
  void share(const RoundKey& key, const Running& running, SharedStep step);
  std::vector<Early> take_early(const RoundKey& key);
  bool is_two_level() const { return hosts_ && hosts_->count() > 1; }
  bool leads_host() const { return hosts_->is_leader(member_.index()); }
  std::size_t host() const { return hosts_->host_of(member_.index()); }
  std::size_t host_size() const { return hosts_->members_of(host()).size(); }

  // --- Shared memory (group_sharing.cc).
  void reset_sharing();
  void agree_on_sharing(TimePoint now);
  void tell_first(const ShareQuery& ask);
  void look_at_hosts(TimePoint now);
  void show_memory(std::size_t member, InboundId request);
  void on_share_request(const RoundMessage& message, std::size_t from, InboundId request,
                        TimePoint now);
  void on_share_answer(const CallResult& result, TimePoint now);
  ShareQuery looked_at(const ShareWord& word);
  void decide_sharing(Sharing sharing, TimePoint now);
  ShareWord decided_word() const;

  MemberCore member_;
  const std::string function_;
  Membership current_;
  std::deque<std::uint64_t> past_;  // ids, the newest last
  std::map<RoundKey, Running> running_;
  // Rounds of each name in this membership, which number the next one: a late part of a round that
  // failed must not be taken for one of the next. It grows with each new name, since a member that
  // forgot one alone would number its next round differently from the others.
  std::map<std::string, std::uint64_t> begun_;
  std::map<RoundKey, std::vector<Early>> early_;
  std::map<RoundKey, Ended> aborted_;                    // before the round has begun here
  std::deque<Failed> failed_;                            // for members that no abort has reached
  std::map<std::uint64_t, std::vector<Early>> futures_;  // of memberships that are not known yet
  std::size_t early_bytes_ = 0;                          // of early_ and futures_
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t next_ticket_ = 1;
  RoundId next_round_ = 1;

  const ShareSource source_;
  const std::size_t early_bytes_max_;
  Sharing sharing_ = Sharing::kUnknown;
  std::size_t share_bytes_max_ = 0;
  bool is_share_requested_ = false;  // the first member was asked, or this is the first
  TimePoint share_retry_at_ = TimePoint::max();
  std::optional<Hosts> hosts_;
  std::map<std::size_t, ShareOffer> offers_;  // by host: this member's, or on the first all
  // Used by the first member only.
  std::map<std::size_t, std::pair<std::string, InboundId>> asks_;  // by member: its host
  std::map<std::size_t, InboundId> offer_waiters_;                 // by member
  std::set<std::size_t> seen_by_;
  std::vector<InboundId> share_waiters_;

  std::vector<Shared> shared_;
  std::vector<Outgoing> outgoing_;
  std::vector<Ended> ended_;
};

}  // namespace reverie
