// The certificates of tests/data/tls, as texts.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "reverie/net/tls.h"
#include "tests/tests_dir.h"

namespace reverie::test {

inline std::string tls_text(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(REVERIE_TESTS_DIR) + "/data/tls/" + name).rdbuf();
  return text.str();
}

inline TlsServerOptions server_tls() {
  return {tls_text("server.pem"), tls_text("server_key.pem"), {}};
}
inline TlsClientOptions client_tls() {
  TlsClientOptions options;
  options.authorities = tls_text("authority.pem");
  options.server_name = "localhost";
  return options;
}

}  // namespace reverie::test
