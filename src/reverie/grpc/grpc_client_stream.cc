// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/grpc_client_stream.h"

#include <algorithm>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "reverie/grpc/grpc_session.h"
#include "reverie/grpc/grpc_wire.h"

namespace reverie {
namespace {

constexpr std::size_t kFieldBytes = 32;  // what HTTP/2 counts for each field besides its text

bool is_name(std::string_view name) {
  return !name.empty() && !name.starts_with("grpc-") &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                  c == '.';
         });
}

bool is_printable(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// An answer that is not gRPC's own: from a proxy, or a server of something else.
Status status_of_http(std::string_view http_status) {
  if (http_status == "401") {
    return {StatusCode::kUnauthenticated, "the server answered with HTTP status 401"};
  }
  if (http_status == "403") {
    return {StatusCode::kPermissionDenied, "the server answered with HTTP status 403"};
  }
  if (http_status == "404") return unimplemented("the server answered with HTTP status 404");
  if (http_status == "429" || http_status.starts_with("50")) {
    return unavailable("the server answered with HTTP status {}", http_status);
  }
  return internal_error("the server answered with HTTP status {}; it may speak no gRPC",
                        http_status);
}

Status status_of_reset(std::uint32_t error_code) {
  const char* const name = nghttp2_http2_strerror(error_code);
  switch (error_code) {
    case NGHTTP2_CANCEL:
      return cancelled("the server reset the call");
    case NGHTTP2_REFUSED_STREAM:
      return unavailable("the server refused the call");
    case NGHTTP2_ENHANCE_YOUR_CALM:
      return resource_exhausted("the server ended the call: it is overloaded");
    case NGHTTP2_INADEQUATE_SECURITY:
      return {StatusCode::kPermissionDenied, "the server demands better encryption"};
    default:
      return internal_error("the server reset the call: {}", name);
  }
}

}  // namespace

GrpcClientStream::GrpcClientStream(std::shared_ptr<GrpcHub> hub, const GrpcLimits& limits,
                                   std::weak_ptr<Owner> owner, std::string_view path,
                                   GrpcCallOptions options, std::shared_ptr<GrpcCallEvents> events)
    : GrpcStream(std::move(hub), limits, /*is_counted=*/false),
      owner_(std::move(owner)),
      path_(path),
      options_(std::move(options)) {
  events_ = std::move(events);
}

void GrpcClientStream::carry_out(GrpcRequest& request) {
  switch (request.kind) {
    case GrpcRequest::Kind::kStart: {
      const auto owner = owner_.lock();
      const Status status = check_metadata();
      if (!owner || !status.ok()) {
        end(owner ? status : cancelled("the client is closed"));
        return;
      }
      if (options_.deadline <= Clock::system().now()) {
        on_deadline();
        return;
      }
      set_deadline(options_.deadline);
      owner->begin(std::static_pointer_cast<GrpcClientStream>(shared_from_this()));
      return;
    }
    case GrpcRequest::Kind::kHalfClose:
      if (has_ended()) return;
      is_half_closed_ = true;
      wake_sender();
      return;
    case GrpcRequest::Kind::kCancel:
      if (!has_ended()) fail(cancelled("the call was cancelled"));
      return;
    default:
      GrpcStream::carry_out(request);
  }
}

Status GrpcClientStream::check_metadata() const {
  for (const auto& [name, value] : options_.metadata) {
    if (!is_name(name)) {
      return invalid_argument(
          "'{}' is not a metadata name: a-z, 0-9, '_', '-' and '.' are allowed, and "
          "names of gRPC's own are not",
          name);
    }
    if (!name.ends_with("-bin") && !is_printable(value)) {
      return invalid_argument(
          "metadata '{}' holds bytes that are not printable; end its name in "
          "'-bin'",
          name);
    }
  }
  return {};
}

void GrpcClientStream::wait_for_connection() {
  if (ready_timer_ || options_.ready_time == Duration::max()) return;
  ready_timer_ = std::make_unique<LoopTimer>(hub_->loop());
  ready_timer_->start(options_.ready_time, [weak = weak_from_this()] {
    const auto self = std::static_pointer_cast<GrpcClientStream>(weak.lock());
    if (!self || self->has_ended()) return;
    self->hub_->run([&self] {
      const auto owner = self->owner_.lock();
      self->fail(unavailable("no connection was made within {:.3g} s: {}",
                             to_seconds(self->options_.ready_time),
                             owner ? owner->why_waiting() : "the client is closed"));
    });
  });
}

