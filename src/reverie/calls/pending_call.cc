#include "reverie/calls/pending_call.h"

#include <utility>

namespace reverie {

class PendingCall::Constructible final : public PendingCall {
 public:
  Constructible(std::weak_ptr<Peer> caller, std::string to, std::string function,
                SharedOnDone on_done)
      : PendingCall(std::move(caller), std::move(to), std::move(function), std::move(on_done)) {}
};

Result<std::shared_ptr<PendingCall>> PendingCall::begin(const std::shared_ptr<Peer>& peer,
                                                        std::string to, std::string function,
                                                        Payload payload, const CallOptions& options,
                                                        SharedOnDone on_done) {
  const std::shared_ptr<PendingCall> call =
      std::make_shared<Constructible>(peer, std::move(to), std::move(function), std::move(on_done));
  auto done = [call](CallResult result) {
    if (call->complete(std::move(result)) && call->on_done_) (*call->on_done_)(call);
  };
  REVERIE_ASSIGN_OR_RETURN(
      const CallId id,
      peer->call(call->to_, call->function_, std::move(payload), options, std::move(done)));
  call->id_ = id;
  return call;
}

bool PendingCall::complete(CallResult result) {
  MutexLock lock(mutex_);
  result_ = std::move(result);
  is_done_.store(true);
  if (has_waiters_) changed_.notify_all();
  if (waits_in_ != nullptr) waits_in_->wake();
  return notifies_;
}

bool PendingCall::wait_until(TimePoint until) {
  if (is_done()) return true;
  if (const std::shared_ptr<Peer> peer = caller_.lock()) {
    {
      MutexLock lock(mutex_);
      waits_in_ = peer.get();
      ++waiters_in_;
    }
    const bool is_over = peer->wait([this] { return is_done(); }, until);
    MutexLock lock(mutex_);  // before the peer is released, since complete() uses it
    if (--waiters_in_ == 0) waits_in_ = nullptr;
    if (is_over) return true;
  }
  Clock& clock = Clock::system();
  MutexLock lock(mutex_);
  has_waiters_ = true;
  while (!is_done() && clock.wait_until(changed_, mutex_, until)) {
  }
  return is_done();
}

const CallResult& PendingCall::result() const {
  REVERIE_CHECK(is_done());
  return result_;
}

void PendingCall::cancel() {
  if (const std::shared_ptr<Peer> peer = caller_.lock()) peer->cancel(id_);
}

bool PendingCall::notify_when_done() {
  MutexLock lock(mutex_);
  if (is_done() && !notifies_) return false;
  notifies_ = true;
  return true;
}

void PendingCall::set_notified() {
  MutexLock lock(mutex_);
  notifies_ = false;
}

}  // namespace reverie
