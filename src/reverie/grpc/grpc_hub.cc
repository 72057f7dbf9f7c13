// Tested in grpc_test.cc.
#include "reverie/grpc/grpc_hub.h"

#include <utility>

#include "reverie/grpc/grpc_session.h"
#include "reverie/grpc/grpc_stream.h"

namespace reverie {
namespace {

// Then it is the turn of the loop's other connections.
constexpr int kRoundsAtOnce = 4;

}  // namespace

void GrpcHub::submit(GrpcRequest request) {
  {
    MutexLock lock(mutex_);
    requests_.push_back(std::move(request));
    if (requests_.size() > 1) return;  // the thread that added the first request has posted it
  }
  if (loop_.is_current() && depth_ > 0) return;
  post();
}

void GrpcHub::touch(GrpcSession& session) {
  if (std::exchange(session.is_flush_due_, true)) return;
  touched_.push_back(session.shared_from_this());
  if (depth_ == 0 && touched_.size() == 1) post();
}

void GrpcHub::post() {
  loop_.post([self = shared_from_this()] {
    if (self->depth_ == 0) self->settle();
  });
}

void GrpcHub::settle() {
  ++depth_;
  for (int round = 0;; ++round) {
    {
      MutexLock lock(mutex_);
      if (requests_.empty() && touched_.empty()) break;
      if (round == kRoundsAtOnce) {
        --depth_;
        post();
        return;
      }
      running_.swap(requests_);
    }
    for (GrpcRequest& request : running_) {
      GrpcStream& stream = *request.stream;
      stream.carry_out(request);
    }
    running_.clear();
    flushing_.swap(touched_);
    for (const auto& session : flushing_) {
      session->is_flush_due_ = false;
      session->flush();
    }
    flushing_.clear();
  }
  --depth_;
}

}  // namespace reverie
