// What both ends of a gRPC call share: metadata, limits, and how a call's stream is steered.
//
// Bytes only: what a message means is for the service above. Every event of a call comes on the I/O
// thread of its connection, one at a time; every method of a call may be used from any thread, from
// within an event too, and never waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/grpc/grpc_message.h"

namespace reverie {

// Names are lower-case. A name that ends in "-bin" carries raw bytes (base64 on the wire).
using GrpcMetadata = std::vector<std::pair<std::string, std::string>>;

// Bounds of one connection. What exceeds one ends the call, or where it cannot be told whose fault
// it is the connection, with RESOURCE_EXHAUSTED; other connections notice nothing.
struct GrpcLimits {
  // One received message, before and after it is inflated. At most 2^32 - 1.
  std::size_t message_bytes_max = std::size_t{1} << 30;
  // All that is held for a connection, in both directions (ConnectionBudget): messages received in
  // part, or whole and not handed on, metadata and calls; messages that wait to be sent, and what
  // was drawn for them. Nothing further is asked for or made beyond it; one message passes alone.
  std::size_t connection_bytes_max = std::size_t{1} << 30;
  // What one call may have queued for a peer that does not read. A message is taken as long as less
  // than this is queued before it.
  std::size_t queued_bytes_max = std::size_t{64} << 20;
  // A call has room for a further message while less than this is queued.
  std::size_t room_bytes = std::size_t{1} << 20;
  // Names and values of a call's metadata, with 32 bytes for each pair.
  std::size_t metadata_bytes_max = std::size_t{16} << 10;
  // Calls of one connection at a time. Waiting calls hold a place.
  std::uint32_t call_count_max = 1024;
  // What a peer may send ahead of the reader: for a call; for those few calls of a connection whose
  // messages are longer; and for a connection.
  std::uint32_t call_window_bytes = 256u << 10;
  std::uint32_t long_call_window_bytes = 4u << 20;
  std::uint32_t connection_window_bytes = 64u << 20;
};

// A call's stream as both ends see it. Made and held by the transport; hold it by shared_ptr.
// Thread-safe. Nothing happens once the call is over.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;

  // No further message is handed on, except one that is on its way, and the peer is let send no
  // more than its window, until resume_reading().
  virtual void pause_reading() = 0;
  virtual void resume_reading() = 0;

  // Bytes that were written and are not on their way into the socket.
  virtual std::size_t queued_bytes() const = 0;
  // Whether a further message should be made now; if not, on_room() tells when.
  virtual bool has_room() const = 0;
  // Whether on_end() is near: what is written now goes nowhere.
  virtual bool is_over() const = 0;
};

// Where a call's events go: on its I/O thread, one at a time, and never from within a method of the
// call.
class GrpcCallEvents {
 public:
  virtual ~GrpcCallEvents() = default;
  // A client's call has a connection: it is on its way. Not called for a call that never has one.
  virtual void on_connected() {}
  virtual void on_message(Ref<GrpcMessage> message) = 0;
  virtual void on_half_close() {}
  // There is room again, after has_room() was false.
  virtual void on_room() {}
  virtual void on_end(const Status& status) = 0;
};

}  // namespace reverie
