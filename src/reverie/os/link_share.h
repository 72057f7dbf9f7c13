// The shared memory of a link: how two peers find out that they are on one host, and what they
// share.
//
//     each side                                           the other
//     SHARE    a memfd beside it, over the Unix socket    -->  maps it, and reads its nonce
//              <--                                        SHARED   the nonce
//     SWITCH   the last frame on the socket               -->  reads the ring from now on
//     BELL     when the other side sleeps                 -->  wakes up
//
// The nonce that comes back proves that both see the same memory: a socket may lead to another
// machine through a proxy. Each side writes to the ring in its own memory and reads the ring in the
// other's. The socket is still used for bells, and when it closes the link ends. If any step fails,
// frames stay on the socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "reverie/base/status.h"
#include "reverie/os/byte_ring.h"
#include "reverie/os/shared_memory.h"

namespace reverie {

using ShareNonce = std::array<std::uint64_t, 2>;

inline constexpr std::size_t kShareRingBytes = std::size_t{512} << 10;

// Not thread-safe, except for what the rings allow.
class LinkShare {
 public:
  // RESOURCE_EXHAUSTED without memory or descriptors.
  static Result<std::unique_ptr<LinkShare>> make(const ShareNonce& nonce);

  int fd() const { return own_memory_.fd(); }
  // The other side has mapped this side's memory: its descriptor is not needed any more.
  void set_confirmed() { own_memory_.close_fd(); }
  const ShareNonce& nonce() const { return nonce_; }
  // Maps the other side's memory, and returns the nonce in it. INVALID_ARGUMENT if it is not such
  // memory.
  Result<ShareNonce> open(int fd);
  bool is_open() const { return in_.has_value(); }

  // Shows the other side that the link has ended; that side may look before it hears of it.
  void end();
  bool has_peer_ended() const;

  RingWriter& out() { return out_; }
  // REQUIRES: is_open().
  RingReader& in() { return *in_; }

 private:
  LinkShare(SharedMemory mine, const ShareNonce& nonce);

  const ShareNonce nonce_;
  SharedMemory own_memory_;
  std::optional<SharedMemory> peer_memory_;
  RingWriter out_;
  std::optional<RingReader> in_;
};

}  // namespace reverie
