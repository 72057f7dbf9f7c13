// What a TlsContext holds: for the TLS connections of this room.
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
  std::string protocols;    // as ALPN writes them: each behind its length
  std::string server_name;  // a client's demand; empty: the host of the address
};

// The texts of OpenSSL's queue of errors, and empties it.
std::string take_tls_errors();

}  // namespace reverie
