// A gRPC server of methods over bytes: HTTP/2 by nghttp2, on the event loop of `net`.
//
//     GrpcServer server(io_threads, options);
//     server.add_method("/pkg.Service/Sample", [&](std::shared_ptr<GrpcServerCall> call) {
//       return std::make_shared<SampleStream>(service, std::move(call));   // a GrpcServerEvents
//     });
//     REVERIE_ASSIGN_OR_RETURN(std::vector<std::string> addresses, server.listen({"localhost:0"}));
//
// A call lives on its connection's I/O thread. When the headers have arrived, the method is asked
// for a receiver of events; responses may be written from any thread, until finish().
//
// Slow readers: written messages wait in the call's queue and go to the socket only as far as the
// peer's window allows. A method that makes messages only while has_room(), and continues at
// on_room(), never holds more than one message beyond that; the call of one that does not is ended
// at `queued_bytes_max`. All calls of a connection share its room, and all connections share the
// server's. Slow methods: see GrpcCall::pause_reading.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/door/byte_budget.h"
#include "reverie/door/door.h"
#include "reverie/grpc/grpc_call.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/net/connection.h"
#include "reverie/net/io_threads.h"
#include "reverie/net/tls.h"

namespace reverie {

// What is known of a call before its first message. Constant.
struct GrpcCallInfo {
  std::string path;  // "/pkg.Service/Method"
  // The caller's metadata, without pseudo-headers and gRPC's. Valid until the method has returned.
  GrpcMetadata metadata;
  TimePoint deadline = TimePoint::max();
  std::string peer;            // "127.0.0.1:41234", "unix:/run/x.sock"
  std::string peer_name;       // subject of the client's certificate, with mutual TLS
  bool is_peer_local = false;  // loopback or a Unix socket
};

// One call as its method sees it.
class GrpcServerCall : public GrpcCall {
 public:
  virtual const GrpcCallInfo& info() const = 0;
  // Sends a message after those written before.
  virtual void write(GrpcPayload message) = 0;
  // Ends the call once what was written is sent. Only the first finish() counts; nothing can be
  // written after it, and no message is delivered.
  virtual void finish(const Status& status) = 0;
  // Ends the call now, whatever it waits for, and sends `why` to the caller: on_end(why) follows
  // soon. Requires !why.ok().
  virtual void abort(const Status& why) = 0;

  // Whether more should be drawn or prepared for the call, to be held until it can be written; if
  // not, on_room() is called when it should. has_room() is about the next message.
  virtual bool has_room_to_draw() const = 0;
  // Counts bytes that the method holds for this call, besides those written, for the connection.
  virtual void hold(std::size_t bytes) = 0;
  // Reserves room for up to `count` samples of `bytes_each` to be drawn, and returns for how many:
  // at least one.
  virtual std::size_t reserve_up_to(std::size_t count, std::size_t bytes_each) = 0;
  // Requires that they were held.
  virtual void release(std::size_t bytes) = 0;
};

// Receives a call's events, on the connection's I/O thread, one at a time; they should be short,
// and may use the call. The transport holds the receiver until on_end() has returned.
class GrpcServerEvents : public GrpcCallEvents {
 public:
  // The number of a field, of type bytes or message, whose long contents on_message() receives as
  // parts of the message (GrpcMessage::take_parts); 0: no field. Called once.
  virtual std::uint32_t apart_field() const { return 0; }
  // The caller will send no more. Not called for a call that ended before.
  void on_half_close() override = 0;
  // Called exactly once, as the last event. Ok: finish() was carried out, whatever status it sent.
  // Else the reason why the call ended before: CANCELLED (by the caller), DEADLINE_EXCEEDED,
  // UNAVAILABLE (connection lost, or the server stops), RESOURCE_EXHAUSTED (a limit).
  void on_end(const Status& why) override = 0;
};

// Called on the I/O thread when a call begins. Null refuses it with INTERNAL.
using GrpcMethod =
    std::function<std::shared_ptr<GrpcServerEvents>(std::shared_ptr<GrpcServerCall> call)>;
// Called on the I/O thread with the one request; `reply` may be called later, from any thread,
// once.
using GrpcUnaryReply = std::function<void(Result<GrpcPayload> response)>;
using GrpcUnaryMethod = std::function<void(const std::shared_ptr<GrpcServerCall>& call,
                                           Ref<GrpcMessage> request, GrpcUnaryReply reply)>;

struct GrpcServerOptions {
  GrpcLimits limits = {.connection_bytes_max = std::size_t{64} << 20};
  // Encrypts, and with client certificates authenticates.
  std::optional<TlsServerOptions> tls;
  // Callers must send it as "authorization: Bearer <token>". Only over TLS, Unix sockets and
  // loopback: listening elsewhere without TLS is refused. Empty: no token is required.
  std::string token;
  // Accepts any peer, also at addresses other than loopback.
  bool is_insecure_allowed = false;
  // A budget shared by all connections: what each holds beyond a megabyte counts here too. Null:
  // only each connection's own bound.
  std::shared_ptr<ByteBudget> in_flight = nullptr;
  // Connections at a time; a further one is closed at once.
  std::size_t connection_count_max = 65536;
  // How long a connection may take for the TLS handshake and HTTP/2 preface, from then on until its
  // first call, and without any call in progress. Then it is closed, after the handshake with a
  // GOAWAY; when descriptors run out, the connection that has been without a call longest is.
  Duration hello_timeout = std::chrono::seconds(20);
  Duration first_call_timeout = std::chrono::seconds(20);
  Duration idle_timeout = std::chrono::minutes(10);
};

struct GrpcServerFigures {
  std::size_t connection_count = 0;
  std::size_t call_count = 0;  // calls that are not over
  std::size_t held_bytes = 0;  // for all connections, in both directions
  std::uint64_t calls_begun = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_sent = 0;
};

// Thread-safe, except that methods must be added before listen(). `io_threads` outlives it. Must
// not be destroyed or stopped on an I/O thread.
class GrpcServer {
 public:
  GrpcServer(IoThreads& io_threads, GrpcServerOptions options);
  // Calls stop() without grace.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  void add_method(std::string path, GrpcMethod method);
  void add_unary(std::string path, GrpcUnaryMethod method);

  // Adds another protocol at the same addresses. Call it before listen().
  void add_protocol(DoorProtocol protocol);

  // Listens on all of `addresses`, or on none: "localhost:0", "[::1]:7000", "unix:/run/x.sock".
  // Returns them with the ports that were chosen for 0. Refuses an address that other machines can
  // reach without a secret, a token over cleartext, a malformed token, malformed TLS texts, and a
  // port in use. See door/door.h.
  Result<std::vector<std::string>> listen(const std::vector<std::string>& addresses);

  // Whether listen() may succeed, as far as can be known without listening: finds all its refusals
  // except a port in use.
  Status check(const std::vector<std::string>& addresses);

  // Serves one connection that was accepted or made elsewhere: the other end of a pair, or one
  // whose first bytes showed that it speaks HTTP/2; these bytes are given as `received`.
  void serve(std::unique_ptr<Connection> connection, std::string received = {});

  // Sends GOAWAY on every connection and accepts no new ones; calls continue. Idempotent; does not
  // wait.
  void begin_stop();
  // Calls begin_stop(), waits up to `grace` for the calls to end, ends the rest with UNAVAILABLE,
  // closes the connections and returns when no event runs any more. Idempotent.
  void stop(Duration grace = Duration::zero());

  // Any thread, I/O threads included; does not wait. Not a consistent snapshot.
  GrpcServerFigures figures() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
