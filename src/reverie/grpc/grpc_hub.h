// GrpcHub: passes requests from any thread to the calls of one I/O thread.
//
// Requests to a call (write, finish, cancel, ...) go into the hub's queue and are carried out on
// the I/O thread, in order, under no lock; many requests share one wake-up. Requests from the I/O
// thread itself are carried out at the end of the current event. So no method of a call ever runs
// one of its events, and code that uses a call may hold locks.
#pragma once

#include <memory>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/net/io_threads.h"

namespace reverie {

class GrpcStream;
class GrpcSession;

struct GrpcRequest {
  enum class Kind {
    kStart,
    kWrite,
    kFinish,
    kAbort,
    kHalfClose,
    kCancel,
    kResume,
    kAwaitRoomToSend,  // of the connection
    kAwaitRoomToDraw,
    kOverflow
  };
  std::shared_ptr<GrpcStream> stream;
  Kind kind;
  GrpcPayload payload = {};
  Status status = {};
};

class GrpcHub : public std::enable_shared_from_this<GrpcHub> {
 public:
  explicit GrpcHub(IoLoop& loop) : loop_(loop) {}

  IoLoop& loop() { return loop_; }

  // Thread-safe. The request is dropped if the loop has stopped.
  void submit(GrpcRequest request);

  // Loop thread only, from here on.

  // The session has something to send.
  void touch(GrpcSession& session);
  // Runs an event, then all requests that it made, and sends the results.
  template <typename Event>
  void run(Event event) {
    ++depth_;
    event();
    if (--depth_ == 0) settle();
  }

 private:
  void settle();
  void post();

  IoLoop& loop_;
  Mutex mutex_;
  std::vector<GrpcRequest> requests_ REVERIE_GUARDED_BY(mutex_);
  std::vector<GrpcRequest> running_;
  std::vector<std::shared_ptr<GrpcSession>> touched_;
  std::vector<std::shared_ptr<GrpcSession>> flushing_;
  int depth_ = 0;  // of nested events
};

}  // namespace reverie
