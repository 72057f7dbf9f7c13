// Certificates and keys for both ends of an encrypted connection (TLS 1.2 or newer, by OpenSSL).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reverie/base/status.h"

namespace reverie {

// Every option is PEM text, not the name of a file.
struct TlsServerOptions {
  std::string certificate_chain;
  std::string private_key;
  // If set, only callers with a certificate signed by one of these are accepted.
  std::string client_authorities;
};

struct TlsClientOptions {
  // Who may have signed the server's certificate; empty: those that the system trusts.
  std::string authorities;
  // What the client presents to a server that asks for a certificate.
  std::string certificate_chain;
  std::string private_key;
  // The name that the server's certificate must contain; empty: the host of the address.
  std::string server_name;
};

// A checked set of options, shared by the connections it is for. Immutable, thread-safe.
class TlsContext {
 public:
  // `protocols` are offered or accepted by ALPN, best first: {"h2"}. A client that offers none of a
  // server's protocols is refused. INVALID_ARGUMENT for a malformed certificate or key, a key that
  // does not match, or an own certificate that is not valid now.
  static Result<std::shared_ptr<const TlsContext>> server(
      const TlsServerOptions& options, const std::vector<std::string>& protocols);
  static Result<std::shared_ptr<const TlsContext>> client(
      const TlsClientOptions& options, const std::vector<std::string>& protocols);

  // Whether the peer has to present a certificate: a secret in the sense of check_bind.
  bool requires_client_certificate() const { return requires_client_certificate_; }

  class Impl;
  TlsContext(std::unique_ptr<Impl> impl, bool requires_client_certificate);
  ~TlsContext();
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
  bool requires_client_certificate_;
};

}  // namespace reverie
