// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/grpc_server_stream.h"

#include <algorithm>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "reverie/grpc/grpc_session.h"
#include "reverie/grpc/grpc_wire.h"

namespace reverie {
namespace {

constexpr std::size_t kFieldBytes = 32;  // what HTTP/2 counts for each field besides its text
// Peers accept 8 KiB of headers, which also contain other text.
constexpr std::size_t kMessageBytesMax = 8192;
constexpr std::size_t kMessageBytesMin = 1024;
constexpr std::size_t kBesideMessageBytes = 512;
constexpr std::string_view kBearer = "Bearer ";

// Takes as long for a wrong text as for the right one with the same length.
bool equals_secret(std::string_view given, std::string_view secret) {
  unsigned int difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char wanted = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(wanted);
  }
  return difference == 0;
}

// For a peer that cannot receive trailers, since its window is closed.
std::uint32_t reset_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kResourceExhausted:
      return NGHTTP2_ENHANCE_YOUR_CALM;
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
      return NGHTTP2_CANCEL;
    case StatusCode::kUnavailable:
      return NGHTTP2_REFUSED_STREAM;
    default:
      return NGHTTP2_INTERNAL_ERROR;
  }
}

// The status' text as a header that the peer accepts.
std::string wire_message(const Status& status, const GrpcSession& session) {
  return percent_encode(status.message(),
                        std::clamp(session.header_bytes_max(), kMessageBytesMin, kMessageBytesMax) -
                            kBesideMessageBytes);
}

Status why_closed(std::uint32_t error_code) {
  if (error_code == NGHTTP2_CANCEL || error_code == NGHTTP2_NO_ERROR) {
    return cancelled("the caller cancelled the call");
  }
  return cancelled("the caller reset the call: {}", nghttp2_http2_strerror(error_code));
}

}  // namespace

GrpcServerStream::GrpcServerStream(std::shared_ptr<GrpcHub> hub, const Shared& shared)
    : GrpcStream(std::move(hub), shared.limits, /*is_counted=*/true), shared_(shared) {}

void GrpcServerStream::finish(const Status& status) {
  request(GrpcRequest::Kind::kFinish, status);
}

void GrpcServerStream::carry_out(GrpcRequest& request) {
  if (request.kind == GrpcRequest::Kind::kAbort) {
    if (!has_ended()) abort_here(request.status);
    return;
  }
  if (request.kind != GrpcRequest::Kind::kFinish) {
    GrpcStream::carry_out(request);
    return;
  }
  if (has_ended() || is_finished_) return;
  drop_received();
  respond(request.status);
}

void GrpcServerStream::on_header(std::string_view name, std::string_view value) {
  if (!headers_) return;  // trailers of a caller are ignored
  const std::size_t size = name.size() + value.size() + kFieldBytes;
  metadata_bytes_ += size;
  if (metadata_bytes_ > limits_.metadata_bytes_max) return;  // refused when all have arrived
  if (name == ":path") {
    info_.path = value;
  } else if (name == ":method") {
    headers_->method = value;
  } else if (name == "content-type") {
    headers_->content_type = value;
  } else if (name == "grpc-timeout") {
    headers_->timeout = value;
  } else if (name == "grpc-encoding") {
    headers_->encoding = value;
  } else if (name == "authorization" && !shared_.token.empty()) {
    headers_->authorization = value;
  } else if (name.starts_with(':') || name == "te" || name == "grpc-accept-encoding") {
    return;
  } else if (name.ends_with("-bin")) {
    auto bytes = base64_decode(value);
    if (!bytes) headers_->bad_name = name;
    if (bytes) info_.metadata.emplace_back(name, *std::move(bytes));
  } else {
    info_.metadata.emplace_back(name, value);
  }
}

Status GrpcServerStream::check_headers() {
  if (metadata_bytes_ > limits_.metadata_bytes_max) {
    return resource_exhausted("the call's headers take {} bytes; {} are allowed", metadata_bytes_,
                              limits_.metadata_bytes_max);
  }
  if (!shared_.token.empty()) {
    const std::string_view given = headers_->authorization;
    if (!given.starts_with(kBearer) ||
        !equals_secret(given.substr(kBearer.size()), shared_.token)) {
      return {StatusCode::kUnauthenticated, given.empty()
                                                ? "this server asks for a token, and none was sent"
                                                : "the token is not this server's"};
    }
  }
  if (headers_->encoding == "gzip") {
    in_->allow_gzip();
  } else if (!headers_->encoding.empty() && headers_->encoding != "identity") {
    return unimplemented("messages compressed by '{}' are not understood; identity and gzip are",
                         headers_->encoding);
  }
  if (!headers_->bad_name.empty()) {
    return invalid_argument("metadata '{}' is not base64", headers_->bad_name);
  }
  if (!headers_->timeout.empty()) {
    const auto timeout = parse_timeout(headers_->timeout);
    if (!timeout) return invalid_argument("grpc-timeout '{}' is not a timeout", headers_->timeout);
    info_.deadline = Clock::system().now() + *timeout;
  }
  return {};
}

