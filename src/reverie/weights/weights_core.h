// WeightsCore: which peer has which version, which is asked for it, and who is referred to whom.
//
//     publisher --> a --> e, f         each peer gets a version from the one it was referred to
//               --> b --> g            kFanOut of them, which then serve the next ones
//               ~~> c                  on the publisher's host: told where the memory lies
//
// A state machine: no lock, no clock, no thread, no socket. Its owner copies values, under no lock.
//
// - A peer asks its sources in order; a source that serves kFanOut peers already answers with the
//   name of one of them that the asker can reach, and the asker asks that one from then on. So a
//   tree forms. Peers of one host are referred to the peer of their host that is in the tree.
// - A peer that others ask requests each next version by itself, so that those below it get it
//   whatever its program does. It stops once none has asked for two minutes; the next one that does
//   not wait is answered when the sources have been asked for a newer one.
// - A peer that cannot reach the peer it was referred to returns to its sources, and says so: the
//   source refers it elsewhere, or serves it.
// - Versions are complete and only grow: a version older than the peer's is dropped.
// - A restarted publisher may begin with a lower version, as after a checkpoint. So a version has
//   its publisher's run, and any version of a later run is newer. A request that waits ends with
//   the first version of a later run, whatever its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/rpc/peer_core.h"
#include "reverie/weights/held_version.h"
#include "reverie/weights/weights_message.h"

namespace reverie {

// Not thread-safe.
class WeightsCore {
 public:
  static constexpr std::size_t kFanOut = 4;

  struct Options {
    std::string name;  // of the weights
    std::string self;  // of this peer
    std::string host;  // equal for peers that may map each other's memory; empty: unknown
    std::vector<std::string> sources;
    std::uint64_t run = 1;  // of this peer as a publisher; a later one has a higher number
    bool maps = true;
    // Peers to ask when no source answers.
    std::function<std::vector<std::string>()> others;
    // Who can be referred to this peer.
    std::function<WeightsRequest::Reach()> reach;
    // Whether there is a connection to a peer.
    std::function<bool(const std::string&)> is_connected;
    // Opens what another peer on this host holds. UNAVAILABLE if it cannot.
    std::function<Result<HeldVersion>(const WeightsPlace&, std::uint64_t version)> map;
    // Moves the version to memory that others on this host can map; or returns it unchanged. Called
    // by Outgoing::copy.
    std::function<HeldVersion(HeldVersion)> share;
  };
  using InquiryId = std::uint64_t;

  struct Outgoing {
    enum class Kind { kCall, kCancel, kAnswer, kFail, kCopy };
    Kind kind = Kind::kCall;
    std::uint64_t ticket = 0;  // of a call or copy
    std::string peer;
    Payload payload;
    TimePoint deadline;
    InboundId request;
    RemoteError error;
    // Makes a complete version, by a copy of so many bytes. On any thread, while the peer exists.
    std::function<Result<HeldVersion>()> copy;
    std::size_t copied_bytes = 0;
  };
  struct Ended {
    InquiryId ask = 0;
    Status status;
  };

  explicit WeightsCore(Options options);

  const Options& options() const { return options_; }
  const HeldVersion& held() const { return held_; }
  // Whether versions are sent to others, so that finding changes is worthwhile.
  bool sends(TimePoint now) { return has_children(now) || has_unreachable_; }
  // The number of peers that it sends to; at most kFanOut that all others can be referred to.
  std::size_t child_count() const { return children_.size(); }
  // The peer that it was referred to; empty: it asks its sources.
  const std::string& parent() const { return parent_; }

  // Requires a version above the held one. It gets this peer's run.
  void publish(HeldVersion version, TimePoint now);
  // Asks for a version >= `at_least`; with `waits`, waits for one. take_ended() tells the outcome.
  InquiryId ask(std::uint64_t at_least, bool waits, TimePoint deadline, TimePoint now);
  // The caller no longer waits for it.
  void give_up(InquiryId ask);
  // The error of one whose deadline has passed: what it waits for, and why it has not come.
  Status too_late(InquiryId ask) const;
  void close();

