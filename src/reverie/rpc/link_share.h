// The shared memory of a link: how two peers of one host find out that they are, and what they use.
//
//     each side                                           the other
//     SHARE    a memfd beside it, over the Unix socket    -->  maps it, and reads its nonce
//              <--                                        SHARED   the nonce
//     SWITCH   the last frame on the socket               -->  reads the ring from here on
//     BELL     when the other side sleeps                 -->  wakes up
//
// The nonce that comes back is the proof that both see the same memory: a socket alone may lead
// through a proxy to another machine. Each side writes to the ring in its own memory and reads the
// ring in the other's. The socket stays for bells, and its end is the end of the link. Where any of
// it fails, frames stay on the socket.
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

  int fd() const { return mine_.fd(); }
  // The other side has mapped this side's memory: its descriptor is not needed any more.
  void set_confirmed() { mine_.close_fd(); }
  const ShareNonce& nonce() const { return nonce_; }
  // Maps the other side's memory, and gives the nonce that lies there. INVALID_ARGUMENT for what is
  // no such memory.
  Result<ShareNonce> open(int fd);
  bool is_open() const { return in_.has_value(); }

  RingWriter& out() { return out_; }
  // REQUIRES: is_open().
  RingReader& in() { return *in_; }

 private:
  LinkShare(SharedMemory mine, const ShareNonce& nonce);

  const ShareNonce nonce_;
  SharedMemory mine_;
  std::optional<SharedMemory> theirs_;
  RingWriter out_;
  std::optional<RingReader> in_;
};

}  // namespace reverie
