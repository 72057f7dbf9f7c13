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
  // Notified that the call is done, on the thread of Peer::Done; once for each tell_when_done()
  // that returned true.
  using Told = std::function<void(const std::shared_ptr<PendingCall>& call)>;
  // Made once, for many calls.
  using SharedTold = std::shared_ptr<const Told>;

  // Begins a call. An error of Peer::call means that there is no call. `peer` may end before the
  // answer.
  static Result<std::shared_ptr<PendingCall>> begin(const std::shared_ptr<Peer>& peer,
                                                    std::string to, std::string function,
                                                    Payload payload, const CallOptions& options,
                                                    SharedTold told = nullptr);
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  const std::string& peer() const { return to_; }
  const std::string& function() const { return function_; }

  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  // Waits; false if the call is not done by then. Polls shared memory first (Peer::look).
  bool wait_until(TimePoint until);
  // The result. Requires is_done().
  const CallResult& result() const;
  // The call ends with CANCELLED, unless it is done.
  void cancel();

  // Has `told` run once the call is done. False if it is done already. Several calls before that
  // are notified once.
  bool tell_when_done();
  // The notification was handled: tell_when_done() returns false from now on.
  void set_told();

 private:
  class Made;  // for std::make_shared
  PendingCall(std::weak_ptr<Peer> caller, std::string to, std::string function, SharedTold told)
      : caller_(std::move(caller)),
        to_(std::move(to)),
        function_(std::move(function)),
        told_(std::move(told)) {}
  // True: `told` must run.
  bool complete(CallResult result);

  const std::weak_ptr<Peer> caller_;
  const std::string to_;
  const std::string function_;
  const SharedTold told_;
  std::atomic<CallId> id_{0};
  Mutex mutex_;
  CondVar changed_;
  CallResult result_;  // written once, before is_done_
  std::atomic<bool> is_done_{false};
  bool tells_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_waited_for_ REVERIE_GUARDED_BY(mutex_) = false;  // most are not, so no thread is woken
};

}  // namespace reverie
