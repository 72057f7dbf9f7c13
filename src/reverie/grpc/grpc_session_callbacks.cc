// The second source of grpc_session.h: the callbacks of nghttp2.
//
// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include <algorithm>

#include <nghttp2/nghttp2.h>

#include "reverie/base/check.h"
#include "reverie/grpc/grpc_session.h"
#include "reverie/grpc/grpc_stream.h"

namespace reverie {
namespace {

constexpr std::size_t kSentFrameBytesMax = 256u << 10;  // calls of a connection alternate by frames

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

}  // namespace

// nghttp2 calls back with the session as `self`, and identifies a stream by its address.
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
        // A peer that answers has seen the earlier announcement, so its last calls have arrived.
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && session.is_goaway_sent_ &&
            std::equal(kGoodbyePing.begin(), kGoodbyePing.end(), frame->ping.opaque_data)) {
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
    // The server has finished: the caller need not send any more.
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

nghttp2_session* GrpcSession::open_http2(Role role, GrpcSession& session) {
  nghttp2_session* http2 = nullptr;
  const int error =
      role == Role::kServer
          ? nghttp2_session_server_new2(&http2, Callbacks::get(), &session, Callbacks::options())
          : nghttp2_session_client_new2(&http2, Callbacks::get(), &session, Callbacks::options());
  REVERIE_CHECK(error == 0);
  return http2;
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

}  // namespace reverie