  void on_request(const Request& request, TimePoint now);
  void on_withdrawn(InboundId request);
  void on_answered(std::uint64_t ticket, const CallResult& result, TimePoint now);
  // What Outgoing::copy has returned.
  void on_copied(std::uint64_t ticket, Result<HeldVersion> made, TimePoint now);
  void tick(TimePoint now);
  TimePoint next_tick() const;

  std::vector<Outgoing> take_outgoing();
  std::vector<Ended> take_ended();

 private:
  struct Inquiry {
    std::uint64_t at_least = 0;
    std::uint64_t run = 0;  // of the version that this peer had; 0: none
    bool waits = false;
    bool is_followed = false;  // for peers that ask this one, not for a caller
    TimePoint deadline;
    std::vector<std::string> route;  // peers to ask, in order
    std::size_t next = 0;
    bool has_asked_others = false;
    bool maps = true;
    bool takes_changes = true;
    int detours = 0;
    std::string refused;
    std::uint64_t ticket = 0;  // of the call in flight; 0: none
    TimePoint retry_at = TimePoint::max();
    Status last;
  };
  struct Child {
    std::string host;
    TimePoint heard;
    WeightsRequest::Reach reach = WeightsRequest::Reach::kNone;
    bool maps = false;
  };
  struct Waiter {
    InboundId request;
    std::string caller;
    WeightsRequest ask;
  };

  void begin(Inquiry& inquiry, TimePoint now);
  void advance(InquiryId id, TimePoint now);
  void end(InquiryId id, Status status);
  Status too_late(const Inquiry& inquiry) const;
  bool is_out_of_reach(const std::string& peer) const;
  // Whether the held version is what a peer asks for that has one of `run`, or none if that is 0.
  bool has_for(std::uint64_t run, std::uint64_t at_least) const;
  void on_answer(InquiryId id, const std::string& from, WeightsAnswer answer,
                 const Payload& payload, TimePoint now);
  void on_got(InquiryId id, const std::string& from, Result<HeldVersion> got, TimePoint now);
  void fail_over(InquiryId id, const std::string& from, Status why, TimePoint now);
  void take(HeldVersion version, TimePoint now);
  void answer_waiters();
  // Without `waits` it begins by asking whether the held version is the newest.
  void follow(TimePoint now, bool waits = true);
  bool is_following() const { return follow_id_ != 0 && inquiries_.at(follow_id_).waits; }
  void wait_on(Inquiry& followed);
  // The peer that an asker should ask instead; empty: this peer serves it.
  std::string elsewhere(const std::string& caller, const WeightsRequest& ask, TimePoint now);
  void note_run(std::uint64_t run);
  void drop_silent_children(TimePoint now, Duration silence);
  bool has_children(TimePoint now);
  bool is_mapped_by(const WeightsRequest& ask) const;
  void serve(InboundId request, const WeightsRequest& ask);
  void answer(InboundId request, Payload payload);
  void refuse(InboundId request, const Status& status);

  const Options options_;
  HeldVersion held_;
  std::uint64_t run_floor_ = 0;  // of the versions that it publishes
  std::string parent_;
  std::map<std::string, Child> children_;
  bool has_unreachable_ = false;
  bool has_map_requests_ = false;  // by others on this host
  std::map<std::string, int> failed_maps_;
  std::map<std::string, TimePoint> failed_;  // peers that did not answer, and when
  std::vector<Waiter> waiters_;
  std::map<InquiryId, Inquiry> inquiries_;
  std::map<std::uint64_t, std::pair<InquiryId, std::string>> calls_;  // by ticket: ask, peer
  InquiryId last_inquiry_ = 0;
  std::uint64_t last_ticket_ = 0;
  InquiryId follow_id_ = 0;
  bool is_closed_ = false;
  std::vector<Outgoing> outgoing_;
  std::vector<Ended> ended_;
};

}  // namespace reverie
