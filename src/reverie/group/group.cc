#include "reverie/group/group.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/fork.h"
#include "reverie/base/random.h"
#include "reverie/base/timer_queue.h"
#include "reverie/calls/peer_turns.h"
#include "reverie/group/gather_round.h"
#include "reverie/group/group_share.h"
#include "reverie/os/host_id.h"
#include "reverie/tensor/batch_memory.h"

namespace reverie {
namespace {

constexpr std::size_t kKeptBuffers = 4;

using MadeRound = Result<std::shared_ptr<Round>>;

bool listens_by_tcp(const Peer& peer) {
  const std::vector<std::string> addresses = peer.addresses();
  return std::any_of(addresses.begin(), addresses.end(),
                     [](const std::string& address) { return !address.starts_with("unix:"); });
}

}  // namespace

class Group::Impl : public std::enable_shared_from_this<Group::Impl> {
 public:
  Impl(Peer* peer, MemberCore::Options member, const Options& options)
      : turns_(peer),
        name_(member.group),
        own_name_(member.self.name),
        share_(options.shared_bytes_max,
               [this](const std::vector<SharedRounds::Finished>& ends) { on_shared(ends); }),
        core_(std::move(member),
              options.uses_shared_memory
                  ? share_.source(options.host.empty() ? host_id() : options.host)
                  : GroupCore::ShareSource()),
        timers_(clock_),
        alarm_(timers_, [this] { turn([](GroupCore&, TimePoint) {}); }) {}

  const std::string& name() const { return name_; }
  Status check_fork() const { return fork_guard_.check("group"); }

  // Handles an event under the lock, then its effects under no lock. Does nothing after close().
  template <typename Event>
  void turn(Event event) {
    const PeerTurn peer(turns_);
    if (!peer) return;
    std::vector<GroupCore::Outgoing> outgoing;
    bool tells_broker = false;
    std::vector<std::pair<std::shared_ptr<GroupRound>, GroupCore::Ended>> ended;
    std::vector<std::pair<std::shared_ptr<GroupRound>, GroupCore::Shared>> shared;
    std::shared_ptr<SharedRounds> share;
    std::vector<std::shared_ptr<SharedRounds>> retired;
    std::map<std::uint64_t, std::function<void()>> listeners;
    TimePoint next;
    {
      MutexLock lock(mutex_);
      const TimePoint now = clock_.now();
      const std::uint64_t before = core_.membership().id;
      if (waiting_ > 0) core_.advance(now);
      event(core_, now);
      if (core_.next_tick() <= now) core_.tick(now);
      for (GroupCore::Outgoing& out : core_.take_outgoing()) {
        (out.function == kBrokerFunction ? to_broker_ : outgoing).push_back(std::move(out));
      }
      tells_broker = !to_broker_.empty() && !std::exchange(is_telling_broker_, true);
      for (GroupCore::Ended& end : core_.take_ended()) {
        const auto round = rounds_.find(end.id);
        if (round == rounds_.end()) continue;
        ended.emplace_back(std::move(round->second), std::move(end));
        rounds_.erase(round);
      }
      for (const GroupCore::Shared& start : core_.take_shared()) {
        const auto round = rounds_.find(start.id);
        if (round != rounds_.end()) shared.emplace_back(round->second, start);
      }
      share_.enter(core_.membership().id);
      share = share_.rounds();
      retired = share_.take_retired();
      next = core_.next_tick();
      if (core_.membership().id != before || !core_.member().refusal().ok()) changed_.notify_all();
      if (core_.membership().id != before || !ended.empty()) listeners = listeners_;
    }
    for (const auto& rounds : retired) rounds->close();
    for (auto& [round, end] : ended) {
      const RoundId id = end.id;
      const bool is_good = end.status.ok();
      round->finish(std::move(end));
      if (share && !is_good) share->forget(id);
    }
    for (const auto& [round, start] : shared) begin_shared(share, round, start);
    if (tells_broker) tell_broker(peer);
    for (GroupCore::Outgoing& out : outgoing) send(peer, std::move(out));
    for (const auto& [id, changed] : listeners) changed();
    if (next < TimePoint::max()) alarm_.set(next);
  }

  bool update() {
    bool is_new = false;
    turn([&](GroupCore& core, TimePoint now) {
      mutex_.assert_held();
      core.advance(now);
      is_new = std::exchange(updated_id_, core.membership().id) != core.membership().id;
    });
    return is_new;
  }

  Membership membership() const {
    MutexLock lock(mutex_);
    return core_.membership();
  }

  std::uint64_t membership_id() const {
    MutexLock lock(mutex_);
    return core_.membership().epoch == 0 ? 0 : core_.membership().id;
  }

