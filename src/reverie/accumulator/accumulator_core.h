// AccumulatorCore: which member leads, when a round begins, and which member has which model.
//
//     a membership --> election --> rounds, called by the leader --> results, taken in order
//                         ^                    |
//                         +--- a round failed -+   the next generation
//
// - The first member collects the votes of all. Among members whose programs advance and whose
//   versions are near the highest, the highest version leads, then the greatest name; if there is
//   none, among all. A generation has one leader, and none before all have voted.
// - A member that contributes tells the leader how many samples it has for the open round. When the
//   total is enough, the leader calls for the round, and each member contributes what it has, even
//   nothing. This works even if no program advances.
// - A leader whose program has stalled resigns when a full round waits because it can keep no
//   further result, or when a member has needed the model for kPatience: the next generation elects
//   one that went on. With a higher version than the leader's it begins another generation once its
//   program advances.
// - A member may close its accumulator and make it again in one membership. The first member
//   notices it by a vote of another lineage, the others by being asked to vote again: the next
//   generation begins.
// - The lineage of a model is a hash over the rounds that made it: members with the same lineage
//   have the same model. A member without the leader's model tells the leader once it is elected.
// - The leader asks members that have the model to give it (gift_plan.h). A member that gives it to
//   several sends it to two, which pass it on: a tree, in which only the giver's program takes
//   part.
//
//     leader --GIVE c, d, e, f--> b --STATE, for d--> c --STATE--> d
//                                 b --STATE, for f--> e --STATE--> f
//
//
// A state machine: no lock, clock, thread, socket or array. Every message is resent until it is
// answered or superseded (accumulator_message.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/accumulator/accumulator_message.h"
#include "reverie/accumulator/gift_plan.h"
#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/group/membership.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// Not thread-safe.
class AccumulatorCore {
 public:
  static constexpr std::size_t kParallelMax = 32;
  // A program that makes no call for so long counts as stalled.
  static constexpr Duration kPatience = std::chrono::seconds(2);

  struct Options {
    std::string name;      // of this member
    std::string title;     // of the accumulator, for messages
    std::string function;  // that members call; also names the rounds
    std::string average;
    std::vector<std::string> signature;  // one entry per array of the model
    std::uint64_t lineage = 0;           // of the initial model, random
    // The most results that wait for a program that does not take them. Beyond it the member falls
    // behind, and takes the leader's model instead; a leader resigns. So many steps may be lost if
    // only a stalled program has taken them.
    std::size_t kept_max = 64;
  };
  struct Outgoing {
    std::string peer;
    std::uint64_t ticket = 0;  // returned by on_answered()
    TimePoint deadline;
    Payload payload;
  };
  // What members contribute to a round, or contributed in total.
  struct Counts {
    std::int64_t contributions = 0;
    std::int64_t skipped = 0;  // members without a contribution
    std::int64_t samples = 0;
  };
  // A round to begin, with this member's contributions to it.
  struct Begin {
    AccumulatorKey key;
    std::uint64_t slot = 0;  // rounds of a generation are numbered from 0
    std::string round;       // its name in the group
    Counts mine;
    bool is_again = false;  // an earlier attempt failed
  };
  struct Taken {
    std::uint64_t slot = 0;
    Counts totals;
  };
  // The value of a model. If it is passed on, messages to other members use its bulk, so a program
  // that may write to it needs a copy.
  struct State {
    Payload value;
    bool is_passed_on = false;
  };

  explicit AccumulatorCore(Options options) : options_(std::move(options)), plan_(options_.name) {}

  // --- Called by the program. The program takes part from now on, and
  // advances.
  void advance(TimePoint now);
  void set_virtual_batch_size(std::uint64_t size, TimePoint now);
  // 1 to kParallelMax
  void set_parallel(std::size_t count, TimePoint now);
  // Requires version >= this->version(). Begins a new generation, which the highest leads.
  void set_version(std::uint64_t version, std::uint64_t lineage, TimePoint now);
  // Whether contributions are wanted: there is a leader, this member has its model, and fewer
  // rounds are in progress than allowed.
  bool wants_gradients() const;
  // Contributes to the round open_slot(). Requires a leader.
  void contribute(std::uint64_t samples, TimePoint now);
  // The next result, in order, for the program's step. None if it does not have the model.
  std::optional<Taken> take_result(TimePoint now);
  // The model, if it has arrived and can be used; version(), lineage() and the rest then describe
  // it.
  std::optional<State> take_state(TimePoint now);
  // Whether the leader has asked this member to give its model to others.
  bool wants_state() const;
  // Gives the program's model, which includes all results that it took, to the members that the
  // leader has named; the leader can also give it to all. No effect if there is none to give it to.
  // INVALID_ARGUMENT if it is too large for a message: it could never arrive.
  Status give_state(const Payload& value, bool to_all, TimePoint now);

  // --- Events.
  void on_membership(const Membership& membership, TimePoint now);
  // Returns an answer, or what is wrong with the request.
  Result<Payload> on_request(const std::string& caller, Payload payload, TimePoint now);
  // `answer` is null if the call failed.
  void on_answered(std::uint64_t ticket, const Payload* answer, TimePoint now);
  bool has_round_to_begin(TimePoint now) const {
    return beginning_ ? begin_at_ <= now : open_ < called_;
  }
  // The round to begin now. None before on_begun() for the previous one. Contributions made until
  // now are part of it, later ones are not.
  std::optional<Begin> round_to_begin(TimePoint now);
  // After ALREADY_EXISTS it is tried again.
  void on_begun(const Begin& begin, const Status& status, TimePoint now);
  void on_round_ended(AccumulatorKey key, std::uint64_t slot, const Status& status,
                      const Counts& totals, TimePoint now);
  void tick(TimePoint now);
  TimePoint next_tick() const;
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

