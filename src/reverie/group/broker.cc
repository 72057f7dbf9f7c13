// Tested in group_test.cc.
#include "reverie/group/broker.h"

#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/random.h"
#include "reverie/base/timer_queue.h"
#include "reverie/calls/peer_turns.h"

namespace reverie {
namespace {

BrokerOptions core_options() {
  BrokerOptions options;
  options.random = random_seed;
  return options;
}

}  // namespace

class Broker::Impl {
 public:
  explicit Impl(Peer* peer)
      : answerer_(peer->answerer()),
        turns_(peer),
        core_(core_options()),
        timers_(clock_),
        alarm_(timers_, [this] { turn([](BrokerCore&, TimePoint) {}); }) {}

  template <typename Event>
  void turn(Event event) {
    const PeerTurn peer(turns_);
    if (!peer) return;
    std::vector<BrokerCore::Answer> answers;
    TimePoint next;
    {
      MutexLock lock(mutex_);
      const TimePoint now = clock_.now();
      event(core_, now);
      if (core_.next_tick() <= now) core_.tick(now);
      answers = core_.take_answers();
      next = core_.next_tick();
    }
    for (BrokerCore::Answer& answer : answers) {
      if (answer.status.ok()) {
        peer->answer(answer.to, std::move(answer.payload));
      } else {
        peer->fail(answer.to, {answer.status.code(), "", answer.status.message(), ""});
      }
    }
    if (next < TimePoint::max()) alarm_.set(next);
  }

  std::vector<GroupInfo> groups() const {
    MutexLock lock(mutex_);
    return core_.groups();
  }

  void on_request(const Request& request) {
    bool is_taken = false;
    turn([&](BrokerCore& core, TimePoint now) {
      core.on_request(request, now);
      is_taken = true;
    });
    if (!is_taken) refuse(answerer_, request.id, closed());
  }

  void close() {
    turns_.undefine(kBrokerFunction);
    turns_.close();
    timers_.stop();
    std::vector<BrokerCore::Answer> answers;
    {
      MutexLock lock(mutex_);
      core_.close();
      answers = core_.take_answers();
    }
    for (const BrokerCore::Answer& answer : answers) refuse(answerer_, answer.to, answer.status);
  }

  static Status closed() { return unavailable("the broker was closed"); }
  static void refuse(const Peer::Answerer& answerer, InboundId request, const Status& why) {
    answerer.fail(request, {why.code(), "", why.message(), ""});
  }

  Status check_fork() const { return fork_guard_.check("broker"); }

 private:
  const ForkGuard fork_guard_;
  Clock& clock_ = Clock::system();
  const Peer::Answerer answerer_;  // for requests that no turn takes any more
  PeerTurns turns_;
  mutable Mutex mutex_;
  BrokerCore core_ REVERIE_GUARDED_BY(mutex_);
  TimerQueue timers_;
  Alarm alarm_;
};

Broker::Broker(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl)
    : peer_(std::move(peer)), impl_(std::move(impl)) {}

Result<std::unique_ptr<Broker>> Broker::make(std::shared_ptr<Peer> peer) {
  auto impl = std::make_shared<Impl>(peer.get());
  const std::weak_ptr<Impl> weak = impl;
  const auto handle = [weak, answerer = peer->answerer()](const Request& request) {
    if (const auto broker = weak.lock()) return broker->on_request(request);
    Impl::refuse(answerer, request.id, Impl::closed());
  };
  REVERIE_RETURN_IF_ERROR(peer->define(kBrokerFunction, handle));
  peer->add_withdrawn(weak, [weak](InboundId request) {
    if (const auto broker = weak.lock()) {
      broker->turn([&](BrokerCore& core, TimePoint now) { core.on_withdrawn(request, now); });
    }
  });
  return std::unique_ptr<Broker>(new Broker(std::move(peer), std::move(impl)));
}

Broker::~Broker() {
  close();
  // A forked child has none of the waiting threads, so it must not destroy what they use.
  if (!impl_->check_fork().ok()) leave_to_parent(impl_);
}

std::vector<GroupInfo> Broker::groups() const {
  if (!impl_->check_fork().ok()) return {};
  return impl_->groups();
}

void Broker::close() {
  if (!impl_->check_fork().ok()) return;
  impl_->close();
}

}  // namespace reverie