  std::uint64_t add_listener(std::function<void()> changed) {
    MutexLock lock(mutex_);
    listeners_.emplace(++last_listener_, std::move(changed));
    return last_listener_;
  }

  void remove_listener(std::uint64_t listener) {
    MutexLock lock(mutex_);
    listeners_.erase(listener);
  }

  std::string why_waiting() const {
    MutexLock lock(mutex_);
    return core_.why_waiting(clock_.now());
  }

  Status wait_members(std::size_t count, TimePoint deadline) {
    {
      MutexLock lock(mutex_);
      ++waiting_;
    }
    turn([](GroupCore&, TimePoint) {});  // joins again after a stall
    MutexLock lock(mutex_);
    Status status = members_by(count, deadline);
    --waiting_;
    return status;
  }

  // Begins the round that `make(member, members)` returns, if the membership is still the same
  // afterwards; only in the membership with id `only`, unless that is 0.
  template <typename Make>
  Result<RoundPtr> begin(const std::string& name, TimePoint deadline, Make make,
                         std::uint64_t only = 0) {
    while (true) {
      const Membership now = membership();
      if (only != 0 && now.id != only) return unavailable("the membership has changed");
      auto round = std::make_shared<GroupRound>();
      for (const Member& member : now.members) round->members_.push_back(member.name);
      if (const auto index = now.index_of(own_name_)) {
        round->member_index_ = *index;
        REVERIE_ASSIGN_OR_RETURN(round->round_, make(now, *round));
      }
      Result<RoundId> id = failed_precondition("this member has left group '{}'", name_);
      turn([&](GroupCore& core, TimePoint time) {
        mutex_.assert_held();
        id = core.begin(name, now.id, round->round_, deadline, time);
        if (!id.ok()) return;
        round->cancel_ = [weak = weak_from_this(), at = *id] {
          if (const auto impl = weak.lock()) impl->cancel(at);
        };
        rounds_.emplace(*id, round);
      });
      if (id.ok()) return round;
      if (id.status().code() != StatusCode::kUnavailable) return id.status();
    }
  }

  // Space in shared memory for the arrays of a round of this membership, if it uses that.
  std::shared_ptr<SharedSlot> share_slot(std::uint64_t membership, std::size_t size_bytes) {
    std::shared_ptr<SharedRounds> share;
    {
      MutexLock lock(mutex_);
      if (core_.membership().id == membership && core_.is_shared(size_bytes)) {
        share = share_.rounds();
      }
    }
    if (!share) return nullptr;
    const auto offset = share->allocate(size_bytes);
    return offset ? std::make_shared<SharedSlot>(std::move(share), *offset) : nullptr;
  }

  std::optional<bool> shares_memory() const {
    MutexLock lock(mutex_);
    return core_.shares_memory();
  }

  std::optional<std::size_t> host_count() const {
    MutexLock lock(mutex_);
    return core_.host_count();
  }

  void cancel(RoundId round) {
    turn([&](GroupCore& core, TimePoint now) {
      core.give_up(round, cancelled("a member has cancelled the round"), now);
    });
  }

  void leave() {
    turn([&](GroupCore& core, TimePoint now) { leave(core, now); });
    turns_.undefine(group_function(name_));
    close();
  }

  void close() {
    turns_.close();
    timers_.stop();
    share_.close();
    // Rounds that no later turn ends.
    std::unordered_map<RoundId, std::shared_ptr<GroupRound>> rounds;
    {
      MutexLock lock(mutex_);
      rounds.swap(rounds_);
    }
    for (auto& [id, round] : rounds) round->finish({id, cancelled("the group was left"), {}});
  }

  const std::shared_ptr<BatchMemory>& memory() const { return memory_; }

 private:
  Status members_by(std::size_t count, TimePoint deadline) const REVERIE_REQUIRES(mutex_) {
    while (core_.membership().members.size() < count) {
      if (!core_.member().refusal().ok()) return core_.member().refusal();
      if (is_left_) return failed_precondition("this member has left group '{}'", name_);
      if (!clock_.wait_until(changed_, mutex_, deadline)) {
        const std::string why = core_.member().why_not_watched(clock_.now());
        return deadline_exceeded("group '{}' has {} members, not {}{}{}", name_,
                                 core_.membership().members.size(), count, why.empty() ? "" : ": ",
                                 why);
      }
    }
    return {};
  }

  void leave(GroupCore& core, TimePoint now) {
    mutex_.assert_held();
    core.leave(now);
    is_left_ = true;
    changed_.notify_all();
  }

  // A closed peer is a member of nothing: its rounds and waits end as if it had left.
  void on_answered(std::uint64_t ticket, const CallResult& result) {
    const PeerTurn peer(turns_);
    const bool is_closed = peer && !peer->check_open().ok();
    turn([&](GroupCore& core, TimePoint now) {
      core.on_answered(ticket, result, now);
      if (is_closed) leave(core, now);
    });
  }

