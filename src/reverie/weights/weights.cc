#include "reverie/weights/weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/calls/peer_turns.h"
#include "reverie/group/membership.h"
#include "reverie/net/address.h"
#include "reverie/os/host_id.h"
#include "reverie/weights/version_memory.h"
#include "reverie/weights/weights_core.h"

namespace reverie {
namespace {

// Peers that are asked when no source answers.
constexpr std::size_t kOthersMax = 8;
// How often a wait checks whether it was interrupted.
constexpr Duration kLookInterval = std::chrono::milliseconds(200);
// Copies of more bytes are not made on the thread that keeps the peer alive.
constexpr std::size_t kCopiedBytesMax = std::size_t{2} << 20;

}  // namespace

class Weights::Impl : public std::enable_shared_from_this<Weights::Impl> {
 public:
  Impl(Peer* peer, const Options& options)
      : turns_(peer),
        options_(options),
        function_("reverie.weights." + options.name),
        core_(core_options(peer)),
        timers_(clock_),
        alarm_(timers_, [this] { turn([](WeightsCore&, TimePoint) {}); }) {}

  const std::string& function() const { return function_; }
  Status check_fork() const { return fork_guard_.check("weights channel"); }

  // Handles an event under the lock, then its effects under no lock. Does nothing after close().
  template <typename Event>
  void turn(Event event) {
    const PeerTurn peer(turns_);
    if (!peer) return;
    std::vector<WeightsCore::Outgoing> outgoing;
    std::vector<CallId> cancelled_calls;
    HeldVersion before;  // is released under no lock
    TimePoint next;
    {
      MutexLock lock(mutex_);
      const TimePoint now = clock_.now();
      before = core_.held();
      event(core_, now);
      if (core_.next_tick() <= now) core_.tick(now);
      outgoing = core_.take_outgoing();
      for (WeightsCore::Ended& ended : core_.take_ended()) {
        if (awaited_.contains(ended.ask)) ended_.emplace(ended.ask, std::move(ended.status));
      }
      for (const WeightsCore::Outgoing& out : outgoing) {
        if (out.kind != WeightsCore::Outgoing::Kind::kCancel) continue;
        const auto call = calls_.find(out.ticket);
        if (call == calls_.end()) continue;
        cancelled_calls.push_back(call->second);
        calls_.erase(call);
      }
      next = core_.next_tick();
      changed_.notify_all();
    }
    for (const CallId call : cancelled_calls) peer->cancel(call);
    for (WeightsCore::Outgoing& out : outgoing) send(peer, std::move(out));
    if (next < TimePoint::max()) alarm_.set(next);
  }

  VersionPtr held() const {
    MutexLock lock(mutex_);
    return core_.held().about;
  }

  Result<VersionPtr> own_copy() const {
    HeldVersion now;
    {
      MutexLock lock(mutex_);
      now = core_.held();
    }
    if (!now.about) return VersionPtr();
    if (now.place.fd >= 0) {
      Result<HeldVersion> mapped = map_version(now.place, now.about->version);
      if (mapped.ok()) return std::move(mapped->about);
    }
    REVERIE_ASSIGN_OR_RETURN(HeldVersion made, copy_version(now.about->version, now.about->value));
    return std::move(made.about);
  }

  Status publish(std::uint64_t version, const Payload& value) {
    // One at a time, so that each writes to its own memory.
    MutexLock publishing(publish_mutex_);
    HeldVersion now;
    bool sends = false;
    {
      MutexLock lock(mutex_);
      now = core_.held();
      sends = core_.sends(clock_.now());
    }
    if (now.about && version <= now.about->version) {
      return invalid_argument("version is {}; '{}' has {} here, and versions must increase",
                              version, options_.name, now.about->version);
    }
    REVERIE_ASSIGN_OR_RETURN(HeldVersion made, copied(version, value));
    // If versions are only mapped, no peer asks for changes.
    if (sends && now.about) {
      if (std::optional<WeightsChanges> changes = find_changes(*now.about, *made.about)) {
        made.changes = std::make_shared<const WeightsChanges>(std::move(*changes));
      }
    }
    Status status = cancelled("weights '{}' were closed", options_.name);
    turn([&](WeightsCore& core, TimePoint time) {
      core.publish(std::move(made), time);
      status = {};
    });
    return status;
  }

  // False after close().
  bool on_request(const Request& request) {
    bool is_taken = false;
    turn([&](WeightsCore& core, TimePoint now) {
      core.on_request(request, now);
      is_taken = true;
    });
    return is_taken;
  }
  void on_withdrawn(InboundId request) {
    turn([&](WeightsCore& core, TimePoint) { core.on_withdrawn(request); });
  }