void GrpcClientStream::begin_on(GrpcSession& session, std::string_view authority,
                                std::string_view token) {
  ready_timer_.reset();
  const bool is_encrypted = session.connection().is_encrypted();
  if (!token.empty() && !is_encrypted && !session.connection().is_peer_local()) {
    fail(failed_precondition("a token would be sent unencrypted to {}; use TLS",
                             session.connection().peer()));
    return;
  }
  std::string timeout;
  if (options_.deadline != TimePoint::max()) {
    timeout = format_timeout(options_.deadline - Clock::system().now());
  }
  const std::string bearer = format("Bearer {}", token);
  std::vector<std::string> encoded;  // of binary metadata
  encoded.reserve(options_.metadata.size());
  GrpcHeaders headers = {{":method", "POST"},       {":scheme", is_encrypted ? "https" : "http"},
                         {":path", path_},          {":authority", authority},
                         {"te", "trailers"},        {"content-type", "application/grpc"},
                         {"user-agent", "reverie"}, {"grpc-accept-encoding", "identity,gzip"}};
  if (!timeout.empty()) headers.emplace_back("grpc-timeout", timeout);
  if (!token.empty()) headers.emplace_back("authorization", bearer);
  for (const auto& [name, value] : options_.metadata) {
    if (name.ends_with("-bin")) {
      headers.emplace_back(name, encoded.emplace_back(base64_encode(value)));
    } else {
      headers.emplace_back(name, value);
    }
  }
  const Status status = session.submit_request(
      headers, std::static_pointer_cast<GrpcClientStream>(shared_from_this()));
  if (!status.ok()) {
    fail(status);
  } else if (events_) {
    events_->on_connected();
  }
}

void GrpcClientStream::on_header(std::string_view name, std::string_view value) {
  header_bytes_ += name.size() + value.size() + kFieldBytes;
  if (header_bytes_ > limits_.metadata_bytes_max) return;
  if (name == ":status") {
    http_status_ = value;
  } else if (name == "grpc-status") {
    grpc_status_ = value;
    has_status_ = true;
  } else if (name == "grpc-message") {
    grpc_message_ = value;
  } else if (name == "grpc-encoding") {
    encoding_ = value;
  }
}

void GrpcClientStream::on_headers_done() {
  if (!is_live()) return;
  if (header_bytes_ > limits_.metadata_bytes_max) {
    fail(resource_exhausted("the server's headers take {} bytes; {} are allowed", header_bytes_,
                            limits_.metadata_bytes_max));
  } else if (http_status_ != "200") {
    if (!http_status_.starts_with('1')) fail(status_of_http(http_status_));
  } else if (encoding_ == "gzip") {
    in_->allow_gzip();
  } else if (!encoding_.empty() && encoding_ != "identity") {
    fail(unimplemented("the server compresses by '{}'; identity and gzip are understood",
                       encoding_));
  }
}

void GrpcClientStream::on_peer_end() {
  if (!is_live()) return;
  if (!has_status_) {
    fail(internal_error("the server ended the call without a status"));
    return;
  }
  Status status = status_from_wire(grpc_status_, grpc_message_);
  if (status.ok() && !in_->is_between_messages()) {
    status = internal_error("the call's responses end in the middle of a message");
  }
  // The server wants no more requests.
  if (nghttp2_session_get_stream_local_close(session_->http2(), id_) == 0) {
    session_->submit_reset(*this, NGHTTP2_NO_ERROR);
  }
  end_after_messages(status);
}

void GrpcClientStream::on_closed(std::uint32_t error_code) {
  detach();
  if (is_live()) end_after_messages(status_of_reset(error_code));
}

void GrpcClientStream::on_lost(const Status& why) {
  session_ = nullptr;
  if (is_live()) end_after_messages(why);
}

void GrpcClientStream::on_all_sent(std::uint32_t* flags) {
  *flags |= NGHTTP2_DATA_FLAG_EOF;
}

void GrpcClientStream::fail(const Status& why) {
  if (is_attached()) {
    drop_unsent();
    session_->submit_reset(*this, NGHTTP2_CANCEL);
  }
  end(why);
}

void GrpcClientStream::on_deadline() {
  fail(deadline_exceeded("Deadline Exceeded"));
}

void GrpcClientStream::on_ended() {
  ready_timer_.reset();
  if (const auto owner = owner_.lock()) owner->note_over(*this);
}

}  // namespace reverie