void GrpcServerStream::on_headers_done() {
  if (!headers_) return;
  const bool is_grpc =
      headers_->method == "POST" && headers_->content_type.starts_with("application/grpc");
  if (!is_grpc) {
    // Another program's client: the answer is HTTP's.
    headers_.reset();
    is_finished_ = has_sent_headers_ = true;
    session_->submit_response({{":status", "415"}}, *this, /*has_body=*/false);
    return;
  }
  const Connection& connection = session_->connection();
  info_.peer = connection.peer();
  info_.peer_name = connection.peer_name();
  info_.is_peer_local = connection.is_peer_local();
  Status status = check_headers();
  headers_.reset();
  if (status.ok()) {
    has_begun_ = true;
    auto events = shared_.begin(std::static_pointer_cast<GrpcServerStream>(shared_from_this()));
    info_.metadata = {};
    status = events.status();
    if (events.ok()) {
      events_ = std::move(events).value();
      set_deadline(info_.deadline);
      return;
    }
  }
  ignores_data_ = true;
  respond(status);
}

void GrpcServerStream::on_peer_end() {
  if (ignores_data_ || is_finished_) return;
  if (!in_->is_between_messages()) {
    abort_here(internal_error("the call's requests end in the middle of a message"));
    return;
  }
  note_half_close();
}

void GrpcServerStream::respond(const Status& status) {
  is_finished_ = true;
  final_ = status;
  if (!is_attached()) return;
  if (has_sent_headers_) {
    wake_sender();  // the trailers follow what is queued
    return;
  }
  has_sent_headers_ = true;
  const std::string code = format("{}", static_cast<int>(status.code()));
  const std::string message = wire_message(status, *session_);
  GrpcHeaders headers = {
      {":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", code}};
  if (!message.empty()) headers.emplace_back("grpc-message", message);
  if (status.code() == StatusCode::kUnimplemented) {
    headers.emplace_back("grpc-accept-encoding", "identity,gzip");
  }
  session_->submit_response(headers, *this, /*has_body=*/false);
}

void GrpcServerStream::on_first_write() {
  if (std::exchange(has_sent_headers_, true) || !is_attached()) return;
  session_->submit_response({{":status", "200"}, {"content-type", "application/grpc"}}, *this,
                            /*has_body=*/true);
}

void GrpcServerStream::on_all_sent(std::uint32_t* flags) {
  *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
  const std::string code = format("{}", static_cast<int>(final_.code()));
  const std::string message = wire_message(final_, *session_);
  GrpcHeaders trailers = {{"grpc-status", code}};
  if (!message.empty()) trailers.emplace_back("grpc-message", message);
  session_->submit_trailers(trailers, *this);
}

void GrpcServerStream::abort_here(const Status& why) {
  if (!is_attached()) {
    end(why);
    return;
  }
  if (headers_) return;  // there is no call yet: it ends with its connection
  const bool was_finished = is_finished_;
  end(why);
  drop_unsent();
  if (has_sent_headers_ && !session_->is_window_open(*this)) {
    is_finished_ = true;
    session_->submit_reset(*this, reset_code_of(why.code()));
  } else if (was_finished) {
    final_ = why;
    wake_sender();
  } else {
    respond(why);
  }
}

void GrpcServerStream::on_deadline() {
  abort_here(deadline_exceeded("Deadline Exceeded"));
}

void GrpcServerStream::on_closed(std::uint32_t error_code) {
  const bool was_sent = is_finished_ && out_.size_bytes() == 0 && error_code == NGHTTP2_NO_ERROR;
  leave();
  detach();
  end(was_sent ? Status() : why_closed(error_code));
}

void GrpcServerStream::on_lost(const Status& why) {
  leave();
  session_ = nullptr;
  drop_unsent();
  end(why);
}

// Called once, when the session releases the stream.
void GrpcServerStream::leave() {
  budget()->give_back_in(kCallBytes);
  drop_unsent();
  if (has_begun_) shared_.on_over();
}

}  // namespace reverie
