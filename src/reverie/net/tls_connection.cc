// Tested in connection_test.cc.
#include "reverie/net/tls_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "reverie/net/tls_context.h"

namespace reverie {
namespace {

constexpr std::size_t kRecordBytes = 16384;  // the maximum of a TLS record

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

// OpenSSL's view of the connection below.
int bio_read(BIO* bio, char* into, std::size_t size, std::size_t* got) {
  auto& inner = *static_cast<Connection*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const IoResult result = inner.read({reinterpret_cast<std::byte*>(into), size});
  *got = result.size_bytes;
  if (result.size_bytes > 0) return 1;
  if (result.status.ok() && !result.is_end) BIO_set_retry_read(bio);
  if (result.is_end) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return 0;
}

int bio_write(BIO* bio, const char* from, std::size_t size, std::size_t* sent) {
  auto& inner = *static_cast<Connection*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const std::span<const std::byte> piece(reinterpret_cast<const std::byte*>(from), size);
  const IoResult result = inner.write({&piece, 1});
  *sent = result.size_bytes;
  if (result.size_bytes > 0) return 1;
  if (result.status.ok()) BIO_set_retry_write(bio);
  return 0;
}

long bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

// The alert by which the peer ended the handshake (RFC 8446, 6.2); 0 for another error.
int alert_of(unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  const bool is_alert = ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET &&
                        reason <= SSL_AD_REASON_OFFSET + 255;
  return is_alert ? reason - SSL_AD_REASON_OFFSET : 0;
}

bool is_about_certificate(int alert) {
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

// Whether both ends speak TLS, but cannot agree on its parameters. The end of the stream does not
// count: the peer may be starting or stopping.
bool is_protocol_mismatch(unsigned long error) {
  if (error == 0 || ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  return ERR_GET_REASON(error) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

bool is_cleartext(unsigned long error) {
  if (error == 0 || ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  const int reason = ERR_GET_REASON(error);
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST;
}

const char* remedy_of(long verdict) {
  switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "connect by a name that it bears, or say which with server_name";
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "give the server one that is valid now, and see that the clocks agree";
    default:
      return "give the certificates of those who signed it as authorities";
  }
}

// One for the process, never freed.
const BIO_METHOD* bio_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "reverie connection");
    BIO_meth_set_read_ex(made, bio_read);
    BIO_meth_set_write_ex(made, bio_write);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

class TlsConnection final : public Connection, private ConnectionEvents {
 public:
  TlsConnection(std::unique_ptr<Connection> inner, std::shared_ptr<const TlsContext> context,
                const std::string& server_name)
      : inner_(std::move(inner)),
        context_(std::move(context)),
        ssl_(SSL_new(context_->impl().context.get())) {
    REVERIE_CHECK(ssl_ != nullptr);
    BIO* const bio = BIO_new(bio_method());
    BIO_set_data(bio, inner_.get());
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    inner_->set_events(this);
    if (context_->impl().is_server) {
      SSL_set_accept_state(ssl_.get());
      return;
    }
    SSL_set_connect_state(ssl_.get());
    const std::string& name =
        context_->impl().server_name.empty() ? server_name : context_->impl().server_name;
    name_ = name;
    X509_VERIFY_PARAM* const demand = SSL_get0_param(ssl_.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(demand, name.c_str()) != 1) {
      X509_VERIFY_PARAM_set1_host(demand, name.data(), name.size());
      SSL_set_tlsext_host_name(ssl_.get(), name.c_str());
    }
    ERR_clear_error();
  }

  ~TlsConnection() override {
    *alive_ = false;
    if (is_handshake_done() && lost_.ok()) {
      ERR_clear_error();
      SSL_shutdown(ssl_.get());  // sends a goodbye without waiting for the answer
      ERR_clear_error();
    }
  }

  IoLoop& loop() override { return inner_->loop(); }
  void set_events(ConnectionEvents* events) override { events_ = events; }

  IoResult read(std::span<std::byte> into) override {
    has_unread_end_ = false;
    if (!lost_.ok()) return {.status = lost_};
    IoResult result;
    // One record at a time, as many as fit.
    while (result.size_bytes < into.size()) {
      std::size_t got = 0;
      was_handshake_done_ = is_handshake_done();
      ERR_clear_error();
      const int outcome = SSL_read_ex(ssl_.get(), into.data() + result.size_bytes,
                                      into.size() - result.size_bytes, &got);
      if (outcome == 1) {
        result.size_bytes += got;
        continue;
      }
      does_read_want_write_ = false;
      const int error = SSL_get_error(ssl_.get(), outcome);
      if (error == SSL_ERROR_WANT_READ) break;
      if (error == SSL_ERROR_WANT_WRITE) {
        does_read_want_write_ = true;
        break;
      }
      if (result.size_bytes > 0) {  // earlier bytes are delivered first
        if (error != SSL_ERROR_ZERO_RETURN) (void)lost();
        has_unread_end_ = true;
        break;
      }
      if (error == SSL_ERROR_ZERO_RETURN) return {.is_end = true};
      return lost();
    }
    resume_write();
    return result;
  }

  IoResult write(std::span<const std::span<const std::byte>> pieces) override {
    if (!lost_.ok()) return {.status = lost_};
    was_handshake_done_ = is_handshake_done();
    IoResult result;
    std::size_t index = 0;
    std::size_t offset = 0;
    while (index < pieces.size()) {
      // Small pieces share a record; a large one is written from its own memory. The same bytes
      // give the same records when a write is repeated, as OpenSSL requires.
      std::span<const std::byte> record = pieces[index].subspan(offset);
      if (record.size() < kRecordBytes && index + 1 < pieces.size()) {
        record = gather(pieces.subspan(index), offset);
      } else if (record.size() > kRecordBytes) {
        record = record.first(kRecordBytes);
      }
      if (record.empty()) {
        ++index;
        offset = 0;
        continue;
      }
      std::size_t sent = 0;
      ERR_clear_error();
      const int outcome = SSL_write_ex(ssl_.get(), record.data(), record.size(), &sent);
      if (outcome != 1) {
        does_write_want_read_ = false;
        const int error = SSL_get_error(ssl_.get(), outcome);
        if (error == SSL_ERROR_WANT_WRITE) break;
        if (error == SSL_ERROR_WANT_READ) {
          does_write_want_read_ = true;
          break;
        }
        IoResult failed = lost();
        failed.size_bytes = result.size_bytes;
        return failed;
      }
      result.size_bytes += sent;
      offset += sent;
      while (index < pieces.size() && offset >= pieces[index].size()) {
        offset -= pieces[index].size();
        ++index;
      }
    }
    return result;
  }

  void want_read() override {
    if (std::exchange(is_reading_, true)) return;
    if (has_unread_end_ || SSL_pending(ssl_.get()) > 0) {
      // The bytes, or the end, are here already, so the socket gives no event.
      loop().post([this, alive = alive_] {
        if (*alive) tell_readable();
      });
    } else if (does_read_want_write_) {
      inner_->want_write();
    } else {
      inner_->want_read();
    }
  }
  void want_write() override {
    if (std::exchange(is_writing_, true)) return;
    if (does_write_want_read_) {
      inner_->want_read();
    } else {
      inner_->want_write();
    }
  }

  bool is_peer_local() const override { return inner_->is_peer_local(); }
  std::string peer() const override { return inner_->peer(); }
  bool is_encrypted() const override { return true; }
  bool is_handshake_done() const override {
    return was_handshake_done_ || SSL_is_init_finished(ssl_.get()) != 0;
  }
  std::string protocol() const override {
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &size);
    return name == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(name), size);
  }
  std::string peer_name() const override {
    X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr) return {};
    char name[256] = {};
    const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName,
                                               name, sizeof(name));
    return size < 0 ? std::string() : std::string(name, static_cast<std::size_t>(size));
  }