  // Asks, and waits for the result.
  Result<VersionPtr> ask(std::optional<std::uint64_t> at_least, TimePoint deadline,
                         const std::function<bool()>& is_interrupted) {
    WeightsCore::InquiryId id = 0;
    turn([&](WeightsCore& core, TimePoint now) {
      mutex_.assert_held();
      // Without a number: asks for a version newer than the held one, if there is one now.
      const VersionPtr& mine = core.held().about;
      const std::uint64_t newer = mine ? mine->version + 1 : 0;
      id = core.ask(at_least.value_or(newer), at_least.has_value(), deadline, now);
      awaited_.insert(id);
    });
    if (id == 0) return cancelled("weights '{}' were closed", options_.name);
    std::optional<Status> end;
    while (!(end = end_of(id, deadline))) {
      const bool is_late = clock_.now() >= deadline;
      if (!is_late && !(is_interrupted && is_interrupted())) continue;
      end = is_late ? cancelled("weights '{}' were closed", options_.name)
                    : cancelled("the wait for weights '{}' was interrupted", options_.name);
      turn([&](WeightsCore& core, TimePoint) {
        mutex_.assert_held();
        if (const auto now = ended_.find(id); now != ended_.end()) {
          end = now->second;  // between the two looks
        } else if (is_late) {
          end = core.too_late(id);
        }
        core.give_up(id);
      });
      break;
    }
    MutexLock lock(mutex_);
    awaited_.erase(id);
    ended_.erase(id);
    if (!end->ok()) return *end;
    return core_.held().about;
  }

  // How the request ended; empty if it has not ended after a while.
  std::optional<Status> end_of(WeightsCore::InquiryId id, TimePoint deadline) {
    MutexLock lock(mutex_);
    const TimePoint look = std::min(deadline, clock_.now() + kLookInterval);
    while (!ended_.contains(id) && !is_closed_) {
      if (!clock_.wait_until(changed_, mutex_, look)) break;
    }
    const auto end = ended_.find(id);
    if (end != ended_.end()) return end->second;
    if (is_closed_) return cancelled("weights '{}' were closed", options_.name);
    return std::nullopt;
  }

