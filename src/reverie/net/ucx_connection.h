// A connection whose bytes go over UCX (openucx.org): TCP, shared memory, InfiniBand, as UCX finds.
//
//     first                          socket                         second
//     OFFER  key, address of the worker       -->
//                                             <--   OFFER  key, address of the worker
//     READ   bytes taken by the reader        <-->  READ
//     END    bytes sent                       <-->  END
//                                      UCX
//     message  the other's key, offset, bytes <-->  message
//
// It wraps a connected socket, which says at once when the other process has ended, and carries the
// few control records above; everything else is messages between two workers of UCX. A side sends
// at most a window beyond what the other one has read, so neither holds more than that.
//
// UCX neither encrypts nor authenticates: the addresses come over the socket, so the caller has
// authenticated that before, and messages without the key that was sent there are ignored.
#pragma once

#include <memory>
#include <string>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/net/connection.h"

namespace reverie {

struct UcxOptions {
  // As UCX_TLS: "tcp", "shm,self", "rc". Empty: what the environment variable says, or all.
  std::string transports;
  // How long the offer of the other side, and then its first message, may take.
  Duration answer_max = std::chrono::seconds(1);
};

// UNIMPLEMENTED in a library that was built without UCX.
Status check_ucx();

// Takes `inner` over after both sides have read what they sent each other before: from here on only
// this connection reads and writes it. One side `is_first`, the other is not. What cannot be set up
// is reported by read(): UNAVAILABLE, also if the other side does not answer. REQUIRES:
// check_ucx().ok(), on the loop's thread, `inner` not encrypted.
std::unique_ptr<Connection> make_ucx_connection(std::unique_ptr<Connection> inner, bool is_first,
                                                const UcxOptions& options);

}  // namespace reverie
