// A stream of bytes to a peer: TCP, a Unix socket or a pair in this process, encrypted or not.
//
// Nothing here blocks: read() and write() do what can be done now, and the loop says when more can.
//
//     void on_readable() override {
//       IoResult got = connection->read(loop.scratch());
//       ...
//       connection->want_read();          // once more
//     }
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/net/address.h"
#include "reverie/net/io_threads.h"
#include "reverie/net/tls.h"

namespace reverie {

// What a read or write did. Ok with no bytes and not at the end: nothing can be done now.
struct IoResult {
  std::size_t size_bytes = 0;
  bool is_end = false;  // the peer will send no more
  // UNAVAILABLE: this connection cannot be used any more. Another error: the next one would fail
  // too.
  Status status = {};
};

// Called on the loop's thread when a connection can be read or written again.
class ConnectionEvents {
 public:
  virtual ~ConnectionEvents() = default;
  virtual void on_readable() = 0;
  virtual void on_writable() = 0;
};

// Loop thread only, except loop() and the facts about the peer. Destroying it closes the
// connection.
class Connection {
 public:
  virtual ~Connection() = default;

  virtual IoLoop& loop() = 0;
  // Where the events go; set before the first want_*. `events` outlives the connection, and may
  // destroy it in an event.
  virtual void set_events(ConnectionEvents* events) = 0;

  virtual IoResult read(std::span<std::byte> into) = 0;
  // As read() into `first`, then into `second` if the connection supports it.
  virtual IoResult read_both(std::span<std::byte> first, std::span<std::byte>) {
    return read(first);
  }
  // Writes `pieces` in order; the result says how many bytes were taken.
  virtual IoResult write(std::span<const std::span<const std::byte>> pieces) = 0;
  // Whether write() may be called on other threads too, one at a time and never while the
  // connection is being destroyed: its owner needs a lock for that.
  virtual bool can_write_on_any_thread() const { return false; }

  // Unix sockets carry descriptors besides bytes. From here on a few received descriptors are kept;
  // those not taken are closed with the connection. False: this connection carries none.
  virtual bool accept_descriptors() { return false; }
  virtual bool accepts_descriptors() const { return false; }
  // The next descriptor that came with the bytes read; the caller owns it. -1 if there is none.
  virtual int take_descriptor() { return -1; }
  // As write() of one piece, with a descriptor attached to its first byte; it stays the caller's.
  virtual IoResult write_with_descriptor(std::span<const std::byte> piece, int descriptor);

  // Both sides see the end of the stream; may be called wherever write() may.
  virtual void shut_down() {}

  // Asks for one on_readable() or on_writable(). Asking again before it came changes nothing.
  virtual void want_read() = 0;
  virtual void want_write() = 0;

  // Whether the peer is on this machine, and its name for messages.
  virtual bool is_peer_local() const = 0;
  virtual bool is_unix() const { return false; }
  virtual std::string peer() const = 0;

  // With TLS: whether the handshake has ended, and after it the ALPN protocol and the common name
  // of the peer's certificate, each empty if there is none.
  virtual bool is_encrypted() const { return false; }
  virtual bool is_handshake_done() const { return true; }
  virtual std::string protocol() const { return {}; }
  virtual std::string peer_name() const { return {}; }

  // Whether read() may be called on other threads than the loop's too, one at a time and never
  // while the connection is destroyed.
  virtual bool can_read_on_any_thread() const { return false; }
};

// The two ends of a connection within this process. RESOURCE_EXHAUSTED if no descriptors are left.
struct ConnectionPair {
  std::unique_ptr<Connection> first;
  std::unique_ptr<Connection> second;
};
Result<ConnectionPair> make_connection_pair(IoLoop& first, IoLoop& second);

// A connection over a connected socket, which it then owns. With `tls` it speaks TLS, as a server
// or a client as the context says; the handshake takes place in read() and write().
std::unique_ptr<Connection> make_connection(IoLoop& loop, int socket, const SocketAddress& peer,
                                            std::shared_ptr<const TlsContext> tls = nullptr,
                                            const std::string& server_name = {});

// Connects to the first address that answers. `done` is called once, on the loop's thread:
// UNAVAILABLE when none answers, NOT_FOUND when no process listens at an abstract Unix socket
// ("unix:@name"), DEADLINE_EXCEEDED after `timeout`. Returns a handle; destroying it cancels the
// attempt and `done`. With `uses_local_door` the Unix socket of an address of this machine is tried
// first (local_door.h). REQUIRES: on the loop's thread, destruction too.
class ConnectAttempt;
struct ConnectAttemptDeleter {
  void operator()(ConnectAttempt* attempt) const;
};
using ConnectHandle = std::unique_ptr<ConnectAttempt, ConnectAttemptDeleter>;
ConnectHandle connect(IoLoop& loop, const Endpoint& endpoint, std::shared_ptr<const TlsContext> tls,
                      std::string server_name, Duration timeout,
                      std::function<void(Result<std::unique_ptr<Connection>>)> done,
                      bool uses_local_door = false);

}  // namespace reverie
