// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/grpc_session.h"

#include <algorithm>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "reverie/grpc/grpc_stream.h"

namespace reverie {
namespace {

constexpr std::size_t kReadsAtOnce = 6;  // then other connections of the loop have their turn
// More of a message is read to where it belongs, without a copy; what stands between two such
// reads, a frame's head and a message's, is read in small.
constexpr std::size_t kInPlaceBytesMin = std::size_t{32} << 10;
constexpr std::size_t kBetweenBytes = std::size_t{4} << 10;
constexpr int kBatchesAtOnce = 4;                   // likewise
constexpr std::uint32_t kFrameBytesMax = 1u << 20;  // of a received DATA frame
constexpr std::size_t kSentFrameBytesMax = 256u
                                           << 10;  // calls of a connection take turns by frames
// A peer that resets calls faster is read from with pauses. It is never dropped for it: a client
// that ends each sample call by a reset is an honest one.
constexpr std::uint32_t kResetsPerSpan = 2000;
constexpr Duration kResetSpan = std::chrono::milliseconds(100);
// Answers of HTTP/2's own that wait for a peer which does not read, besides one for each call.
constexpr std::size_t kWaitingFramesMax = 4096;
constexpr std::uint8_t kGoodbyePing[8] = {'g', 'o', 'o', 'd', 'b', 'y', 'e', '.'};

std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::vector<nghttp2_nv> as_http2(const GrpcHeaders& headers) {
  std::vector<nghttp2_nv> fields;
  fields.reserve(headers.size());
  for (const auto& [name, value] : headers) {
    fields.push_back({reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                      reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(),
                      value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  return fields;
}

// What a server that speaks TLS says to one who does not.
bool is_tls_alert(std::span<const std::byte> bytes) {
  constexpr std::byte kAlertRecord{21};
  constexpr std::byte kMajorVersion{3};
  return bytes.size() >= 2 && bytes[0] == kAlertRecord && bytes[1] == kMajorVersion;
}

}  // namespace

// nghttp2 calls back with the session as `self`, and knows a stream by its address.
struct GrpcSession::Callbacks {
  static GrpcStream* stream_of(nghttp2_session* http2, std::int32_t id) {
    return static_cast<GrpcStream*>(nghttp2_session_get_stream_user_data(http2, id));
  }

  static int begin_headers(nghttp2_session* http2, const nghttp2_frame* frame, void* self) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    auto& session = *static_cast<GrpcSession*>(self);
    auto stream = session.on_call();
    if (!stream) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    stream->attach(session, frame->hd.stream_id);
    nghttp2_session_set_stream_user_data(http2, frame->hd.stream_id, stream.get());
    session.streams_.emplace(frame->hd.stream_id, std::move(stream));
    return 0;
  }

  static int header(nghttp2_session* http2, const nghttp2_frame* frame, const std::uint8_t* name,
                    std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                    std::uint8_t, void*) {
    if (GrpcStream* const stream = stream_of(http2, frame->hd.stream_id)) {
      stream->on_header(as_text(name, name_size), as_text(value, value_size));
    }
    return 0;
  }

  static int frame_recv(nghttp2_session* http2, const nghttp2_frame* frame, void* self) {
    auto& session = *static_cast<GrpcSession*>(self);
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: {
        GrpcStream* stream = stream_of(http2, frame->hd.stream_id);
        if (stream == nullptr) return 0;
        const auto kept = stream->shared_from_this();
        if (frame->hd.type == NGHTTP2_HEADERS) {
          stream->on_headers_done();
          session.on_call_begun();
        }
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->on_peer_end();
        return 0;
      }
      case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0 && !std::exchange(session.is_ready_, true)) {
          session.on_ready();
        }
        return 0;
      case NGHTTP2_PING:
        // A peer that answers has seen the announcement sent before it: its last calls are here.
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && session.is_goodbye_said_ &&
            std::equal(kGoodbyePing, kGoodbyePing + 8, frame->ping.opaque_data)) {
          nghttp2_submit_goaway(http2, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(http2), NGHTTP2_NO_ERROR,
                                nullptr, 0);
        }
        return 0;
      case NGHTTP2_RST_STREAM:
        session.note_reset();
        return 0;
      case NGHTTP2_GOAWAY:
        session.on_goaway();
        return 0;
      default:
        return 0;
    }
  }

  static int begin_frame(nghttp2_session*, const nghttp2_frame_hd* header, void* self) {
    auto& session = *static_cast<GrpcSession*>(self);
    const bool is_plain = (header->flags & NGHTTP2_FLAG_PADDED) == 0;
    session.data_bytes_ = header->type == NGHTTP2_DATA && is_plain ? header->length : 0;
    session.data_left_ = 0;  // until the stream takes some of it
    session.data_stream_ = header->stream_id;
    return 0;
  }