  void on_shared(const std::vector<SharedRounds::Finished>& ends) {
    turn([&](GroupCore& core, TimePoint now) {
      for (const SharedRounds::Finished& end : ends) {
        core.on_shared(end.id, end.status, end.differs_with, now);
      }
    });
  }

  // What the broker hears last holds, so messages to it leave in the order in which the core made
  // them: one turn at a time sends them, and others, also those within it, only add theirs.
  void tell_broker(const PeerTurn& peer) {
    while (true) {
      std::vector<GroupCore::Outgoing> next;
      {
        MutexLock lock(mutex_);
        next.swap(to_broker_);
        is_telling_broker_ = !next.empty();
      }
      if (next.empty()) return;
      for (GroupCore::Outgoing& out : next) send(peer, std::move(out));
    }
  }

  void send(const PeerTurn& peer, GroupCore::Outgoing out) {
    switch (out.kind) {
      case GroupCore::Outgoing::Kind::kAnswer:
        return peer->answer(out.request, std::move(out.payload));
      case GroupCore::Outgoing::Kind::kFail:
        return peer->fail(out.request, out.error);
      case GroupCore::Outgoing::Kind::kCall:
        break;
    }
    const auto on_answered = [weak = weak_from_this(),
                              ticket = out.ticket](const CallResult& result) {
      if (const auto impl = weak.lock()) impl->on_answered(ticket, result);
    };
    const Result<CallId> called = peer->call(out.peer, out.function, std::move(out.payload),
                                             {out.deadline, false}, on_answered);
    if (!called.ok()) on_answered({CallResult::Kind::kFailed, called.status(), {}, {}, {}});
  }

  const ForkGuard fork_guard_;
  Clock& clock_ = Clock::system();
  PeerTurns turns_;
  const std::string name_;
  const std::string own_name_;
  const std::shared_ptr<BatchMemory> memory_ = BatchMemory::make(kKeptBuffers);
  mutable Mutex mutex_;
  mutable CondVar changed_;
  GroupShare share_;  // changes under the lock
  GroupCore core_ REVERIE_GUARDED_BY(mutex_);
  std::vector<GroupCore::Outgoing> to_broker_ REVERIE_GUARDED_BY(mutex_);
  bool is_telling_broker_ REVERIE_GUARDED_BY(mutex_) = false;  // a turn sends these
  std::unordered_map<RoundId, std::shared_ptr<GroupRound>> rounds_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t updated_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  // Threads of the program in wait_members(): it does not stall meanwhile.
  std::size_t waiting_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_left_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, std::function<void()>> listeners_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t last_listener_ REVERIE_GUARDED_BY(mutex_) = 0;
  TimerQueue timers_;
  Alarm alarm_;
};

Group::Group(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl)
    : peer_(std::move(peer)), impl_(std::move(impl)) {}

Result<std::unique_ptr<Group>> Group::join(std::shared_ptr<Peer> peer, const Options& options) {
  REVERIE_RETURN_IF_ERROR(peer->check_open());
  REVERIE_RETURN_IF_ERROR(check_group_name(options.name));
  REVERIE_RETURN_IF_ERROR(check_host_name(options.host));
  if (options.broker == peer->name()) {
    return invalid_argument(
        "'{}' is the broker, which cannot be a member itself; give the member of group '{}' its "
        "own peer",
        options.broker, options.name);
  }
  MemberCore::Options core;
  core.group = options.name;
  core.broker = options.broker;
  core.self = {peer->name(), random_seed(), options.sort_order};
  core.stall_timeout = options.stall_timeout;
  auto impl = std::make_shared<Impl>(peer.get(), std::move(core), options);
  const std::weak_ptr<Impl> weak = impl;
  const auto handle = [weak, answerer = peer->answerer()](Request request) {
    const InboundId id = request.id;
    bool is_taken = false;
    if (const auto group = weak.lock()) {
      group->turn([&](GroupCore& made, TimePoint now) {
        made.on_request(std::move(request), now);
        is_taken = true;
      });
    }
    if (!is_taken) answerer.fail(id, {StatusCode::kNotFound, "", "the member has left", ""});
  };
  const Status defined = peer->define(group_function(options.name), handle);
  if (!defined.ok()) {
    impl->close();
    if (defined.code() != StatusCode::kAlreadyExists) return defined;
    return already_exists("peer '{}' is a member of group '{}'; use that one, or leave() it first",
                          peer->name(), options.name);
  }
  if (!listens_by_tcp(*peer) && !peer->listen("0.0.0.0:0").ok()) {
    // Without a token only this machine may connect; without TCP the Unix socket is enough.
    (void)peer->listen("127.0.0.1:0").ok();
  }
  impl->turn([](GroupCore& made, TimePoint now) { made.join(now); });
  return std::unique_ptr<Group>(new Group(std::move(peer), std::move(impl)));
}

Group::~Group() {
  leave();
  // A forked child has none of the waiting threads, so it must not destroy what they use.
  if (!impl_->check_fork().ok()) leave_to_parent(impl_);
}

const std::string& Group::name() const {
  return impl_->name();
}

std::optional<bool> Group::shares_memory() const {
  return impl_->check_fork().ok() ? impl_->shares_memory() : std::nullopt;
}

std::optional<std::size_t> Group::host_count() const {
  return impl_->check_fork().ok() ? impl_->host_count() : std::nullopt;
}

bool Group::update() {
  return impl_->check_fork().ok() && impl_->update();
}

void Group::advance() {
  if (!impl_->check_fork().ok()) return;
  impl_->turn([](GroupCore& core, TimePoint now) { core.advance(now); });
}

Membership Group::membership() const {
  return impl_->check_fork().ok() ? impl_->membership() : Membership();
}

std::uint64_t Group::membership_id() const {
  return impl_->check_fork().ok() ? impl_->membership_id() : 0;
}

std::uint64_t Group::add_listener(std::function<void()> changed) {
  return impl_->check_fork().ok() ? impl_->add_listener(std::move(changed)) : 0;
}

void Group::remove_listener(std::uint64_t listener) {
  if (impl_->check_fork().ok()) impl_->remove_listener(listener);
}

Status Group::wait_members(std::size_t count, TimePoint deadline) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->wait_members(count, deadline);
}

