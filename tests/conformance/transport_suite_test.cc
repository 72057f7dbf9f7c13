// The suite for every transport.
#include "tests/conformance/transport_suite.h"

#include "tests/support/certificates.h"

namespace reverie::test {
namespace {

void by_memory(Peer::Options& options) {
  options.uses_tcp = false;
  options.uses_shared_memory = true;
}

void by_unix_socket(Peer::Options& options) {
  options.uses_tcp = false;
  options.uses_shared_memory = false;
}

void by_tcp(Peer::Options& options) {
  options.uses_unix = false;
}

void by_tls(Peer::Options& options) {
  options.uses_unix = false;
  PeerTls tls;
  tls.certificate_chain = tls_text("server.pem");
  tls.private_key = tls_text("server_key.pem");
  tls.authorities = tls_text("authority.pem");
  options.tls = std::move(tls);
}

INSTANTIATE_TEST_SUITE_P(Peers, TransportSuite,
                         ::testing::Values(TransportCase{"memory", "shared memory", by_memory},
                                           TransportCase{"unix", "Unix socket", by_unix_socket},
                                           TransportCase{"tcp", "TCP", by_tcp, true},
                                           TransportCase{"tls", "TCP with TLS", by_tls, true}),
                         [](const auto& entry) { return entry.param.name; });

}  // namespace
}  // namespace reverie::test
