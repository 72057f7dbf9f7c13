// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/grpc_stream.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "reverie/grpc/grpc_session.h"

namespace reverie {

GrpcStream::GrpcStream(std::shared_ptr<GrpcHub> hub, const GrpcLimits& limits, bool is_counted)
    : hub_(std::move(hub)), limits_(limits), is_counted_(is_counted) {}

void GrpcStream::send_message(GrpcPayload payload) {
  if (has_ended() || has_overflowed_.load(std::memory_order_relaxed)) return;
  const std::size_t size = payload.size_bytes() + SendQueue::kPrefixBytes;
  const std::size_t before = queued_bytes_.fetch_add(size);
  if (before >= limits_.queued_bytes_max || payload.size_bytes() > UINT32_MAX) {
    if (has_overflowed_.exchange(true)) return;
    request(GrpcRequest::Kind::kOverflow,
            payload.size_bytes() > UINT32_MAX
                ? resource_exhausted("a message of {} bytes is larger than gRPC can frame, {}",
                                     payload.size_bytes(), UINT32_MAX)
                : resource_exhausted("{} bytes wait for a peer that does not read them; the bound "
                                     "is {} (queued_bytes_max)",
                                     before, limits_.queued_bytes_max));
    return;
  }
  if (is_counted_) budget_->add_queued(size + kMessageOverheadBytes);
  hub_->submit({shared_from_this(), GrpcRequest::Kind::kWrite, std::move(payload), {}});
}

void GrpcStream::request(GrpcRequest::Kind kind, Status status) {
  if (has_ended()) return;
  hub_->submit({shared_from_this(), kind, {}, std::move(status)});
}

void GrpcStream::pause() {
  is_paused_.store(true, std::memory_order_relaxed);
}

void GrpcStream::resume() {
  if (is_paused_.exchange(false)) request(GrpcRequest::Kind::kResume);
}

bool GrpcStream::ask_for_room(bool is_to_draw) {
  if (has_ended()) return false;
  if (queued_bytes_.load() >= limits_.room_bytes) {
    wants_room_.store(true);
    // The queue may have become empty between the two checks, when no notification was requested.
    if (queued_bytes_.load() >= limits_.room_bytes || !wants_room_.exchange(false)) return false;
  }
  if (has_connection_room(is_to_draw)) return true;
  wants_room_.store(true);
  // The I/O thread checks whether there is room by then.
  if (!(is_to_draw ? awaits_to_draw_ : awaits_to_send_).exchange(true)) {
    request(is_to_draw ? GrpcRequest::Kind::kAwaitRoomToDraw : GrpcRequest::Kind::kAwaitRoomToSend);
  }
  return false;
}

void GrpcStream::carry_out(GrpcRequest& request) {
  switch (request.kind) {
    case GrpcRequest::Kind::kWrite:
      if (has_ended() || is_last_queued()) {
        const std::size_t size = request.payload.size_bytes() + SendQueue::kPrefixBytes;
        queued_bytes_.fetch_sub(size);
        if (is_counted_) budget_->give_back_queued(size + kMessageOverheadBytes);
        return;
      }
      out_.push(std::move(request.payload));
      on_first_write();
      wake_sender();
      return;
    case GrpcRequest::Kind::kResume:
      deliver();
      return;
    case GrpcRequest::Kind::kAwaitRoomToSend:
    case GrpcRequest::Kind::kAwaitRoomToDraw:
      if (session_ != nullptr) {
        session_->await_room(shared_from_this(),
                             request.kind == GrpcRequest::Kind::kAwaitRoomToDraw);
      }
      return;
    case GrpcRequest::Kind::kOverflow:
      if (!has_ended()) on_overflow(request.status);
      return;
    default:
      REVERIE_CHECK(false);  // handled by the derived class
  }
}

void GrpcStream::attach(GrpcSession& session, std::int32_t id) {
  session_ = &session;
  id_ = id;
  budget_ = session.budget();
  if (is_counted_) budget_->add_in(kCallBytes);
  in_.emplace(limits_.message_bytes_max, session.pool(), budget_);
}

void GrpcStream::detach() {
  if (session_ == nullptr) return;
  session_->note_message_end(*this);
  drop_unsent();
  std::exchange(session_, nullptr)->forget(*this);
}

void GrpcStream::drop_unsent() {
  if (is_counted_ && budget_) {
    budget_->give_back_queued(out_.size_bytes() + out_.message_count() * kMessageOverheadBytes);
  }
  queued_bytes_.fetch_sub(out_.size_bytes());
  out_.abandon(session_ != nullptr ? &session_->batch() : nullptr);
}

void GrpcStream::wake_sender() {
  if (session_ == nullptr) return;
  if (std::exchange(is_deferred_, false)) nghttp2_session_resume_data(session_->http2(), id_);
  hub_->touch(*session_);
}

void GrpcStream::on_data(std::span<const std::byte> bytes) {
  nghttp2_session* const http2 = session_->http2();
  const std::size_t size = bytes.size();
  received_bytes_ += size;
  while (!bytes.empty() && !ignores_data_) {
    Ref<GrpcMessage> message;
    Status status = in_->feed(&bytes, &message);
    if (status.ok() && !message && session_ != nullptr) status = session_->check_received(*this);
    if (!status.ok()) {
      ignores_data_ = true;
      on_bad_message(status);
      break;
    }
    if (message) {
      if (session_ != nullptr) session_->note_message_end(*this);
      received_.push(std::move(message));
      deliver();
    }
  }
  if (session_ == nullptr) return;
  nghttp2_session_consume_connection(http2, size);
  deny_or_credit(size);
}

// Permits the peer to send more, but not while reading is paused, nor for a message for which the
// connection has no room yet.
void GrpcStream::deny_or_credit(std::size_t bytes) {
  if (ignores_data_ ||
      (!is_paused_.load(std::memory_order_relaxed) && session_->may_receive(*this))) {
    nghttp2_session_consume_stream(session_->http2(), id_,
                                   bytes + std::exchange(uncredited_bytes_, 0));
    session_->widen(*this);
    return;
  }
  if (std::exchange(uncredited_bytes_, uncredited_bytes_ + bytes) == 0 &&
      !is_paused_.load(std::memory_order_relaxed)) {
    session_->note_denied(*this);
  }
}

void GrpcStream::credit() {
  if (session_ == nullptr || uncredited_bytes_ == 0) return;
  deny_or_credit(std::exchange(uncredited_bytes_, 0));
  hub_->touch(*session_);
}

std::span<std::byte> GrpcStream::room() {
  return in_ && !ignores_data_ ? in_->room() : std::span<std::byte>();
}

void GrpcStream::deliver() {
  while (events_ && !received_.empty() && !is_paused_.load(std::memory_order_relaxed)) {
    Ref<GrpcMessage> message = received_.pop();
    in_->release(*message);
    events_->on_message(std::move(message));
  }
  if (is_paused_.load(std::memory_order_relaxed)) return;
  if (uncredited_bytes_ > 0 && session_ != nullptr) {
    nghttp2_session_consume_stream(session_->http2(), id_, std::exchange(uncredited_bytes_, 0));
    hub_->touch(*session_);
  }
  if (!received_.empty()) return;
  if (events_ && std::exchange(has_half_close_, false)) events_->on_half_close();
  if (events_ && end_) end(*std::exchange(end_, std::nullopt));
}

void GrpcStream::note_half_close() {
  has_half_close_ = true;
  deliver();
}

void GrpcStream::drop_received() {
  while (!received_.empty()) in_->release(*received_.pop());
  if (in_) in_->reset();
  ignores_data_ = true;
  if (session_ != nullptr) session_->note_message_end(*this);
  if (uncredited_bytes_ > 0 && session_ != nullptr) {
    nghttp2_session_consume_stream(session_->http2(), id_, std::exchange(uncredited_bytes_, 0));
    hub_->touch(*session_);
  }
}

void GrpcStream::end(const Status& status) {
  is_over_.store(true, std::memory_order_release);
  deadline_.reset();
  drop_received();
  const auto events = std::move(events_);
  events_ = nullptr;
  if (!events) return;
  events->on_end(status);
  on_ended();
}

void GrpcStream::end_after_messages(const Status& status) {
  if (!end_) end_ = status;
  deliver();
}

void GrpcStream::set_deadline(TimePoint deadline) {
  if (deadline == TimePoint::max()) return;
  deadline_ = std::make_unique<LoopTimer>(hub_->loop());
  deadline_->start(deadline - Clock::system().now(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->hub_->run([&self] { self->on_deadline(); });
  });
}

std::size_t GrpcStream::on_send(std::size_t length, std::uint32_t* flags) {
  const std::size_t size = std::min(length, out_.size_bytes());
  if (size == out_.size_bytes() && is_last_queued()) {
    on_all_sent(flags);
    return size;
  }
  is_deferred_ = size == 0;
  return size;
}

void GrpcStream::take_sent(std::size_t length, OutBatch& batch) {
  const std::size_t messages = out_.message_count();
  out_.take(length, batch);
  const std::size_t left = queued_bytes_.fetch_sub(length) - length;
  if (is_counted_) {
    budget_->give_back_queued(length + (messages - out_.message_count()) * kMessageOverheadBytes);
  }
  if (left < limits_.room_bytes && wants_room_.load()) session_->note_room(shared_from_this());
}

void GrpcStream::tell_room() {
  if (!wants_room_.exchange(false)) return;
  if (queued_bytes_.load() >= limits_.room_bytes) {
    wants_room_.store(true);
    return;
  }
  if (events_) events_->on_room();
}

void GrpcStream::tell_connection_room(bool is_to_draw) {
  (is_to_draw ? awaits_to_draw_ : awaits_to_send_).store(false);
  tell_room();
}

}  // namespace reverie
