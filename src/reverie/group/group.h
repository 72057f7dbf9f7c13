// A set of processes that may change at any time: its members, and rounds over all of them.
//
//     REVERIE_ASSIGN_OR_RETURN(auto group, Group::join(peer, {.name = "training"}));
//     REVERIE_RETURN_IF_ERROR(group->wait_members(4, deadline));
//     REVERIE_ASSIGN_OR_RETURN(auto round, group->all_reduce("w", ReduceOp::kMean, leaves));
//     REVERIE_RETURN_IF_ERROR(round->wait(deadline));
// Any member may join, leave or die at any time. The broker (broker.h) numbers the memberships; a
// round belongs to one of them, and ends with UNAVAILABLE on all members when that membership ends;
// with CANCELLED on a member that leaves.
// See docs/concepts/groups.md.
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

// Where a member collects the arrays of a sum before its round begins: in shared memory if the
// membership reduces through that, so that beginning the round copies nothing.
class SumSpace {
 public:
  SumSpace(std::shared_ptr<const ReduceLayout> layout, std::shared_ptr<Buffer> buffer,
           std::shared_ptr<SharedSlot> slot);
  const ReduceLayout& layout() const { return *layout_; }
  // layout().size_bytes() bytes, whose contents are undefined at first.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Group;
  std::shared_ptr<const ReduceLayout> layout_;
  std::shared_ptr<Buffer> buffer_;    // gets the result
  std::shared_ptr<SharedSlot> slot_;  // null: the arrays are collected in the buffer
  std::span<std::byte> bytes_;
};

// A round in progress. Thread-safe; outlives its group.
class GroupRound {
 public:
  GroupRound();
  ~GroupRound();
  bool is_done() const;
  // Waits, and returns how the round ended; DEADLINE_EXCEEDED if it has not by `deadline`: then it
  // continues. Meanwhile the caller's thread does the work of rounds in shared memory, and calls
  // the group's listeners, so it must hold no lock that these take.
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
  void finish(GroupCore::Ended end);

  std::vector<std::string> members_;
  std::size_t member_index_ = 0;
  std::shared_ptr<const ReduceLayout> layout_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<Round> round_;      // its values are there once it is done
  std::shared_ptr<SharedSlot> slot_;  // holds its arrays until the round is begun
  bool is_awaited_ = false;           // by the thread that begins it, as a rule

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::shared_ptr<SharedRounds> share_ REVERIE_GUARDED_BY(mutex_);  // null: over calls
  bool is_done_ REVERIE_GUARDED_BY(mutex_) = false;
  Status status_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::string> lost_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::size_t, Payload> values_ REVERIE_GUARDED_BY(mutex_);
  std::function<void()> cancel_;  // set once, before the round is returned
};

// Thread-safe. A thin shell around GroupCore: a lock, and a thread for its timers. After a fork
// each call in the child returns FAILED_PRECONDITION, or nothing and without effect if it returns
// no status.
class Group {
 public:
  struct Options {
    std::string name;
    std::string broker = "broker";  // the name of the broker's peer
    std::int64_t sort_order = 0;    // members are sorted by it, then by when they joined
    // A member whose program does not call update(), wait in wait_members() or begin a round for
    // this long leaves, and joins again with the next of these calls. The death of its process is
    // detected separately, by threads of the peers: the others know within 2 s.
    Duration stall_timeout = Duration::max();
    // Whether arrays go through shared memory among members of one host, if all members set this.
    bool uses_shared_memory = true;
    // Members with the same name share memory. Empty: the host and network namespace of the
    // process.
    std::string host = {};
    // The total size of one member's arrays in shared memory; the first member's value counts. 0:
    // as large as the host's memory. Larger ones are sent by calls.
    std::size_t shared_bytes_max = 0;
  };

  // Returns immediately; members() is empty until the broker has answered. If the peer does not
  // listen yet, it begins to, at a free port, so that other members can reach it. ALREADY_EXISTS if
  // the peer has joined the group already.
  static Result<std::unique_ptr<Group>> join(std::shared_ptr<Peer> peer, const Options& options);
  // Leaves. Must not run on the peer's I/O thread.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const;
  const Peer& peer() const { return *peer_; }

  // Whether arrays go through shared memory among members of one host in this membership; empty
  // until the first round of arrays has found out.
  std::optional<bool> shares_memory() const;
  // How many hosts the members are on; empty unless they share memory.
  std::optional<std::size_t> host_count() const;
  // Reports that the program advances. True if the membership has changed since the last call.
  bool update();
  // Only reports that the program advances: what the next update() returns stays the same.
  void advance();
  Membership membership() const;
  std::uint64_t membership_id() const;  // 0 without one
  // Calls `changed` after the membership has changed or rounds have ended, on any thread, under no
  // lock of the group. It must not wait. Returns a number for remove_listener(), after which one
  // call may still run.
  std::uint64_t add_listener(std::function<void()> changed);
  void remove_listener(std::uint64_t listener);
  // Waits until the group has at least `count` members, as a call that reports that the program
  // advances. DEADLINE_EXCEEDED says why it has not.
  Status wait_members(std::size_t count, TimePoint deadline);
  void set_sort_order(std::int64_t sort_order);
  void set_stall_timeout(Duration timeout);
  // A text that says why rounds do not end, or the group has no members; empty if neither is so.
  std::string why_waiting() const;

  // Each of the following returns immediately, and every member must begin a round of that name. A
  // round without a result by `deadline` ends with DEADLINE_EXCEEDED on all members; the death of a
  // member ends it without a deadline. Errors: FAILED_PRECONDITION without members, ALREADY_EXISTS
  // while a round of that name is in progress, INVALID_ARGUMENT. The arrays are copied before it
  // returns. Reuse names: each new one takes about 115 bytes until the membership changes.
  using RoundPtr = std::shared_ptr<GroupRound>;
  Result<RoundPtr> all_reduce(const std::string& name, ReduceOp op,
                              std::span<const ReduceLeaf> leaves,
                              TimePoint deadline = TimePoint::max());
  // Space for the arrays of a sum in the membership with this id, whose number of members the
  // layout was made for.
  Result<SumSpace> sum_space(std::uint64_t membership, std::shared_ptr<const ReduceLayout> layout);
  // The sum of the arrays in a space for this membership, without a copy; no thread needs to wait
  // for it. UNAVAILABLE if the membership has ended. After another error the space is as before.
  Result<RoundPtr> sum_in(std::uint64_t membership, const std::string& name, const SumSpace& space);
  // Each member gets the values of all. `what` must be the same on all members; the error names it
  // if it is not. The values of all travel in one message: beyond its bounds the round ends with
  // INVALID_ARGUMENT on all members.
  Result<RoundPtr> all_gather(const std::string& name, const std::string& what, Payload value,
                              TimePoint deadline = TimePoint::max());
  // Each member gets the value of the member named `source`; the others' values are not sent.
  // NOT_FOUND if there is no such member.
  Result<RoundPtr> broadcast(const std::string& name, const std::string& source,
                             std::optional<Payload> value, TimePoint deadline = TimePoint::max());

  // The others see it at once, and rounds in progress end. Idempotent.
  void leave();

  class Impl;

 private:
  Group(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  // Does a step of the round in shared memory.
  static void begin_shared(const std::shared_ptr<SharedRounds>& share,
                           const std::shared_ptr<GroupRound>& round,
                           const GroupCore::Shared& about);
  static std::shared_ptr<Round> round_in(const SumSpace& space, GroupRound& round, bool is_awaited);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
