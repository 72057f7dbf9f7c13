// One call's stream, the part that both ends share: what waits to be sent, what was received, and
// how the call ends.
//
//     any thread   write() ... --> GrpcHub --> carry_out()
//     I/O thread   nghttp2 --> GrpcSession --> on_data() ... --> events
//
// A received message is delivered at once, unless reading is paused: then it is kept, and the
// peer's window of this stream is not reopened, so that the peer can send that much and no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/fifo_queue.h"
#include "reverie/grpc/grpc_call.h"
#include "reverie/grpc/grpc_hub.h"
#include "reverie/grpc/message_reader.h"
#include "reverie/grpc/send_queue.h"
#include "reverie/net/io_threads.h"

namespace reverie {

class GrpcSession;

class GrpcStream : public std::enable_shared_from_this<GrpcStream> {
 public:
  // `is_counted`: the call and what is written to it count for the connection. Such a call must be
  // attached before it is written to.
  GrpcStream(std::shared_ptr<GrpcHub> hub, const GrpcLimits& limits, bool is_counted);
  virtual ~GrpcStream() = default;

  // From any thread, as the calls' interfaces promise.
  void send_message(GrpcPayload payload);
  void request(GrpcRequest::Kind kind, Status status = {});
  void pause();
  void resume();
  std::size_t queue_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  bool ask_for_room() { return ask_for_room(/*is_to_draw=*/false); }
  bool ask_for_room(bool is_to_draw);
  bool has_ended() const { return is_over_.load(std::memory_order_acquire); }

  // Everything below: I/O thread only.

  virtual void carry_out(GrpcRequest& request);

  // From the session, in nghttp2's callbacks.
  virtual void on_header(std::string_view name, std::string_view value) = 0;
  virtual void on_headers_done() = 0;
  void on_data(std::span<const std::byte> bytes);
  // Where the next bytes of its data belong: MessageReader::room.
  std::span<std::byte> room();
  // The peer will send no more.
  virtual void on_peer_end() = 0;
  // The stream is closed; `error_code` is HTTP/2's.
  virtual void on_closed(std::uint32_t error_code) = 0;
  // How much of `length` can be sent now; sets nghttp2's data flags.
  std::size_t on_send(std::size_t length, std::uint32_t* flags);
  void take_sent(std::size_t length, OutBatch& batch);

  // The connection is lost, and the stream with it.
  virtual void on_lost(const Status& why) = 0;
  void tell_room();
  // The connection has, or may have, room for this stream, which waits for it.
  void tell_connection_room(bool is_to_draw);

  // The connection may hold more: more of the current message may be received.
  void credit();
  // How many bytes of the message that is being received are missing.
  std::size_t left_bytes() const { return in_ ? in_->left_bytes() : 0; }
  // Bytes received since the stream began.
  std::size_t received_bytes() const { return received_bytes_; }
  std::size_t here_bytes() const { return in_ ? in_->here_bytes() : 0; }

  void attach(GrpcSession& session, std::int32_t id);
  std::int32_t id() const { return id_; }
  // Whether the call has not ended yet.
  bool is_live() const { return events_ != nullptr; }

 protected:
  // Whether nothing is sent after what is queued: true lets the stream end, after any trailers.
  virtual bool is_last_queued() const = 0;
  // Everything written before the end was sent; adds flags for nghttp2.
  virtual void on_all_sent(std::uint32_t* flags) = 0;
  // A message of the peer violates a rule or a bound.
  virtual void on_bad_message(const Status& why) = 0;
  // The first message was written.
  virtual void on_first_write() = 0;
  // The call has ended with `why`, which must be sent to the peer.
  virtual void on_overflow(const Status& why) = 0;

  // Notifies the receiver of events that the call has ended. Idempotent.
  void end(const Status& status);
  // The same, after the messages that are still to be delivered.
  void end_after_messages(const Status& status);
  // Delivers the messages that are here, unless reading is paused.
  void deliver();
  void note_half_close();
  void drop_received();
  void set_deadline(TimePoint deadline);
  virtual void on_deadline() = 0;
  // Called once, after the last event.
  virtual void on_ended() {}
  bool is_attached() const { return session_ != nullptr; }
  // There is more to send: makes nghttp2 ask again.
  void wake_sender();
  void detach();
  // Approximate memory of a call besides its messages.
  static constexpr std::size_t kCallBytes = 2048;

  // Drops what waits to be sent.
  void drop_unsent();
  const std::shared_ptr<ConnectionBudget>& budget() const { return budget_; }

  std::shared_ptr<GrpcHub> hub_;
  const GrpcLimits limits_;  // a copy: a call may be held longer than its server
  std::shared_ptr<GrpcCallEvents> events_;
  GrpcSession* session_ = nullptr;  // while nghttp2 knows the stream
  std::int32_t id_ = 0;
  SendQueue out_;
  std::optional<MessageReader> in_;  // once attached
  std::shared_ptr<ConnectionBudget> budget_;
  bool is_deferred_ = false;  // nghttp2 was told that there is nothing to send
  bool ignores_data_ = false;

 private:
  // Memory of a message that waits to be sent, besides its bytes.
  static constexpr std::size_t kMessageOverheadBytes = 192;

  void deny_or_credit(std::size_t bytes);
  bool has_connection_room(bool is_to_draw) const {
    return !is_counted_ || (is_to_draw ? budget_->may_draw() : budget_->may_send());
  }

  const bool is_counted_;
  FifoQueue<Ref<GrpcMessage>> received_;
  std::size_t received_bytes_ = 0;
  // Bytes not yet returned to the peer's window because reading is paused or the connection holds
  // too much.
  std::size_t uncredited_bytes_ = 0;
  bool has_half_close_ = false;  // to be reported after the messages
  std::optional<Status> end_;    // likewise
  std::unique_ptr<LoopTimer> deadline_;

  std::atomic<std::size_t> queued_bytes_{0};
  std::atomic<bool> wants_room_{false};
  // Whether the session tells this stream when the connection has room to send, and to draw: two
  // waits, since a stream that began to wait for the one may meanwhile wait for the other.
  std::atomic<bool> awaits_to_send_{false};
  std::atomic<bool> awaits_to_draw_{false};
  std::atomic<bool> is_paused_{false};
  std::atomic<bool> is_over_{false};
  std::atomic<bool> has_overflowed_{false};
};

}  // namespace reverie