  void undefine() { turns_.undefine(function_); }
  void close() {
    turn([](WeightsCore& core, TimePoint) { core.close(); });
    turns_.close();
    timers_.stop();
    MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  WeightsCore::Options core_options(Peer* peer) {
    WeightsCore::Options made;
    made.name = options_.name;
    made.self = peer->name();
    made.host = host_id();
    made.sources = options_.sources;
    made.run = static_cast<std::uint64_t>(calendar_ns());
    made.maps = options_.uses_shared_memory;
    // Called within events, while the peer exists.
    made.others = [peer] {
      std::vector<std::string> names;
      for (const PeerInfo& other : peer->peers()) {
        if (other.is_connected && names.size() < kOthersMax) names.push_back(other.name);
      }
      return names;
    };
    made.reach = [peer] {
      auto reach = WeightsRequest::Reach::kNone;
      for (const std::string& address : peer->addresses()) {
        if (!is_of_one_host(address)) return WeightsRequest::Reach::kAll;
        reach = WeightsRequest::Reach::kHost;
      }
      return reach;
    };
    made.is_connected = [peer](const std::string& name) {
      const std::vector<PeerInfo> all = peer->peers();
      return std::any_of(all.begin(), all.end(), [&](const PeerInfo& other) {
        return other.is_connected && other.name == name;
      });
    };
    made.map = map_version;
    made.share = [this](HeldVersion version) {
      MutexLock lock(relay_mutex_);
      Result<HeldVersion> shared = relayed_.copy(version.about->version, version.about->value);
      if (!shared.ok()) return version;
      shared->changes = std::move(version.changes);
      return std::move(*shared);
    };
    return made;
  }

  Result<HeldVersion> copied(std::uint64_t version, const Payload& value)
      REVERIE_REQUIRES(publish_mutex_) {
    if (options_.uses_shared_memory) {
      Result<HeldVersion> shared = published_.copy(version, value);
      if (shared.ok()) return shared;
    }
    return copy_version(version, value);
  }

  void send(const PeerTurn& peer, WeightsCore::Outgoing out) {
    switch (out.kind) {
      case WeightsCore::Outgoing::Kind::kAnswer:
        return peer->answer(out.request, std::move(out.payload));
      case WeightsCore::Outgoing::Kind::kFail:
        return peer->fail(out.request, out.error);
      case WeightsCore::Outgoing::Kind::kCancel:
        return;
      case WeightsCore::Outgoing::Kind::kCopy:
        return make_copy(std::move(out));
      case WeightsCore::Outgoing::Kind::kCall:
        break;
    }
    const std::uint64_t ticket = out.ticket;
    const auto on_answered = [weak = weak_from_this(), ticket](CallResult result) {
      const auto impl = weak.lock();
      if (!impl) return;
      impl->turn([&](WeightsCore& core, TimePoint now) {
        impl->mutex_.assert_held();
        impl->calls_.erase(ticket);
        core.on_answered(ticket, result, now);
      });
    };
    {
      MutexLock lock(mutex_);
      calls_.emplace(ticket, 0);
    }
    const Result<CallId> called = peer->call(out.peer, function_, std::move(out.payload),
                                             {out.deadline, /*is_idempotent=*/false}, on_answered);
    if (!called.ok()) return on_answered({CallResult::Kind::kFailed, called.status(), {}, {}, {}});
    MutexLock lock(mutex_);
    const auto call = calls_.find(ticket);
    if (call != calls_.end()) call->second = *called;
  }

  // Under no lock. close() waits until the timers' thread runs nothing of this object.
  void make_copy(WeightsCore::Outgoing out) {
    const bool is_small = out.copied_bytes <= kCopiedBytesMax;
    const auto run = [this, ticket = out.ticket, copy = std::move(out.copy)] {
      Result<HeldVersion> made = copy();
      turn([&](WeightsCore& core, TimePoint now) { core.on_copied(ticket, std::move(made), now); });
    };
    if (is_small || timers_.schedule(clock_.now(), run) == 0) run();
  }

  const ForkGuard fork_guard_;
  Clock& clock_ = Clock::system();
  PeerTurns turns_;
  const Options options_;
  const std::string function_;
  Mutex publish_mutex_;  // before mutex_
  VersionMemory published_ REVERIE_GUARDED_BY(publish_mutex_);
  mutable Mutex mutex_;
  CondVar changed_;
  Mutex relay_mutex_;
  VersionMemory relayed_ REVERIE_GUARDED_BY(relay_mutex_);
  WeightsCore core_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, CallId> calls_ REVERIE_GUARDED_BY(mutex_);  // by ticket; 0: not yet known
  std::set<WeightsCore::InquiryId> awaited_ REVERIE_GUARDED_BY(mutex_);
  std::map<WeightsCore::InquiryId, Status> ended_ REVERIE_GUARDED_BY(mutex_);
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  TimerQueue timers_;
  Alarm alarm_;
};

Weights::Weights(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl)
    : peer_(std::move(peer)), impl_(std::move(impl)) {}

Result<std::unique_ptr<Weights>> Weights::make(std::shared_ptr<Peer> peer, const Options& options) {
  REVERIE_RETURN_IF_ERROR(peer->check_open());
  if (options.name.empty() || options.name.size() > kGroupNameMax) {
    return invalid_argument("the name of weights has {} bytes; it must have 1 to {}",
                            options.name.size(), kGroupNameMax);
  }
  if (std::find(options.sources.begin(), options.sources.end(), peer->name()) !=
      options.sources.end()) {
    return invalid_argument("sources names '{}', which is this peer; name others", peer->name());
  }
  auto impl = std::make_shared<Impl>(peer.get(), options);
  const std::weak_ptr<Impl> weak = impl;
  // Otherwise a request that is given to these weights while they close would wait for ever.
  const auto handle = [weak, answerer = peer->answerer()](const Request& request) {
    const auto weights = weak.lock();
    if (weights && weights->on_request(request)) return;
    answerer.fail(request.id,
                  {StatusCode::kUnavailable, "", "these weights are no longer served", ""});
  };
  const Status defined = peer->define(impl->function(), handle);
  if (!defined.ok()) {
    impl->close();
    if (defined.code() != StatusCode::kAlreadyExists) return defined;
    return already_exists("peer '{}' has weights '{}'; use those, or close() them first",
                          peer->name(), options.name);
  }
  peer->add_withdrawn(weak, [weak](InboundId request) {
    if (const auto weights = weak.lock()) weights->on_withdrawn(request);
  });
  return std::unique_ptr<Weights>(new Weights(std::move(peer), std::move(impl)));
}

Weights::~Weights() {
  close();
  // A forked child has none of the waiting threads, so it must not destroy what they use.
  if (!impl_->check_fork().ok()) leave_to_parent(impl_);
}

Status Weights::publish(std::uint64_t version, const Payload& value) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  REVERIE_RETURN_IF_ERROR(peer_->check_open());
  return impl_->publish(version, value);
}

Weights::VersionPtr Weights::held() const {
  return impl_->check_fork().ok() ? impl_->held() : nullptr;
}

Result<Weights::VersionPtr> Weights::own_copy() const {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->own_copy();
}

Result<Weights::VersionPtr> Weights::pull(TimePoint deadline,
                                          const std::function<bool()>& is_interrupted) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->ask(std::nullopt, deadline, is_interrupted);
}

Result<Weights::VersionPtr> Weights::wait_for(std::uint64_t at_least, TimePoint deadline,
                                              const std::function<bool()>& is_interrupted) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->ask(at_least, deadline, is_interrupted);
}

void Weights::close() {
  if (!impl_->check_fork().ok()) return;
  impl_->undefine();
  impl_->close();
}

}  // namespace reverie
