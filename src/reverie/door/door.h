// Door: the addresses at which a process listens, and the protocol of each accepted connection.
//
//     address --guard--> listener --descriptors--> TLS --ALPN-------> protocol
//                                                   |
//                                                   '--first bytes--> protocol
//
// One door serves several protocols at one port and one Unix socket: HTTP/2 for gRPC beside
// HTTP/1.1 for a page, say. With TLS the client chooses the protocol (ALPN); without TLS, or if it
// names none, the first bytes tell it (first_bytes.h). A door with one protocol passes each
// connection on without looking at its bytes.
//
// No peer on another machine is accepted without a secret: see check_bind in net/address.h. When
// descriptors run out, connections are closed in favour of new ones: those that have sent no first
// bytes, then the longest idle.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/net/connection.h"
#include "reverie/net/io_threads.h"
#include "reverie/net/tls.h"

namespace reverie {

// A connection that came through a door.
struct AcceptedConnection {
  std::unique_ptr<Connection> connection;
  std::string received;  // bytes that were read already: its first ones
  // Its place in the door's count of connections: keep it as long as the connection lives.
  std::shared_ptr<void> place;
};

struct DoorProtocol {
  // Its ALPN name: "h2".
  std::string name;
  // Every connection of the protocol begins with one of these; none may be a prefix of another
  // protocol's. Not used if the door has one protocol.
  std::vector<std::string> first_bytes;
  // Takes over a connection; called on any I/O thread, under no lock. If the door has read its
  // first bytes, it is the connection's own thread.
  std::function<void(AcceptedConnection incoming)> serve;
  // Closes the longest idle connection soon, to make room for a new one. False if no connection is
  // idle. Null: the protocol's connections are never closed for that.
  std::function<bool()> make_way = nullptr;
  // Since when that connection has been idle, on the system's clock; empty if none is idle. Null:
  // the other protocols make way first.
  std::function<std::optional<TimePoint>()> idle_since = nullptr;
};

struct DoorOptions {
  // Encrypts, and with client certificates authenticates.
  std::optional<TlsServerOptions> tls;
  // Whether every protocol demands a token before it does anything for a peer.
  bool has_token = false;
  // Accepts any peer, also at addresses other than loopback.
  bool is_insecure_allowed = false;
  // Whether `tls` applies to Unix sockets too.
  bool encrypts_unix = true;
  // Connections at a time; a further one is closed at once.
  std::size_t connection_count_max = 65536;
  // How long a connection may take to send the bytes that tell its protocol.
  Duration first_bytes_timeout = std::chrono::seconds(20);
};

// Thread-safe, except that protocols must be added before listen(). `io_threads` outlives it. Must
// not be destroyed or closed on an I/O thread.
class Door {
 public:
  Door(IoThreads& io_threads, DoorOptions options);
  // Calls close().
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // ALPN prefers the protocol that was added first.
  void add_protocol(DoorProtocol protocol);

  // Listens at all of `addresses`, or at none: "localhost:0", "[::1]:7000", "unix:/run/x.sock".
  // Returns them with the ports that were chosen for 0. Refuses an address that other machines can
  // reach without a secret, a token over cleartext, malformed TLS texts, and a port in use.
  // FAILED_PRECONDITION after close().
  Result<std::vector<std::string>> listen(const std::vector<std::string>& addresses);
  // Whether listen() may succeed, as far as can be known without listening: finds all its refusals
  // except a port in use.
  Status check(const std::vector<std::string>& addresses);

  // Once this has returned, no connection is accepted; those that have not sent their first bytes
  // are closed. Idempotent.
  void close();

  // Accepted connections that are still open.
  std::size_t connection_count() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
