// What both ends of a gRPC call share: metadata, limits, and control of a call's stream.
//
// Messages are bytes here: their meaning is up to the service above. Every event of a call is
// delivered on the I/O thread of its connection, one at a time; every method of a call may be used
// from any thread, also within an event, and never waits.
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

// Names are lower-case. The value of a name that ends in "-bin" is raw bytes (base64 on the wire).
using GrpcMetadata = std::vector<std::pair<std::string, std::string>>;

// Bounds of one connection. Exceeding one ends the call, or the connection if the call at fault is
// unknown, with RESOURCE_EXHAUSTED; other connections are not affected.
struct GrpcLimits {
  // One received message, before and after decompression. At most 2^32 - 1.
  std::size_t message_bytes_max = std::size_t{1} << 30;
  // All that is held for a connection, in both directions (ConnectionBudget): messages received but
  // not delivered, metadata and calls; messages that wait to be sent, and samples drawn for them.
  // Beyond it nothing more is requested or made; one message may exceed it.
  std::size_t connection_bytes_max = std::size_t{1} << 30;
  // What one call may have queued for a peer that does not read. A message is accepted if less than
  // this is queued before it.
  std::size_t queued_bytes_max = std::size_t{64} << 20;
  // A call has room for a further message while less than this is queued.
  std::size_t room_bytes = std::size_t{1} << 20;
  // Names and values of a call's metadata, plus 32 bytes for each pair.
  std::size_t metadata_bytes_max = std::size_t{16} << 10;
  // Concurrent calls of one connection. Waiting calls count.
  std::uint32_t call_count_max = 1024;
  // How much a peer may send ahead of the reader: per call; per call, for those few calls of a
  // connection that have long messages; and per connection.
  std::uint32_t call_window_bytes = 256u << 10;
  std::uint32_t long_call_window_bytes = 4u << 20;
  std::uint32_t connection_window_bytes = 64u << 20;
};

// A call's stream as both ends see it. The transport makes and holds it; users hold it by
// shared_ptr. Thread-safe. Methods have no effect once the call is over.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;

  // No further message is delivered, except one that is being delivered, and the peer can send no
  // more than its window, until resume_reading().
  virtual void pause_reading() = 0;
  virtual void resume_reading() = 0;

  // Bytes that were written and not yet passed to the socket.
  virtual std::size_t queued_bytes() const = 0;
  // Whether another message should be made now; if not, on_room() is called when it should.
  virtual bool has_room() const = 0;
  // Whether the call is ending: what is written now is dropped.
  virtual bool is_over() const = 0;
};

// Receives a call's events: on its I/O thread, one at a time, and never from within a method of the
// call.
class GrpcCallEvents {
 public:
  virtual ~GrpcCallEvents() = default;
  // A client's call was assigned a connection. Not called for a call that never gets one.
  virtual void on_connected() {}
  virtual void on_message(Ref<GrpcMessage> message) = 0;
  virtual void on_half_close() {}
  // There is room again, after has_room() was false.
  virtual void on_room() {}
  virtual void on_end(const Status& status) = 0;
};

}  // namespace reverie
