// What a TlsContext contains: for the TLS connections of this room.
#pragma once

#include <memory>
#include <string>

#include <openssl/ssl.h>

#include "reverie/net/tls.h"

namespace reverie {

struct SslContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

class TlsContext::Impl {
 public:
  std::unique_ptr<SSL_CTX, SslContextDeleter> context;
  bool is_server = false;
  std::string protocols;    // as in ALPN: each preceded by its length
  std::string server_name;  // a client's demand; empty: the host of the address
};

// Returns the texts in OpenSSL's error queue, and empties it.
std::string take_tls_errors();

}  // namespace reverie
