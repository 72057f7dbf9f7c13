// One HTTP/2 connection that carries gRPC calls: nghttp2's session over a Connection.
//
//     socket --> scratch --> nghttp2 --> GrpcStream (copies into its message)
//     socket --> the message, once it is known which, and that much of it comes
//     GrpcStream --> nghttp2 (frames, windows) --> OutBatch --> socket
//
// nghttp2 frames, compresses headers and counts windows; it does no I/O, and copies no payload. A
// batch is filled when the one before it is written, so a peer that does not read occupies only one
// batch; everything else waits in the calls' queues.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "reverie/base/fifo_queue.h"
#include "reverie/base/stat_counter.h"
#include "reverie/grpc/grpc_call.h"
#include "reverie/grpc/grpc_hub.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/grpc/message_reader.h"
#include "reverie/grpc/out_batch.h"
#include "reverie/net/connection.h"

struct nghttp2_session;

namespace reverie {

class GrpcStream;

using GrpcHeaders = std::vector<std::pair<std::string_view, std::string_view>>;

// Used on its connection's I/O thread only.
class GrpcSession : public ConnectionEvents, public std::enable_shared_from_this<GrpcSession> {
 public:
  enum class Role { kServer, kClient };
  GrpcSession(Role role, std::shared_ptr<GrpcHub> hub, std::unique_ptr<Connection> connection,
              const GrpcLimits& limits, Ref<MessagePool> pool,
              std::shared_ptr<ByteBudget> of_all = nullptr);
  ~GrpcSession() override;

  // Starts the HTTP/2 connection. `received` was read from it before.
  void start(std::string_view received);
  // Ends the connection now: its calls with `why`, after one attempt to send what is ready.
  void close(const Status& why);
  // Announces the end with GOAWAY; once the peer has seen it, accepts no further call.
  void say_goodbye();
  bool is_open() const { return connection_ != nullptr; }
  // Sends what can be sent.
  void flush();

  // For streams.
  nghttp2_session* http2() { return http2_; }
  Connection& connection() { return *connection_; }
  const Ref<MessagePool>& pool() const { return pool_; }
  const std::shared_ptr<ConnectionBudget>& budget() const { return budget_; }
  OutBatch& batch() { return batch_; }
  // Begins a request, whose body comes from the stream. An error if no more can begin here.
  Status submit_request(const GrpcHeaders& headers, std::shared_ptr<GrpcStream> stream);
  // Begins a response: with a body from the stream, or with headers only.
  void submit_response(const GrpcHeaders& headers, GrpcStream& stream, bool has_body);
  void submit_trailers(const GrpcHeaders& headers, GrpcStream& stream);
  void submit_reset(GrpcStream& stream, std::uint32_t error_code);
  // Whether the peer's window lets the stream send now.
  bool is_window_open(const GrpcStream& stream) const;
  // The peer's limit on a call's headers.
  std::size_t header_bytes_max() const;
  void forget(const GrpcStream& stream);
  void note_room(std::shared_ptr<GrpcStream> stream) { has_room_.push_back(std::move(stream)); }
  // Notifies the stream when the connection may hold more.
  void await_room(std::shared_ptr<GrpcStream> stream, bool is_to_draw);

  // Checks received data. While the connection holds too much, one message at a time may proceed;
  // other calls may receive what their windows allowed before, and no more.
  Status check_received(const GrpcStream& stream);
  bool may_receive(const GrpcStream& stream) const;
  void note_denied(const GrpcStream& stream);
  void note_message_end(const GrpcStream& stream);
  // Gives a stream with long messages a larger window, which is faster; only a few calls get one.
  void widen(const GrpcStream& stream);
  std::size_t stream_count() const { return streams_.size(); }
  std::vector<std::shared_ptr<GrpcStream>> streams() const;
  // Readable on any thread.
  std::uint64_t received_bytes() const { return received_bytes_.count(); }
  std::uint64_t sent_bytes() const { return batch_.sent_bytes(); }

 protected:
  // A call of the peer begins; null refuses it. Servers only.
  virtual std::shared_ptr<GrpcStream> on_call() { return nullptr; }
  // The peer's preface has arrived.
  virtual void on_ready() {}
  // A call has begun: its headers have arrived. on_idle(): the last has ended. Servers only.
  virtual void on_call_begun() {}
  virtual void on_idle() {}
  // The peer accepts no further calls.
  virtual void on_goaway() {}
  // Called once, when the connection is closed and every stream has been notified.
  virtual void on_close(const Status& why) = 0;

  std::shared_ptr<GrpcHub> hub_;
  const GrpcLimits& limits_;

 private:
  friend class GrpcHub;
  struct Callbacks;  // grpc_session_callbacks.cc
  static constexpr std::array<std::uint8_t, 8> kGoodbyePing = {'g', 'o', 'o', 'd',
                                                               'b', 'y', 'e', '.'};
  // nghttp2's half of a session.
  static nghttp2_session* open_http2(Role role, GrpcSession& session);

  void on_readable() override;
  void on_writable() override;
  // Where to read to: the loop's scratch, or an incomplete long message and then the
  // scratch.
  struct ReadPlaces {
    std::span<std::byte> message;
    std::span<std::byte> scratch;
  };
  ReadPlaces places_to_read();
  // Gives nghttp2 the first `size_bytes` of what was read there; as receive().
  bool receive(const ReadPlaces& places, std::size_t size_bytes);
  // Gives nghttp2 what was read; false when the connection cannot be used any more.
  bool receive(std::span<const std::byte> bytes);
  // False if there is no memory.
  bool fill();
  void note_reset();
  void tell_room();
  void credit_denied();
  void want_read();

  const Role role_;
  std::unique_ptr<Connection> connection_;
  nghttp2_session* http2_ = nullptr;
  Ref<MessagePool> pool_;
  const std::shared_ptr<ConnectionBudget> budget_;
  std::unordered_map<std::int32_t, std::shared_ptr<GrpcStream>> streams_;
  std::vector<std::shared_ptr<GrpcStream>> has_room_;
  // Calls that wait for room in the connection: to send what they have, or to draw.
  FifoQueue<std::shared_ptr<GrpcStream>> waits_to_send_;
  FifoQueue<std::shared_ptr<GrpcStream>> waits_to_draw_;
  std::int32_t passing_ = 0;           // stream whose message may exceed the bound
  FifoQueue<std::int32_t> denied_;     // streams whose messages must wait for that
  std::vector<std::int32_t> widened_;  // streams with the larger window
  OutBatch batch_;
  // The DATA frame that is being received, while its stream takes it.
  std::int32_t data_stream_ = 0;
  std::size_t data_bytes_ = 0;
  std::size_t data_left_ = 0;
  bool was_read_in_place_ = false;
  bool is_blocked_ = false;  // the socket accepts no more
  bool is_ready_ = false;
  bool is_flush_due_ = false;  // waits in the hub to be flushed
  bool is_goaway_sent_ = false;
  StatCounter received_bytes_;
  // Resets are counted over short periods.
  std::uint32_t reset_count_ = 0;
  TimePoint reset_span_end_;
  bool is_slowed_ = false;
  std::unique_ptr<LoopTimer> slow_timer_;
};

}  // namespace reverie