 private:
  // Either direction of the stream may wait for either direction of the socket. An event may
  // destroy this.
  void on_readable() override {
    const auto alive = alive_;
    if (is_writing_ && does_write_want_read_) tell_writable();
    if (*alive && is_reading_ && !does_read_want_write_) tell_readable();
  }
  void on_writable() override {
    const auto alive = alive_;
    if (is_reading_ && does_read_want_write_) tell_readable();
    if (*alive && is_writing_ && !does_write_want_read_) tell_writable();
  }
  // A write that waits for bytes of the peer would never end if a read has taken them, as at the
  // end of the handshake.
  void resume_write() {
    if (!is_writing_ || !does_write_want_read_ || !is_handshake_done()) return;
    loop().post([this, alive = alive_] {
      if (*alive) tell_writable();
    });
  }
  void tell_readable() {
    if (std::exchange(is_reading_, false) && events_) events_->on_readable();
  }
  void tell_writable() {
    if (std::exchange(is_writing_, false) && events_) events_->on_writable();
  }

  std::span<const std::byte> gather(std::span<const std::span<const std::byte>> pieces,
                                    std::size_t offset) {
    gathered_.resize(kRecordBytes);
    std::size_t size = 0;
    for (std::span<const std::byte> piece : pieces) {
      piece = piece.subspan(offset);
      offset = 0;
      const std::size_t part = std::min(piece.size(), kRecordBytes - size);
      if (part > 0) std::memcpy(gathered_.data() + size, piece.data(), part);
      size += part;
      if (size == kRecordBytes) break;
    }
    return {gathered_.data(), size};
  }

