#include "reverie/calls/pending_call.h"

#include <utility>

namespace reverie {

class PendingCall::Made final : public PendingCall {
 public:
  Made(std::weak_ptr<Peer> caller, std::string to, std::string function, SharedTold told)
      : PendingCall(std::move(caller), std::move(to), std::move(function), std::move(told)) {}
};

Result<std::shared_ptr<PendingCall>> PendingCall::begin(const std::shared_ptr<Peer>& peer,
                                                        std::string to, std::string function,
                                                        Payload payload, const CallOptions& options,
                                                        SharedTold told) {
  const std::shared_ptr<PendingCall> call =
      std::make_shared<Made>(peer, std::move(to), std::move(function), std::move(told));
  auto done = [call](CallResult result) {
    if (call->complete(std::move(result)) && call->told_) (*call->told_)(call);
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
  is_done_.store(true, std::memory_order_release);
  if (is_waited_for_) changed_.notify_all();
  return tells_;
}

bool PendingCall::wait_until(TimePoint until) {
  if (is_done()) return true;
  const std::shared_ptr<Peer> peer = caller_.lock();
  if (peer && peer->look([this] { return is_done(); })) return true;
  Clock& clock = Clock::system();
  MutexLock lock(mutex_);
  is_waited_for_ = true;
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

bool PendingCall::tell_when_done() {
  MutexLock lock(mutex_);
  if (is_done() && !tells_) return false;
  tells_ = true;
  return true;
}

void PendingCall::set_told() {
  MutexLock lock(mutex_);
  tells_ = false;
}

}  // namespace reverie