void Group::set_sort_order(std::int64_t sort_order) {
  if (!impl_->check_fork().ok()) return;
  impl_->turn([&](GroupCore& core, TimePoint now) { core.set_sort_order(sort_order, now); });
}

void Group::set_stall_timeout(Duration timeout) {
  if (!impl_->check_fork().ok()) return;
  impl_->turn([&](GroupCore& core, TimePoint now) { core.set_stall_timeout(timeout, now); });
}

std::string Group::why_waiting() const {
  return impl_->check_fork().ok() ? impl_->why_waiting() : std::string();
}

Result<Group::RoundPtr> Group::all_reduce(const std::string& name, ReduceOp op,
                                          std::span<const ReduceLeaf> leaves, TimePoint deadline) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->begin(name, deadline, [&](const Membership& now, GroupRound& round) -> MadeRound {
    REVERIE_ASSIGN_OR_RETURN(auto layout, ReduceLayout::make(op, leaves, now.members.size()));
    REVERIE_ASSIGN_OR_RETURN(
        const SumSpace space,
        sum_space(now.id, std::make_shared<const ReduceLayout>(std::move(layout))));
    space.layout().load(leaves, space.bytes());
    return round_in(space, round, /*is_awaited=*/true);
  });
}

Result<SumSpace> Group::sum_space(std::uint64_t membership,
                                  std::shared_ptr<const ReduceLayout> layout) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  const std::size_t size_bytes = layout->size_bytes();
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer,
                           impl_->memory()->allocate(std::max<std::size_t>(size_bytes, 64)));
  return SumSpace(std::move(layout), std::make_shared<Buffer>(std::move(buffer)),
                  impl_->share_slot(membership, size_bytes));
}

Result<Group::RoundPtr> Group::sum_in(std::uint64_t membership, const std::string& name,
                                      const SumSpace& space) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->begin(
      name, TimePoint::max(),
      [&](const Membership&, GroupRound& round) -> MadeRound {
        return round_in(space, round, /*is_awaited=*/false);
      },
      membership);
}

Result<Group::RoundPtr> Group::all_gather(const std::string& name, const std::string& what,
                                          Payload value, TimePoint deadline) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->begin(name, deadline, [&](const Membership& now, GroupRound& round) -> MadeRound {
    return std::shared_ptr<Round>(
        std::make_shared<GatherRound>(what, value, 0, round.member_index_, now.members.size()));
  });
}

Result<Group::RoundPtr> Group::broadcast(const std::string& name, const std::string& source,
                                         std::optional<Payload> value, TimePoint deadline) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->begin(name, deadline, [&](const Membership& now, GroupRound& round) -> MadeRound {
    const auto root = now.index_of(source);
    if (!root) {
      return not_found("source is '{}', which is not a member of group '{}'; ask its members",
                       source, impl_->name());
    }
    const bool is_source = *root == round.member_index_;
    return std::shared_ptr<Round>(std::make_shared<GatherRound>(
        "broadcast of '" + source + "'", is_source ? value : std::nullopt, *root,
        round.member_index_, now.members.size()));
  });
}

void Group::leave() {
  if (impl_->check_fork().ok()) impl_->leave();
}

}  // namespace reverie