  // After an error OpenSSL would say that the stream has ended: the reason is kept.
  IoResult lost() {
    if (context_->impl().is_server && !is_handshake_done() && is_cleartext(ERR_peek_error())) {
      send_alert();
    }
    lost_ = reason_of_loss();
    ERR_clear_error();
    return {.status = lost_};
  }

  // Sends an alert to a caller without TLS, since OpenSSL does not.
  void send_alert() {
    // Unread bytes would discard the alert when the socket is closed.
    std::array<std::byte, 4096> unread;
    (void)inner_->read(unread);
    constexpr unsigned char kAlert[] = {21, 3, 3, 0, 2, SSL3_AL_FATAL, SSL_AD_PROTOCOL_VERSION};
    const std::span<const std::byte> piece = std::as_bytes(std::span(kAlert));
    (void)inner_->write({&piece, 1});
  }

  Status reason_of_loss() {
    const auto unauthenticated = [](std::string text) {
      return Status(StatusCode::kUnauthenticated, std::move(text));
    };
    const long verdict = SSL_get_verify_result(ssl_.get());
    const unsigned long error = ERR_peek_error();
    if (!is_handshake_done() && verdict != X509_V_OK) {
      const char* const why = X509_verify_cert_error_string(verdict);
      if (context_->impl().is_server) {
        return unauthenticated(format("the certificate of {} is not accepted: {}", peer(), why));
      }
      return unauthenticated(format("the certificate of {} is not accepted for '{}': {}; {}",
                                    peer(), name_, why, remedy_of(verdict)));
    }
    // A TLS 1.3 server checks a client's certificate when the client has already finished.
    if (is_about_certificate(alert_of(error))) {
      return unauthenticated(
          format("{} does not accept our certificate, or requires one: {}; give a certificate that "
                 "its authorities have signed, and the key to it",
                 peer(), take_tls_errors()));
    }
    if (!is_handshake_done() && is_protocol_mismatch(error)) {
      return failed_precondition(
          "{} has no TLS in common with this process: {}; see that both ends use it", peer(),
          take_tls_errors());
    }
    return unavailable("the encrypted connection to {} was lost: {}", peer(), take_tls_errors());
  }

  std::unique_ptr<Connection> inner_;
  std::shared_ptr<const TlsContext> context_;
  std::unique_ptr<SSL, SslDeleter> ssl_;
  std::string name_;  // required in the peer's certificate
  ConnectionEvents* events_ = nullptr;
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool does_read_want_write_ = false;
  bool does_write_want_read_ = false;
  Status lost_;
  bool was_handshake_done_ = false;  // OpenSSL forgets it after an error
  bool has_unread_end_ = false;      // of the stream, or its loss: the next read returns it
  std::vector<std::byte> gathered_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<Connection> make_tls_connection(std::unique_ptr<Connection> inner,
                                                std::shared_ptr<const TlsContext> context,
                                                const std::string& server_name) {
  return std::make_unique<TlsConnection>(std::move(inner), std::move(context), server_name);
}

}  // namespace reverie
