// PendingCall: a call of another peer's function, whose caller waits or polls for the answer.
//
//     REVERIE_ASSIGN_OR_RETURN(const auto call, PendingCall::begin(peer, "learner", "policy",
//                                                                  std::move(payload), {}));
//     if (call->wait_until(deadline)) use(call->result());
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe. Shared by the threads that wait and the one that completes the call.
class PendingCall {
 public:
  // Notified that the call is done, on the thread of Peer::Done; once for each notify_when_done()
  // that returned true.
  using OnDone = std::function<void(const std::shared_ptr<PendingCall>& call)>;
  // Made once, for many calls.
  using SharedOnDone = std::shared_ptr<const OnDone>;

  // Begins a call. An error of Peer::call means that there is no call. `peer` may end before the
  // answer.
  static Result<std::shared_ptr<PendingCall>> begin(const std::shared_ptr<Peer>& peer,
                                                    std::string to, std::string function,
                                                    Payload payload, const CallOptions& options,
                                                    SharedOnDone on_done = nullptr);
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  const std::string& peer() const { return to_; }
  const std::string& function() const { return function_; }

  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  // Waits (Peer::wait); false if the call is not done by then.
  bool wait_until(TimePoint until);
  // The result. Requires is_done().
  const CallResult& result() const;
  // The call ends with CANCELLED, unless it is done.
  void cancel();

  // Has `on_done` run once the call is done. False if it is done already. Several calls before that
  // are notified once.
  bool notify_when_done();
  // The notification was handled: notify_when_done() returns false from now on.
  void set_notified();

 private:
  class Constructible;  // for std::make_shared
  PendingCall(std::weak_ptr<Peer> caller, std::string to, std::string function,
              SharedOnDone on_done)
      : caller_(std::move(caller)),
        to_(std::move(to)),
        function_(std::move(function)),
        on_done_(std::move(on_done)) {}
  // True: `on_done` must run.
  bool complete(CallResult result);

  const std::weak_ptr<Peer> caller_;
  const std::string to_;
  const std::string function_;
  const SharedOnDone on_done_;
  std::atomic<CallId> id_{0};
  Mutex mutex_;
  CondVar changed_;
  CallResult result_;  // written once, before is_done_
  std::atomic<bool> is_done_{false};
  bool notifies_ REVERIE_GUARDED_BY(mutex_) = false;
  bool has_waiters_ REVERIE_GUARDED_BY(mutex_) = false;  // most are not, so no thread is woken
  // The peer while threads wait in it, each of which holds it.
  const Peer* waits_in_ REVERIE_GUARDED_BY(mutex_) = nullptr;
  int waiters_in_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie
