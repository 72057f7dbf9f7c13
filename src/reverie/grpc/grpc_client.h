// A gRPC client over bytes: calls by path to one target; lost connections are restored.
//
//     REVERIE_ASSIGN_OR_RETURN(auto client, GrpcClient::open(io_threads, "localhost:7000", {}));
//     client->unary("/pkg.Service/Info", GrpcPayload(), {}, [](Result<Ref<GrpcMessage>> r) {...});
//     auto call = client->start("/pkg.Service/Sample", {}, std::make_shared<Receiver>());
//     call->write(std::move(request));
//
// A target may name several addresses ("dns:///name:port", "ipv4:a:1,b:2"): there is a connection
// to each, and calls use them in turn. A connection is opened with the first call, and reopened,
// with growing pauses, after it was lost. Calls in progress on it end with UNAVAILABLE; calls are
// not repeated. Where no attempt can ever succeed (a certificate that one end does not accept, a
// server without TLS) no call waits: it fails with the reason, UNAUTHENTICATED or
// FAILED_PRECONDITION. Calls that wait for more than 2 s are logged, once until a server answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/grpc/grpc_call.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/net/connection.h"
#include "reverie/net/io_threads.h"
#include "reverie/net/tls.h"

namespace reverie {

// Failed attempts are logged only after this time.
constexpr Duration kSilentRetries = std::chrono::seconds(2);

// One call as its caller sees it.
class GrpcClientCall : public GrpcCall {
 public:
  // Sends a message after those written before.
  virtual void write(GrpcPayload message) = 0;
  // Declares that nothing more will be written.
  virtual void half_close() = 0;
  // Ends the call with CANCELLED, unless it is over.
  virtual void cancel() = 0;
};

// Receives a call's events, on the connection's I/O thread, one at a time; they should be short,
// and may use the call. The transport holds the receiver until on_end() has returned.
class GrpcClientEvents : public GrpcCallEvents {
 public:
  // Called exactly once, as the last event: the server's status, or our own if it sent none.
  // UNAVAILABLE if the connection was lost; gRPC's statuses that we do not have (UNKNOWN, ABORTED)
  // become INTERNAL with their name in the text.
  void on_end(const Status& status) override = 0;
};

struct GrpcCallOptions {
  // A time of Clock::system(). Sent to the server, and enforced here too.
  TimePoint deadline = TimePoint::max();
  // Waits for a connection, if need be until the deadline; otherwise the call fails with the first
  // attempt that fails.
  bool is_waiting_for_ready = false;
  // How long it waits for one; then it fails with UNAVAILABLE and the error of the last attempt.
  Duration ready_time = Duration::max();
  GrpcMetadata metadata = {};
};

struct GrpcClientOptions {
  GrpcLimits limits;
  std::optional<TlsClientOptions> tls;
  // Sent as "authorization: Bearer <token>", only over TLS, Unix sockets and loopback: elsewhere
  // calls fail with FAILED_PRECONDITION, and the token is not sent.
  std::string token;
  Duration connect_timeout = std::chrono::seconds(20);
  // Pause before another attempt to connect: doubled after each failure, with a random part.
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(1);
  // Without TLS: prefers the Unix socket that a Reverie server on this machine has beside its TCP
  // address (net/local_door.h).
  bool uses_local_door = true;
  // Seeds the random part; if not set, the seed is random.
  std::optional<std::uint64_t> seed;
  // HTTP/2's number of a connection's first call, which tests set. Odd.
  std::int32_t first_call_number = 1;
};

// Thread-safe. `io_threads` outlives it. In a forked child every call fails.
class GrpcClient {
 public:
  // Connects to nothing yet. INVALID_ARGUMENT for a malformed target, token or TLS text.
  static Result<std::unique_ptr<GrpcClient>> open(IoThreads& io_threads, std::string_view target,
                                                  GrpcClientOptions options);
  // Calls close().
  ~GrpcClient();
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;

  // Begins a call, which may be written to at once. Never null.
  std::shared_ptr<GrpcClientCall> start(std::string_view path, GrpcCallOptions options,
                                        std::shared_ptr<GrpcClientEvents> events);

  // A call with one request and one response. `done` is called once, on an I/O thread. The call may
  // be cancelled.
  using UnaryDone = std::function<void(Result<Ref<GrpcMessage>> response)>;
  std::shared_ptr<GrpcClientCall> unary(std::string_view path, GrpcPayload request,
                                        GrpcCallOptions options, UnaryDone done);

  // The number of addresses of the target: calls use them in turn.
  std::size_t address_count() const;

  // The loop that its events run on, and that a connection for adopt() must belong to.
  IoLoop& loop();

  // Uses a connection that was made elsewhere (one end of a pair) as if it had been opened to the
  // first address; it is not reopened.
  void adopt(std::unique_ptr<Connection> connection);

  // Ends every call with CANCELLED and closes the connections; later calls fail likewise. After it
  // returns no event runs, unless it was called on an I/O thread. Idempotent.
  void close();

 private:
  class Impl;
  explicit GrpcClient(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
