// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/grpc_session.h"

#include <algorithm>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "reverie/grpc/grpc_stream.h"

namespace reverie {
namespace {

// Then it is the turn of the loop's other connections.
constexpr std::size_t kReadBytesAtOnce = std::size_t{768} << 10;
// Larger remainders of a message, or of a part of it, are read directly to their place, without a
// copy. The heads of parts, messages and frames after it come with the same read, which is kept
// short, since more of what follows may belong in place too. If what follows is unknown, small
// reads are used.
constexpr std::size_t kInPlaceBytesMin = std::size_t{24} << 10;
constexpr std::size_t kBehindBytes = std::size_t{1} << 10;
constexpr std::size_t kBetweenBytes = std::size_t{4} << 10;
constexpr int kBatchesAtOnce = 4;                   // likewise
constexpr std::uint32_t kFrameBytesMax = 1u << 20;  // of a received DATA frame
// A peer that resets calls faster is read with pauses. It is never disconnected for that: a client
// that ends each sample call by a reset is legitimate.
constexpr std::uint32_t kResetsPerSpan = 2000;
constexpr Duration kResetSpan = std::chrono::milliseconds(100);
// How many frames of HTTP/2 itself may wait for a peer that does not read, besides one for each
// call.
constexpr std::size_t kWaitingFramesMax = 4096;
// Whether the bytes are a TLS server's alert to a client without TLS.
bool is_tls_alert(std::span<const std::byte> bytes) {
  constexpr std::byte kAlertRecord{21};
  constexpr std::byte kMajorVersion{3};
  return bytes.size() >= 2 && bytes[0] == kAlertRecord && bytes[1] == kMajorVersion;
}

}  // namespace

GrpcSession::GrpcSession(Role role, std::shared_ptr<GrpcHub> hub,
                         std::unique_ptr<Connection> connection, const GrpcLimits& limits,
                         Ref<MessagePool> pool, std::shared_ptr<ByteBudget> of_all)
    : hub_(std::move(hub)),
      limits_(limits),
      role_(role),
      connection_(std::move(connection)),
      pool_(std::move(pool)),
      budget_(std::make_shared<ConnectionBudget>(limits_.connection_bytes_max, std::move(of_all))) {
  http2_ = open_http2(role, *this);
}

GrpcSession::~GrpcSession() {
  if (http2_ != nullptr) nghttp2_session_del(http2_);
}

void GrpcSession::start(std::string_view received) {
  const auto self = shared_from_this();
  budget_->set_on_room([hub = hub_, weak = weak_from_this()] {
    hub->loop().post([hub, weak] {
      if (const auto session = weak.lock()) hub->run([&] { hub->touch(*session); });
    });
  });
  hub_->run([&] {
    connection_->set_events(this);
    std::vector<nghttp2_settings_entry> settings = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits_.call_window_bytes},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kFrameBytesMax},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
         static_cast<std::uint32_t>(limits_.metadata_bytes_max)}};
    if (role_ == Role::kServer) {
      settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits_.call_count_max});
    } else {
      settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
    }
    nghttp2_submit_settings(http2_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
    nghttp2_session_set_local_window_size(
        http2_, NGHTTP2_FLAG_NONE, 0, static_cast<std::int32_t>(limits_.connection_window_bytes));
    hub_->touch(*this);
    if (!received.empty() && !receive(std::as_bytes(std::span(received)))) return;
    want_read();
  });
}

void GrpcSession::want_read() {
  if (connection_ && !is_slowed_) connection_->want_read();
}

void GrpcSession::on_readable() {
  const auto self = shared_from_this();
  hub_->run([this] {
    for (std::size_t read_bytes = 0; read_bytes < kReadBytesAtOnce && connection_;) {
      const ReadPlaces places = places_to_read();
      const IoResult got = places.message.empty()
                               ? connection_->read(places.scratch)
                               : connection_->read_both(places.message, places.scratch);
      if (!got.status.ok()) {
        close(got.status);
        return;
      }
      if (got.is_end) {
        close(unavailable("the connection to {} was closed by the peer", connection_->peer()));
        return;
      }
      if (got.size_bytes == 0) break;
      if (connection_->is_encrypted() && connection_->protocol() != "h2") {
        close(failed_precondition(
            "{} does not speak HTTP/2 (ALPN gave '{}'); see that a gRPC server listens there",
            connection_->peer(), connection_->protocol()));
        return;
      }
      read_bytes += got.size_bytes;
      if (!receive(places, got.size_bytes)) return;
      // A connection that cannot read to both places has filled the first.
      const std::size_t room_bytes = places.message.size() + places.scratch.size();
      const bool is_all = got.size_bytes < room_bytes && got.size_bytes != places.message.size();
      if (is_all || is_slowed_) break;
    }
    want_read();
  });
}

