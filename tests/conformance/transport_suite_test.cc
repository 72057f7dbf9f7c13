// The suite for every transport.
#include "tests/conformance/transport_suite.h"

#include "reverie/net/ucx_connection.h"
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

void by_ucx_tcp(Peer::Options& options) {
  options.uses_unix = false;
  options.uses_ucx = true;
  options.ucx_transports = "tcp";
}

void by_ucx_memory(Peer::Options& options) {
  options.uses_unix = false;
  options.uses_ucx = true;
  options.ucx_transports = "shm,self";
}

std::vector<TransportCase> cases() {
  std::vector<TransportCase> all = {{"memory", "shared memory", by_memory},
                                    {"unix", "Unix socket", by_unix_socket},
                                    {"tcp", "TCP", by_tcp, true},
                                    {"tls", "TCP with TLS", by_tls, true}};
  if (check_ucx().ok()) {
    all.push_back({"ucx_tcp", "UCX", by_ucx_tcp, true});
    all.push_back({"ucx_memory", "UCX", by_ucx_memory, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Peers, TransportSuite, ::testing::ValuesIn(cases()),
                         [](const auto& entry) { return entry.param.name; });

}  // namespace
}  // namespace reverie::test
