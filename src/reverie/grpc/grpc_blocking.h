// Blocking calls on the asynchronous client, for threads that have nothing else to do.
//
// A wait ends at the call's deadline, and can be interrupted: about twenty times a second it
// calls `interrupted` on the waiting thread (Python checks for Ctrl-C there), and true cancels
// the call.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "reverie/grpc/grpc_client.h"

namespace reverie {

using Interrupted = std::function<bool()>;

// A call with one request and one response.
Result<Ref<GrpcMessage>> unary_and_wait(GrpcClient& client, std::string_view path,
                                        GrpcPayload request, GrpcCallOptions options = {},
                                        const Interrupted& interrupted = {});

// A call with streams. One thread may write while another reads; any thread may call cancel() and
// half_close(). Received messages that were not read are bounded: the server waits meanwhile.
class GrpcBlockingStream {
 public:
  GrpcBlockingStream(GrpcClient& client, std::string_view path, GrpcCallOptions options = {},
                     Interrupted interrupted = {});
  // Cancels the call unless it is over.
  ~GrpcBlockingStream();
  GrpcBlockingStream(const GrpcBlockingStream&) = delete;
  GrpcBlockingStream& operator=(const GrpcBlockingStream&) = delete;

  // Waits for room. Returns the call's status if it has ended.
  Status write(GrpcPayload message);
  void half_close();
  // The next message; none if the call has ended: see status().
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