  // --- State. Rounds, results and contributions of another key are
  // invalid.
  AccumulatorKey key() const { return key_; }
  std::size_t member_count() const { return members_.size(); }
  const std::string& leader() const { return leader_; }
  bool is_leader() const { return leader_ == options_.name; }
  bool has_model() const { return has_model_; }
  std::uint64_t version() const { return version_; }
  std::uint64_t lineage() const { return options_.lineage; }
  std::uint64_t open_slot() const { return open_; }
  // Earlier slots are taken, or lost.
  std::uint64_t first_kept_slot() const { return kept_.empty() ? open_ : kept_.front().slot; }
  // Why this member cannot take part: its model differs from the leader's.
  const Status& refusal() const { return refusal_; }
  std::string why_waiting() const;

 private:
  // The newest message of one kind to one member.
  struct PendingMessage {
    AccumulatorMessage message;
    std::uint64_t ticket = 0;  // 0: not in flight
    TimePoint due;
    Duration pause{};
  };
  using Address = std::pair<std::string, AccumulatorMessageKind>;
  struct Report {
    std::uint64_t slot = 0;
    std::uint64_t samples = 0;
  };
  struct Kept {
    std::uint64_t slot = 0;
    bool is_done = false;
    Counts totals;
  };

  bool is_first() const { return !members_.empty() && members_.front() == options_.name; }
  void enter(AccumulatorKey key, TimePoint vote_at, TimePoint now);
  void restart(TimePoint now);
  bool is_still(TimePoint now) const { return now - advanced_at_ >= kPatience; }
  // Whether so many results wait for the program that this member can keep no more.
  bool is_kept_full() const { return kept_.size() >= options_.kept_max; }
  bool is_round_full() const;
  // When to pass the lead to a member whose program advances; max: never.
  TimePoint resign_at() const;
  void vote(TimePoint now);
  void elect(TimePoint now);
  void follow(const AccumulatorVote& leader, TimePoint now);
  void need_model(TimePoint now);
  void report(TimePoint now);
  void lead(TimePoint now);
  // The leader asks for the gifts that are due.
  void ask_for_gifts(TimePoint now);
  // Sends a state that has arrived to the members that it is also for. It may have gigabytes, and
  // this is the thread that keeps the peer alive, so it is not copied here.
  void on_state(AccumulatorMessage message, std::vector<BulkPiece> bulk);
  // Sends the state to two of the receivers, which pass it on to the others.
  void send_state(const AccumulatorMessage& state, const std::vector<BulkPiece>& bulk,
                  std::vector<AccumulatorGift> gifts);
  // These gifts were sent, or lost.
  void note_gifts(const std::vector<AccumulatorGift>& gifts, TimePoint now);
  void put(const std::string& to, AccumulatorMessage message, TimePoint due);
  // Returns whether it need not be resent.
  bool take(const std::string& caller, AccumulatorMessage& message, Payload& payload,
            TimePoint now);

  Options options_;  // its lineage is updated with the model
  bool is_started_ = false;
  TimePoint advanced_at_{};
  int resigned_ = 0;  // resignations since it advanced; each doubles its patience
  AccumulatorKey key_;
  std::vector<std::string> members_;
  Status refusal_;

  // The election.
  TimePoint vote_at_ = TimePoint::max();
  std::size_t restarts_ = 0;  // since a round succeeded
  std::map<std::string, AccumulatorVote> votes_;
  std::optional<AccumulatorVote> elected_;
  std::string leader_;

  // The model.
  std::uint64_t version_ = 0;
  bool has_model_ = false;
  std::uint64_t need_ = 0;
  std::optional<std::pair<AccumulatorMessage, State>> incoming_;
  GiftPlan plan_;                                // used by the leader
  std::vector<AccumulatorGift> asked_;           // for its program to give
  std::map<std::string, AccumulatorGift> gave_;  // by receiver, the last one

  // Rounds.
  std::uint64_t virtual_batch_size_ = 1;
  std::size_t parallel_ = 1;
  Counts own_counts_;
  std::uint64_t open_ = 0;       // the slot that contributions go to
  std::uint64_t called_ = 0;     // rounds that the leader has called for
  std::uint64_t delivered_ = 0;  // slots that are in the model
  std::optional<Begin> beginning_;
  TimePoint begin_at_ = TimePoint::max();  // retry time of a round; max: it is in progress
  std::deque<Kept> kept_;                  // begun, not taken yet
  std::map<std::string, Report> reports_;

  std::map<Address, PendingMessage> pending_messages_;
  std::map<std::uint64_t, Address> tickets_;
  // By ticket: states in flight, for their receivers and those that they pass them on to.
  std::map<std::uint64_t, std::vector<AccumulatorGift>> states_;
  std::uint64_t next_ticket_ = 1;
  std::vector<Outgoing> outgoing_;
};

}  // namespace reverie