GrpcSession::ReadPlaces GrpcSession::places_to_read() {
  const std::span<std::byte> scratch = hub_->loop().scratch();
  if (data_left_ >= kBetweenBytes) {
    const auto stream = streams_.find(data_stream_);
    if (stream != streams_.end()) {
      const std::span<std::byte> room = stream->second->room();
      was_read_in_place_ = room.size() >= kInPlaceBytesMin;
      if (was_read_in_place_) {
        return {room.first(std::min(room.size(), data_left_)), scratch.first(kBehindBytes)};
      }
    }
  }
  return {{}, std::exchange(was_read_in_place_, false) ? scratch.first(kBetweenBytes) : scratch};
}

bool GrpcSession::receive(const ReadPlaces& places, std::size_t size_bytes) {
  const std::size_t in_message = std::min(size_bytes, places.message.size());
  if (in_message > 0 && !receive(places.message.first(in_message))) return false;
  if (size_bytes == in_message) return true;
  return connection_ && receive(places.scratch.first(size_bytes - in_message));
}

bool GrpcSession::receive(std::span<const std::byte> bytes) {
  if (role_ == Role::kClient && received_bytes_.count() == 0 && is_tls_alert(bytes)) {
    close(failed_precondition("{} speaks TLS, and this client does not; give it TLS too",
                              connection_->peer()));
    return false;
  }
  received_bytes_.add(bytes.size());
  hub_->touch(*this);  // acknowledgements and windows
  const ssize_t taken = nghttp2_session_mem_recv(
      http2_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (taken >= 0 && is_blocked_ &&
      nghttp2_session_get_outbound_queue_size(http2_) > kWaitingFramesMax + streams_.size()) {
    close(resource_exhausted("{} does not read its responses", connection_->peer()));
    return false;
  }
  if (taken >= 0) return true;
  const auto error = static_cast<int>(taken);
  if (error != NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
    nghttp2_session_terminate_session(http2_, NGHTTP2_PROTOCOL_ERROR);
  }
  close(unavailable("the connection to {} broke HTTP/2's rules: {}", connection_->peer(),
                    nghttp2_strerror(error)));
  return false;
}

void GrpcSession::on_writable() {
  const auto self = shared_from_this();
  hub_->run([this] {
    is_blocked_ = false;
    if (connection_) hub_->touch(*this);
  });
}

bool GrpcSession::fill() {
  while (!batch_.is_full()) {
    const std::uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(http2_, &data);
    if (size < 0) return false;
    if (size == 0) return true;
    batch_.append_copy(std::as_bytes(std::span(data, static_cast<std::size_t>(size))));
  }
  return true;
}

void GrpcSession::flush() {
  if (!connection_ || is_blocked_) return;
  for (int i = 0; i < kBatchesAtOnce; ++i) {
    if (batch_.empty() && !fill()) {
      close(resource_exhausted("no memory to continue the connection to {}", connection_->peer()));
      return;
    }
    if (batch_.empty()) break;
    Status why;
    const OutBatch::Outcome outcome = batch_.write_to(*connection_, &why);
    if (outcome == OutBatch::Outcome::kLost) {
      close(why);
      return;
    }
    if (outcome == OutBatch::Outcome::kBlocked) {
      is_blocked_ = true;
      connection_->want_write();
      break;
    }
    if (i + 1 == kBatchesAtOnce) hub_->touch(*this);
  }
  std::vector<std::shared_ptr<GrpcStream>> has_room;
  has_room.swap(has_room_);
  for (const auto& stream : has_room) stream->tell_room();
  if (!waits_to_send_.empty() || !waits_to_draw_.empty()) tell_room();
  if (!denied_.empty()) credit_denied();
  if (batch_.empty() && nghttp2_session_want_read(http2_) == 0 &&
      nghttp2_session_want_write(http2_) == 0) {
    close(unavailable("the connection to {} was closed", connection_->peer()));
  }
}

void GrpcSession::close(const Status& why) {
  if (!connection_) return;
  const auto self = shared_from_this();
  if (!is_blocked_) {
    // Sends what is ready, such as the reason of a hang-up, as far as possible.
    if (batch_.empty()) (void)fill();
    Status ignored;
    if (!batch_.empty()) batch_.write_to(*connection_, &ignored);
  }
  connection_.reset();
  slow_timer_.reset();
  auto streams = std::move(streams_);
  streams_.clear();
  for (const auto& [id, stream] : streams) stream->on_lost(why);
  has_room_.clear();
  waits_to_send_.clear();
  waits_to_draw_.clear();
  nghttp2_session_del(std::exchange(http2_, nullptr));
  on_close(why);
}

void GrpcSession::await_room(std::shared_ptr<GrpcStream> stream, bool is_to_draw) {
  (is_to_draw ? waits_to_draw_ : waits_to_send_).push(std::move(stream));
  hub_->touch(*this);
}

// Each stream that waits now is notified at most once: one that finds no room waits again, as the
// last.
void GrpcSession::tell_room() {
  for (std::size_t n = waits_to_send_.size(); n > 0 && budget_->may_send(); --n) {
    waits_to_send_.pop()->tell_connection_room(/*is_to_draw=*/false);
  }
  for (std::size_t n = waits_to_draw_.size(); n > 0 && budget_->may_draw(); --n) {
    waits_to_draw_.pop()->tell_connection_room(/*is_to_draw=*/true);
  }
  if (waits_to_send_.empty() && waits_to_draw_.empty()) return;
  budget_->await_room(!waits_to_send_.empty(), !waits_to_draw_.empty());
}

Status GrpcSession::check_received(const GrpcStream& stream) {
  if (!budget_->is_in_full()) return {};
  if (passing_ == 0) passing_ = stream.id();
  if (passing_ == stream.id()) return budget_->check_in_all(0);
  const auto passing = streams_.find(passing_);
  return budget_->check_in(0, passing == streams_.end() ? 0 : passing->second->here_bytes());
}

bool GrpcSession::may_receive(const GrpcStream& stream) const {
  return stream.left_bytes() == 0 || passing_ == stream.id() || !budget_->is_in_full();
}

void GrpcSession::note_denied(const GrpcStream& stream) {
  denied_.push(stream.id());
}

void GrpcSession::note_message_end(const GrpcStream& stream) {
  if (passing_ == stream.id()) passing_ = 0;
}

void GrpcSession::credit_denied() {
  for (std::size_t n = denied_.size(); n > 0; --n) {
    const bool is_full = budget_->is_in_full();
    if (is_full && passing_ != 0) return;
    const std::int32_t id = denied_.pop();
    const auto found = streams_.find(id);
    if (found == streams_.end()) continue;
    if (is_full && found->second->left_bytes() > 0) passing_ = id;
    const auto stream = found->second;
    stream->credit();
  }
}

void GrpcSession::widen(const GrpcStream& stream) {
  const bool is_long = stream.left_bytes() >= limits_.call_window_bytes / 2;
  if ((!is_long && stream.received_bytes() < limits_.call_window_bytes) ||
      limits_.long_call_window_bytes <= limits_.call_window_bytes ||
      std::ranges::find(widened_, stream.id()) != widened_.end()) {
    return;
  }
  const auto set_window = [this](std::int32_t id, std::uint32_t bytes) {
    nghttp2_session_set_local_window_size(http2_, NGHTTP2_FLAG_NONE, id,
                                          static_cast<std::int32_t>(bytes));
  };
  if (widened_.size() >=
      std::max<std::size_t>(1, limits_.connection_bytes_max / 2 / limits_.long_call_window_bytes)) {
    if (!is_long) return;
    const auto idle = std::ranges::find_if(widened_, [this](std::int32_t id) {
      const auto other = streams_.find(id);
      return other == streams_.end() || other->second->left_bytes() == 0;
    });
    if (idle == widened_.end()) return;
    if (streams_.contains(*idle)) set_window(*idle, limits_.call_window_bytes);
    widened_.erase(idle);
  }
  widened_.push_back(stream.id());
  set_window(stream.id(), limits_.long_call_window_bytes);
}

void GrpcSession::say_goodbye() {
  if (!connection_ || std::exchange(is_goaway_sent_, true)) return;
  nghttp2_submit_shutdown_notice(http2_);
  nghttp2_submit_ping(http2_, NGHTTP2_FLAG_NONE, kGoodbyePing.data());
  hub_->touch(*this);
}

void GrpcSession::note_reset() {
  if (role_ == Role::kClient || ++reset_count_ <= kResetsPerSpan) return;
  const TimePoint now = Clock::system().now();
  reset_count_ = 0;
  if (now >= std::exchange(reset_span_end_, now + kResetSpan) || is_slowed_) return;
  is_slowed_ = true;
  if (!slow_timer_) slow_timer_ = std::make_unique<LoopTimer>(hub_->loop());
  slow_timer_->start(kResetSpan, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->is_slowed_ = false;
    self->want_read();
  });
}

void GrpcSession::submit_reset(GrpcStream& stream, std::uint32_t error_code) {
  nghttp2_submit_rst_stream(http2_, NGHTTP2_FLAG_NONE, stream.id(), error_code);
  hub_->touch(*this);
}

bool GrpcSession::is_window_open(const GrpcStream& stream) const {
  return nghttp2_session_get_remote_window_size(http2_) > 0 &&
         nghttp2_session_get_stream_remote_window_size(http2_, stream.id()) > 0;
}

std::size_t GrpcSession::header_bytes_max() const {
  return nghttp2_session_get_remote_settings(http2_, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
}

void GrpcSession::forget(const GrpcStream& stream) {
  std::erase(widened_, stream.id());
  streams_.erase(stream.id());
  if (streams_.empty()) on_idle();
}

std::vector<std::shared_ptr<GrpcStream>> GrpcSession::streams() const {
  std::vector<std::shared_ptr<GrpcStream>> all;
  for (const auto& [id, stream] : streams_) all.push_back(stream);
  return all;
}

}  // namespace reverie
