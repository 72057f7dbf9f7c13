// A socket that peers connect to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "reverie/base/fork.h"
#include "reverie/base/status.h"
#include "reverie/net/address.h"
#include "reverie/net/io_threads.h"

namespace reverie {

// Accepts until destroyed. Thread-safe; not to be destroyed on its loop's thread.
class Listener {
 public:
  // Called on the loop's thread with a connected socket, which it then owns. The peer's address is
  // one of IPv4 if that is how it connects, also where the listener's is one of IPv6.
  using Accept = std::function<void(int socket, const SocketAddress& peer)>;
  // Called on that thread when waiting connections cannot be accepted because the process has no
  // descriptors left; the listener tries again a moment later.
  using Scarce = std::function<void()>;

  // Listens at `address`; port 0 takes a free one. ALREADY_EXISTS if another socket listens there:
  // a port is never shared. A Unix socket that a dead process left behind is taken over. A socket's
  // file is removed at the end, and only its owner may connect; at the local door of a TCP address
  // (local_door.h) peers of other users are disconnected. The wildcard address of IPv6 accepts IPv4
  // too, whatever the system's default.
  static Result<std::unique_ptr<Listener>> open(IoLoop& loop, const SocketAddress& address,
                                                Accept accept, Scarce when_scarce = nullptr);
  // Whether open() may succeed, as far as can be known without listening: the address is one of
  // this machine's, and a socket's file can be created. Does not check whether another socket
  // listens there.
  static Status check(const SocketAddress& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // With the port that was chosen.
  const SocketAddress& address() const;
  // No connection is accepted after it returns. Idempotent.
  void close();

 private:
  class Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  ForkGuard fork_guard_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