  static int data_chunk(nghttp2_session* http2, std::uint8_t, std::int32_t id,
                        const std::uint8_t* data, std::size_t size, void* self) {
    auto& session = *static_cast<GrpcSession*>(self);
    session.data_bytes_ -= std::min(size, session.data_bytes_);
    session.data_left_ = session.data_bytes_;
    GrpcStream* const stream = stream_of(http2, id);
    if (stream == nullptr) {
      nghttp2_session_consume(http2, id, size);
      return 0;
    }
    const auto kept = stream->shared_from_this();
    stream->on_data({reinterpret_cast<const std::byte*>(data), size});
    return 0;
  }

  static int stream_close(nghttp2_session* http2, std::int32_t id, std::uint32_t error_code,
                          void*) {
    if (GrpcStream* const stream = stream_of(http2, id)) {
      const auto kept = stream->shared_from_this();
      stream->on_closed(error_code);
    }
    return 0;
  }

  static int frame_sent(nghttp2_session* http2, const nghttp2_frame* frame, void* self) {
    // A server has said all: a caller that has not need not any more.
    const auto& session = *static_cast<GrpcSession*>(self);
    if (session.role_ != Role::kServer || frame->hd.type != NGHTTP2_HEADERS ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0 ||
        nghttp2_session_get_stream_remote_close(http2, frame->hd.stream_id) != 0) {
      return 0;
    }
    nghttp2_submit_rst_stream(http2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
  }

  static ssize_t read_length(nghttp2_session*, std::uint8_t, std::int32_t, std::int32_t connection,
                             std::int32_t stream, std::uint32_t frame_bytes_max, void*) {
    const auto window = static_cast<std::size_t>(std::max(std::min(connection, stream), 1));
    return static_cast<ssize_t>(
        std::min({window, std::size_t{frame_bytes_max}, kSentFrameBytesMax}));
  }

  static ssize_t read(nghttp2_session*, std::int32_t, std::uint8_t*, std::size_t length,
                      std::uint32_t* flags, nghttp2_data_source* source, void*) {
    auto& stream = *static_cast<GrpcStream*>(source->ptr);
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    const std::size_t size = stream.on_send(length, flags);
    if (size == 0 && (*flags & NGHTTP2_DATA_FLAG_EOF) == 0) return NGHTTP2_ERR_DEFERRED;
    return static_cast<ssize_t>(size);
  }

  // Follows read() within one nghttp2_session_mem_send(), so what was promised is still there.
  static int send_data(nghttp2_session*, nghttp2_frame*, const std::uint8_t* header,
                       std::size_t length, nghttp2_data_source* source, void* self) {
    auto& session = *static_cast<GrpcSession*>(self);
    session.batch_.append_copy(std::as_bytes(std::span(header, 9)));
    static_cast<GrpcStream*>(source->ptr)->take_sent(length, session.batch_);
    return session.batch_.is_full() ? NGHTTP2_ERR_PAUSE : 0;
  }

  static nghttp2_session_callbacks* get() {
    static nghttp2_session_callbacks* const callbacks = [] {
      nghttp2_session_callbacks* made = nullptr;
      REVERIE_CHECK(nghttp2_session_callbacks_new(&made) == 0);
      nghttp2_session_callbacks_set_on_begin_headers_callback(made, begin_headers);
      nghttp2_session_callbacks_set_on_header_callback(made, header);
      nghttp2_session_callbacks_set_on_frame_recv_callback(made, frame_recv);
      nghttp2_session_callbacks_set_on_begin_frame_callback(made, begin_frame);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, data_chunk);
      nghttp2_session_callbacks_set_on_stream_close_callback(made, stream_close);
      nghttp2_session_callbacks_set_on_frame_send_callback(made, frame_sent);
      nghttp2_session_callbacks_set_data_source_read_length_callback(made, read_length);
      nghttp2_session_callbacks_set_send_data_callback(made, send_data);
      return made;
    }();
    return callbacks;
  }

  static nghttp2_option* options() {
    static nghttp2_option* const option = [] {
      nghttp2_option* made = nullptr;
      REVERIE_CHECK(nghttp2_option_new(&made) == 0);
      nghttp2_option_set_no_auto_window_update(made, 1);
      nghttp2_option_set_no_closed_streams(made, 1);
      // Until the server's own bound is known.
      nghttp2_option_set_peer_max_concurrent_streams(made, 1u << 20u);
#ifdef REVERIE_HAS_NGHTTP2_RESET_LIMIT
      // The library's own limit closes the connection: see kResetsPerSpan for ours.
      nghttp2_option_set_stream_reset_rate_limit(made, 1u << 30u, 1u << 30u);
#endif
      return made;
    }();
    return option;
  }
};

