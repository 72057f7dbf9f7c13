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
  // Given a connected socket to own, on the loop's thread.
  using Accept = std::function<void(int socket, const SocketAddress& peer)>;
  // Called on that thread while connections wait that cannot be accepted, as the process has no
  // descriptors left: they are tried again a moment later.
  using Scarce = std::function<void()>;

  // Listens at `address`; port 0 takes a free one. ALREADY_EXISTS when another socket does: a port
  // is never shared. A Unix socket that a dead process left behind is taken over. A socket's file
  // is removed at the end, and only its owner may connect; at the door beside a TCP address
  // (local_door.h) the peers of other users are hung up on.
  static Result<std::unique_ptr<Listener>> open(IoLoop& loop, const SocketAddress& address,
                                                Accept accept, Scarce when_scarce = nullptr);
  // Whether open() may succeed there, as far as can be known without listening: the address is one
  // of this machine's, and a socket's file can be made. Does not look whether another socket
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
