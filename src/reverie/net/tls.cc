// Tested in connection_test.cc and src/reverie/grpc/grpc_test.cc.
#include "reverie/net/tls.h"

#include <string_view>
#include <utility>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "reverie/net/tls_context.h"

namespace reverie {
namespace {

struct BioDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct X509Deleter {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, BioDeleter>;
using Certificate = std::unique_ptr<X509, X509Deleter>;

Bio read_only(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Never asks at a terminal for the password of a key.
int no_password(char*, int, int, void*) {
  return 0;
}

// No peer accepts a certificate outside of its period of validity.
Status check_time(const X509* certificate) {
  const auto refuse = [](const char* what, const ASN1_TIME* when, const char* remedy) {
    const Bio text(BIO_new(BIO_s_mem()));
    ASN1_TIME_print(text.get(), when);
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(text.get(), &bytes);
    return invalid_argument("the certificate {} {}; {}", what,
                            std::string_view(bytes, static_cast<std::size_t>(size)), remedy);
  };
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(begin) > 0) {
    return refuse("is valid from", begin, "give one that is valid now, or set the clock");
  }
  if (X509_cmp_current_time(end) < 0) {
    return refuse("was valid until", end, "give one that is valid now");
  }
  return {};
}

Status use_certificate(SSL_CTX* context, std::string_view chain, std::string_view key) {
  if (chain.empty() != key.empty()) {
    return invalid_argument("a certificate and its private key are given together; one is missing");
  }
  if (chain.empty()) return {};
  const Bio bio = read_only(chain);
  const Certificate own(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
  if (!own || SSL_CTX_use_certificate(context, own.get()) != 1) {
    return invalid_argument("the certificate is not valid PEM: {}", take_tls_errors());
  }
  REVERIE_RETURN_IF_ERROR(check_time(own.get()));
  while (X509* issuer = PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, issuer) != 1) {
      X509_free(issuer);
      return invalid_argument("the certificate's chain is not usable: {}", take_tls_errors());
    }
  }
  ERR_clear_error();  // the end of the text
  const Bio key_bio = read_only(key);
  const std::unique_ptr<EVP_PKEY, KeyDeleter> private_key(
      PEM_read_bio_PrivateKey(key_bio.get(), nullptr, no_password, nullptr));
  if (!private_key) {
    return invalid_argument("the private key is not valid PEM without a password: {}",
                            take_tls_errors());
  }
  if (SSL_CTX_use_PrivateKey(context, private_key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return invalid_argument("the private key does not fit the certificate: {}", take_tls_errors());
  }
  return {};
}

Status trust(SSL_CTX* context, std::string_view authorities) {
  const Bio bio = read_only(authorities);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  int count = 0;
  while (true) {
    const Certificate authority(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
    if (!authority) break;
    X509_STORE_add_cert(store, authority.get());
    SSL_CTX_add_client_CA(context, authority.get());
    ++count;
  }
  ERR_clear_error();
  if (count == 0) return invalid_argument("the authorities contain no certificate in PEM form");
  return {};
}

Result<std::string> encode_protocols(const std::vector<std::string>& protocols) {
  std::string encoded;
  for (const std::string& name : protocols) {
    if (name.empty() || name.size() > 255) {
      return invalid_argument("protocol '{}' has {} letters; 1 to 255 are possible", name,
                              name.size());
    }
    encoded += static_cast<char>(name.size());
    encoded += name;
  }
  return encoded;
}

int select_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned int offered_size, void* argument) {
  const auto& own = *static_cast<const std::string*>(argument);
  const int outcome =
      SSL_select_next_proto(const_cast<unsigned char**>(chosen), chosen_size,
                            reinterpret_cast<const unsigned char*>(own.data()),
                            static_cast<unsigned int>(own.size()), offered, offered_size);
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

Result<std::unique_ptr<TlsContext::Impl>> make(bool is_server,
                                               const std::vector<std::string>& protocols) {
  // Without an exit handler, since Reverie's threads may still use it then.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  auto impl = std::make_unique<TlsContext::Impl>();
  impl->is_server = is_server;
  REVERIE_ASSIGN_OR_RETURN(impl->protocols, encode_protocols(protocols));
  impl->context.reset(SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()));
  if (!impl->context) return internal_error("no TLS context: {}", take_tls_errors());
  SSL_CTX* const context = impl->context.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  return impl;
}

}  // namespace

std::string take_tls_errors() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    char line[256];
    ERR_error_string_n(code, line, sizeof(line));
    if (!text.empty()) text += "; ";
    text += line;
  }
  return text.empty() ? "no further reason" : text;
}

TlsContext::TlsContext(std::unique_ptr<Impl> impl, bool requires_client_certificate)
    : impl_(std::move(impl)), requires_client_certificate_(requires_client_certificate) {}

TlsContext::~TlsContext() = default;

Result<std::shared_ptr<const TlsContext>> TlsContext::server(
    const TlsServerOptions& options, const std::vector<std::string>& protocols) {
  if (options.certificate_chain.empty()) {
    return invalid_argument("a TLS server needs a certificate and its private key; none is given");
  }
  REVERIE_ASSIGN_OR_RETURN(auto impl, make(/*is_server=*/true, protocols));
  SSL_CTX* const context = impl->context.get();
  REVERIE_RETURN_IF_ERROR(use_certificate(context, options.certificate_chain, options.private_key));
  const bool requires_certificate = !options.client_authorities.empty();
  if (requires_certificate) {
    REVERIE_RETURN_IF_ERROR(trust(context, options.client_authorities));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  // A resumed session would need an identity of the server's; full handshakes do without.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  if (!impl->protocols.empty()) {
    SSL_CTX_set_alpn_select_cb(context, select_protocol, &impl->protocols);
  }
  return std::make_shared<const TlsContext>(std::move(impl), requires_certificate);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::client(
    const TlsClientOptions& options, const std::vector<std::string>& protocols) {
  REVERIE_ASSIGN_OR_RETURN(auto impl, make(/*is_server=*/false, protocols));
  SSL_CTX* const context = impl->context.get();
  REVERIE_RETURN_IF_ERROR(use_certificate(context, options.certificate_chain, options.private_key));
  if (options.authorities.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else {
    REVERIE_RETURN_IF_ERROR(trust(context, options.authorities));
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (!impl->protocols.empty()) {
    SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(impl->protocols.data()),
                            static_cast<unsigned int>(impl->protocols.size()));
  }
  impl->server_name = options.server_name;
  return std::make_shared<const TlsContext>(std::move(impl), false);
}

}  // namespace reverie
