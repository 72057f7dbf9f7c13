// Blocking calls on the asynchronous client, for threads that have nothing else to do.
//
// A wait ends at the call's deadline, and can be ended from outside: about twenty times a second it
// asks `interrupted` on the waiting thread (Python looks for Ctrl-C there), and true cancels the
// call.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "reverie/grpc/grpc_client.h"

namespace reverie {

using Interrupted = std::function<bool()>;

// One message there, one back.
Result<Ref<GrpcMessage>> unary_and_wait(GrpcClient& client, std::string_view path,
                                        GrpcPayload request, GrpcCallOptions options = {},
                                        const Interrupted& interrupted = {});

// A call with streams. One thread may write while another reads; cancel() and half_close() are for
// any. What was received and not read is bounded: the server waits meanwhile.
class GrpcBlockingStream {
 public:
  GrpcBlockingStream(GrpcClient& client, std::string_view path, GrpcCallOptions options = {},
                     Interrupted interrupted = {});
  // Cancels the call unless it is over.
  ~GrpcBlockingStream();
  GrpcBlockingStream(const GrpcBlockingStream&) = delete;
  GrpcBlockingStream& operator=(const GrpcBlockingStream&) = delete;

  // Waits for room. The call's status if it has ended.
  Status write(GrpcPayload message);
  void half_close();
  // The next message; none when the call has ended: see status().
  std::optional<Ref<GrpcMessage>> read();
  // Waits for the call to end; messages that were not read are dropped.
  Status status();
  void cancel();

 private:
  class Receiver;
  std::shared_ptr<Receiver> receiver_;
  std::shared_ptr<GrpcClientCall> call_;
};

}  // namespace reverie
