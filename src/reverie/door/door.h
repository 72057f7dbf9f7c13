// Door: the addresses at which a process listens, and the protocol of each connection that comes.
//
//     address --guard--> listener --descriptors--> TLS --ALPN-------> protocol
//                                                   |
//                                                   '--first bytes--> protocol
//
// One door serves several protocols at one port and one Unix socket: HTTP/2 for gRPC beside
// HTTP/1.1 for a page, say. A connection over TLS goes by the protocol that its client chose
// (ALPN); without TLS, or where the client named none, by its first bytes (first_bytes.h). A door
// with one protocol hands each connection on at once, without a look at its bytes.
//
// No peer on another machine is let in without a secret: see check_bind in net/address.h. When
// descriptors run out, the connections that are idle for longest make way for new ones.
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
struct DoorGuest {
  std::unique_ptr<Connection> connection;
  std::string received;  // what was read of it already: its first bytes
  // Its place among the connections of the door: to be kept for as long as the connection lives.
  std::shared_ptr<void> place;
};

struct DoorProtocol {
  // By ALPN: "h2".
  std::string name;
  // What every connection of the protocol begins with, in any of these ways; none may be the
  // beginning of another protocol's. Not looked at where a door has one protocol.
  std::vector<std::string> first_bytes;
  // Takes a connection over: on any I/O thread, under no lock. Where the door has looked at its
  // first bytes, that is the connection's own.
  std::function<void(DoorGuest guest)> serve;
  // Has the connection that is idle for longest closed soon, to make way for a new one. False when
  // none is idle. Null: the protocol's connections never make way.
  std::function<bool()> make_way = nullptr;
};

struct DoorOptions {
  // Encrypts, and with client certificates authenticates.
  std::optional<TlsServerOptions> tls;
  // Whether every protocol asks for a token before it does anything for a peer.
  bool has_token = false;
  // Lets any peer in that can reach an address which is not loopback.
  bool is_insecure_allowed = false;
  // Whether `tls` holds for Unix sockets too.
  bool encrypts_unix = true;
  // Connections at a time; a further one is closed at once.
  std::size_t connection_count_max = 65536;
  // How long a connection may take until its first bytes have told its protocol.
  Duration first_bytes_timeout = std::chrono::seconds(20);
};

// Thread-safe, except that protocols must be added before listen(). `io_threads` outlives it. Must
// not be destroyed or closed on an I/O thread.
class Door {
 public:
  Door(IoThreads& io_threads, DoorOptions options);
  // close().
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // The first one is the one that ALPN prefers.
  void add_protocol(DoorProtocol protocol);

  // Listens at all of `addresses`, or at none: "localhost:0", "[::1]:7000", "unix:/run/x.sock".
  // Returns them with the ports that were chosen for 0. Refuses an address that others can reach
  // without a secret, a token over cleartext, TLS texts that are malformed, and a port in use.
  // FAILED_PRECONDITION after close().
  Result<std::vector<std::string>> listen(const std::vector<std::string>& addresses);
  // Whether listen() may succeed, as far as can be known without listening: all that it refuses,
  // except a port that another program uses.
  Status check(const std::vector<std::string>& addresses);

  // No connection comes through it any more once this has returned; those whose first bytes are
  // awaited are closed. Idempotent.
  void close();

  // Connections that came through it and are still open.
  std::size_t connection_count() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
