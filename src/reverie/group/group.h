// A set of processes that changes while it works: its members, and rounds over all of them.
//
//     REVERIE_ASSIGN_OR_RETURN(auto group, Group::join(peer, {.name = "training"}));
//     REVERIE_RETURN_IF_ERROR(group->wait_members(4, deadline));
//     REVERIE_ASSIGN_OR_RETURN(auto round, group->all_reduce("w", ReduceOp::kMean, leaves));
//     REVERIE_RETURN_IF_ERROR(round->wait(deadline));
//
// Any member may come, leave or die at any time. The broker (broker.h) numbers the memberships; a
// round is over one of them, and ends with UNAVAILABLE on all members when it ends.
// docs/concepts/groups.md says more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/group/group_core.h"
#include "reverie/reduce/reduce_layout.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

class SharedRounds;
struct SharedSlot;

// A round under way. Thread-safe; outlives its group.
class GroupRound {
 public:
  GroupRound();
  ~GroupRound();
  bool is_done() const;
  // How it ended; DEADLINE_EXCEEDED if it has not by `deadline`: it goes on. The caller's thread
  // does the work of rounds in shared memory meanwhile, and calls the group's listeners: under no
  // lock that these take.
  Status wait(TimePoint deadline) const;
  // Has every member of the group end it with CANCELLED, unless it has ended.
  void cancel();

  // --- Once it is done, and ok().
  // The members that made it fail by their loss, as far as is known.
  std::vector<std::string> lost() const;
  // Names of the members, in their order.
  const std::vector<std::string>& members() const { return members_; }
  std::size_t member_index() const { return member_index_; }
  // For all_reduce() only.
  const ReduceLayout& layout() const { return *layout_; }
  const std::shared_ptr<Buffer>& reduced() const { return buffer_; }
  // For the other rounds: values by the index of their member.
  std::map<std::size_t, Payload> values() const;

 private:
  friend class Group;
  std::vector<std::string> members_;
  std::size_t member_index_ = 0;
  std::shared_ptr<const ReduceLayout> layout_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<Round> round_;      // its values are there once it is done
  std::unique_ptr<SharedSlot> slot_;  // where its arrays lie until it is begun

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::shared_ptr<SharedRounds> share_ REVERIE_GUARDED_BY(mutex_);  // null: over calls
  bool is_done_ REVERIE_GUARDED_BY(mutex_) = false;
  Status status_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::string> lost_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::size_t, Payload> values_ REVERIE_GUARDED_BY(mutex_);
  std::function<void()> cancel_;  // set once, before it is handed out
};

// Thread-safe. A thin shell around GroupCore: a lock, and a thread for its times. After a fork each
// call in the child gives FAILED_PRECONDITION.
class Group {
 public:
  struct Options {
    std::string name;
    std::string broker = "broker";  // the name of the broker's peer
    std::int64_t sort_order = 0;    // members are ordered by it, then as they joined
    // A member whose program does not call update() or begin a round for so long leaves, and joins
    // again with the next call. Its process being alive is another matter: that is seen to by
    // threads of the peer, and the others know within 2 s when it is not.
    Duration stall_timeout = Duration::max();
    // Whether arrays go through shared memory where all members are on one host and want it.
    bool uses_shared_memory = true;
    // How large the arrays of one member in it may be, all together; the first member's counts. 0:
    // as large as the host's memory. Larger ones go over calls.
    std::size_t shared_bytes_max = 0;
  };

  // Returns at once; members() is empty until the broker has answered. A peer that does not listen
  // is made to, at a free port, so that other members reach it. ALREADY_EXISTS where the peer has
  // joined it.
  static Result<std::unique_ptr<Group>> join(std::shared_ptr<Peer> peer, const Options& options);
  // Leaves. Not on the peer's I/O thread.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const;
  const Peer& peer() const { return *peer_; }

  // Whether arrays go through shared memory in this membership; none until the first round of
  // arrays has found out.
  std::optional<bool> shares_memory() const;
  // Says that the program advances. True if the membership is another one than at the last call.
  bool update();
  Membership membership() const;
  std::uint64_t membership_id() const;  // 0 without one
  // Calls `changed` after the membership has changed or rounds have ended, on any thread, under no
  // lock of the group's. It does not wait. Gives a number for remove_listener(), after which one
  // call may still run.
  std::uint64_t add_listener(std::function<void()> changed);
  void remove_listener(std::uint64_t listener);
  // Waits until the group has so many members, at least. DEADLINE_EXCEEDED says why it has not.
  Status wait_members(std::size_t count, TimePoint deadline) const;
  void set_sort_order(std::int64_t sort_order);
  void set_stall_timeout(Duration timeout);
  // Why rounds do not end, or the group has no members, in words; empty if there is no reason.
  std::string why_waiting() const;

  // Each of them returns at once, and every member must begin a round of the name. A round that has
  // no result by `deadline` ends with DEADLINE_EXCEEDED on all; it does not need one for members
  // that die. Errors: FAILED_PRECONDITION without members, ALREADY_EXISTS while a round of the name
  // is under way, INVALID_ARGUMENT. The arrays are copied before it returns.
  using RoundPtr = std::shared_ptr<GroupRound>;
  Result<RoundPtr> all_reduce(const std::string& name, ReduceOp op,
                              std::span<const ReduceLeaf> leaves,
                              TimePoint deadline = TimePoint::max());
  // The sum of arrays that lie in `buffer` as `layout` says, without a copy, in the membership of
  // this id alone, for whose number of members the layout was made: UNAVAILABLE when it is over.
  Result<RoundPtr> sum_in(std::uint64_t membership, const std::string& name,
                          std::shared_ptr<const ReduceLayout> layout,
                          std::shared_ptr<Buffer> buffer);
  // Each member gets the values of all. `what` must be the same on all members, and shows in the
  // message where it is not.
  Result<RoundPtr> all_gather(const std::string& name, const std::string& what, Payload value,
                              TimePoint deadline = TimePoint::max());
  // Each member gets the value of `source`, a member's name; the others' are not sent. NOT_FOUND if
  // it is no member.
  Result<RoundPtr> broadcast(const std::string& name, const std::string& source,
                             std::optional<Payload> value, TimePoint deadline = TimePoint::max());

  // Others see it at once, and rounds under way end. Idempotent.
  void leave();

  class Impl;

 private:
  Group(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