GrpcSession::GrpcSession(Role role, std::shared_ptr<GrpcHub> hub,
                         std::unique_ptr<Connection> connection, const GrpcLimits& limits,
                         Ref<MessagePool> pool, std::shared_ptr<ByteBudget> of_all)
    : hub_(std::move(hub)),
      limits_(limits),
      role_(role),
      connection_(std::move(connection)),
      pool_(std::move(pool)),
      budget_(std::make_shared<ConnectionBudget>(limits_.connection_bytes_max, std::move(of_all))) {
  const int error =
      role == Role::kServer
          ? nghttp2_session_server_new2(&http2_, Callbacks::get(), this, Callbacks::options())
          : nghttp2_session_client_new2(&http2_, Callbacks::get(), this, Callbacks::options());
  REVERIE_CHECK(error == 0);
}

GrpcSession::~GrpcSession() {
  if (http2_ != nullptr) nghttp2_session_del(http2_);
}

void GrpcSession::start(std::string_view received) {
  const auto self = shared_from_this();
  budget_->set_tell_room([hub = hub_, weak = weak_from_this()] {
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
    for (std::size_t i = 0; i < kReadsAtOnce && connection_; ++i) {
      const std::span<std::byte> place = place_to_read();
      const IoResult got = connection_->read(place);
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
      if (!receive(place.first(got.size_bytes))) return;
      if (got.size_bytes < place.size() || is_slowed_) break;
    }
    want_read();
  });
}

// In place, but never less at once than could be read to the scratch: a read of its own for each of
// several parts costs more than the copies.
std::span<std::byte> GrpcSession::place_to_read() {
  const std::span<std::byte> scratch = hub_->loop().scratch();
  if (data_left_ >= kInPlaceBytesMin) {
    const auto stream = streams_.find(data_stream_);
    if (stream != streams_.end()) {
      const std::span<std::byte> room = stream->second->room();
      was_read_in_place_ = room.size() >= std::min(data_left_, scratch.size());
      if (was_read_in_place_) return room.first(std::min(room.size(), data_left_));
    }
  }
  return std::exchange(was_read_in_place_, false) ? scratch.first(kBetweenBytes) : scratch;
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
    close(resource_exhausted("{} does not read what it is answered", connection_->peer()));
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
      close(
          resource_exhausted("no memory to go on with the connection to {}", connection_->peer()));
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
    // What is ready, such as the reason of a hang-up, as far as it goes.
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

// Each of those that wait now is told at most once: one that finds no room waits again, as the
// last.
void GrpcSession::tell_room() {
  for (std::size_t n = waits_to_send_.size(); n > 0 && budget_->may_send(); --n) {
    waits_to_send_.pop()->tell_connection_room();
  }
  for (std::size_t n = waits_to_draw_.size(); n > 0 && budget_->may_draw(); --n) {
    waits_to_draw_.pop()->tell_connection_room();
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

bool GrpcSession::lets_come(const GrpcStream& stream) const {
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
  if (!connection_ || std::exchange(is_goodbye_said_, true)) return;
  nghttp2_submit_shutdown_notice(http2_);
  nghttp2_submit_ping(http2_, NGHTTP2_FLAG_NONE, kGoodbyePing);
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

Status GrpcSession::submit_request(const GrpcHeaders& headers, std::shared_ptr<GrpcStream> stream) {
  const std::vector<nghttp2_nv> fields = as_http2(headers);
  nghttp2_data_provider body{};
  body.source.ptr = stream.get();
  body.read_callback = Callbacks::read;
  const std::int32_t id =
      nghttp2_submit_request(http2_, nullptr, fields.data(), fields.size(), &body, stream.get());
  if (id < 0) {
    return unavailable("no further call can begin on this connection: {}", nghttp2_strerror(id));
  }
  stream->attach(*this, id);
  streams_.emplace(id, std::move(stream));
  hub_->touch(*this);
  return {};
}

void GrpcSession::submit_response(const GrpcHeaders& headers, GrpcStream& stream, bool has_body) {
  const std::vector<nghttp2_nv> fields = as_http2(headers);
  nghttp2_data_provider body{};
  body.source.ptr = &stream;
  body.read_callback = Callbacks::read;
  nghttp2_submit_response(http2_, stream.id(), fields.data(), fields.size(),
                          has_body ? &body : nullptr);
  hub_->touch(*this);
}

void GrpcSession::submit_trailers(const GrpcHeaders& headers, GrpcStream& stream) {
  const std::vector<nghttp2_nv> fields = as_http2(headers);
  nghttp2_submit_trailer(http2_, stream.id(), fields.data(), fields.size());
  hub_->touch(*this);
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
