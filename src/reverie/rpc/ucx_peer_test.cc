// Peers over UCX. What every transport does is in tests/conformance/transport_suite.h.
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"
#include "reverie/rpc/peer.h"
#include "tests/support/certificates.h"
#include "tests/support/cutting_proxy.h"
#include "tests/support/eventually.h"
#include "tests/support/number_values.h"

namespace reverie {
namespace {

using test::eventually;

std::unique_ptr<Peer> make_ucx_peer(const std::string& name, const std::string& transports,
                                    const std::string& token = {},
                                    Duration dead_after = std::chrono::seconds(60)) {
  Peer::Options options;
  options.name = name;
  options.token = token;
  options.uses_unix = false;
  options.uses_ucx = !transports.empty();
  options.ucx_transports = transports;
  options.tells_addresses = false;
  options.dead_after = dead_after;
  Result<std::unique_ptr<Peer>> peer = Peer::make(options);
  EXPECT_TRUE(peer.ok()) << peer.status().to_string();
  std::unique_ptr<Peer> made = std::move(peer).value();
  EXPECT_TRUE(made->define("echo",
                           [self = made.get()](Request request) {
                             self->answer(request.id, std::move(request.message.payload));
                           })
                  .ok());
  return made;
}

PeerInfo link_after_calls(Peer& client, const std::string& transport) {
  PeerInfo info;
  EXPECT_TRUE(eventually([&] {
    const CallResult result = client.sync("server", "echo", number_payload(7), {});
    EXPECT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
    for (const PeerInfo& one : client.peers()) info = one;
    return info.transport == transport;
  })) << info.transport;
  return info;
}

TEST(UcxPeer, TwoPeersThatUseItReachEachOtherByIt) {
  const auto server = make_ucx_peer("server", "tcp", "secret");
  const auto client = make_ucx_peer("client", "tcp", "secret");
  ASSERT_TRUE(client->connect(server->listen("127.0.0.1:0").value()).ok());
  const PeerInfo info = link_after_calls(*client, "UCX");
  EXPECT_EQ(info.transport_reason, "both peers use UCX");
}

TEST(UcxPeer, APeerWithoutItIsReachedByTcp) {
  for (const bool is_server : {true, false}) {
    const auto server = make_ucx_peer("server", is_server ? "tcp" : "");
    const auto client = make_ucx_peer("client", is_server ? "" : "tcp");
    ASSERT_TRUE(client->connect(server->listen("127.0.0.1:0").value()).ok());
    const PeerInfo info = link_after_calls(*client, "TCP");
    if (is_server) continue;
    EXPECT_NE(info.transport_reason.find("'server' does not use UCX"), std::string::npos)
        << info.transport_reason;
  }
}

// Their workers have no transport in common: the connection breaks, and the next one is TCP.
TEST(UcxPeer, APeerThatUcxDoesNotReachIsReachedByTcp) {
  for (const bool has_memory : {true, false}) {
    const auto server = make_ucx_peer("server", has_memory ? "shm,self" : "tcp");
    const auto client = make_ucx_peer("client", has_memory ? "tcp" : "shm,self");
    ASSERT_TRUE(client->connect(server->listen("127.0.0.1:0").value()).ok());
    const PeerInfo info = link_after_calls(*client, "TCP");
    EXPECT_NE(info.transport_reason.find("could not reach"), std::string::npos)
        << info.transport_reason;
  }
}

// The proxy carries the handshake and the control records. UCX's own connection goes past it, and
// ends with the socket.
TEST(UcxPeer, CallsOverCutConnectionsRunOnceAndAreAnswered) {
  const auto server = make_ucx_peer("server", "tcp");
  Mutex mutex;
  std::set<std::int64_t> ran;
  std::int64_t twice = 0;
  ASSERT_TRUE(server
                  ->define("take",
                           [&](Request request) {
                             {
                               MutexLock lock(mutex);
                               const std::int64_t number = number_of(request.message.payload);
                               twice += ran.insert(number).second ? 0 : 1;
                             }
                             server->answer(request.id, {});
                           })
                  .ok());
  const std::string address = server->listen("127.0.0.1:0").value();
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  testing::CuttingProxy proxy(port, 0.03, /*seed=*/7);
  const auto client = make_ucx_peer("client", "tcp");
  ASSERT_TRUE(client->connect(format("127.0.0.1:{}", proxy.port())).ok());
  constexpr std::int64_t kCalls = 300;
  const auto bulk = std::make_shared<const std::vector<std::byte>>(100'000);
  for (std::int64_t i = 0; i < kCalls; ++i) {
    Payload payload = number_payload(i);
    payload.bulk.push_back({*bulk, bulk});
    const CallResult result = client->sync("server", "take", std::move(payload), {});
    ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
  }
  MutexLock lock(mutex);
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(ran.size(), static_cast<std::size_t>(kCalls));
  EXPECT_GT(proxy.cuts(), 0u);
}

// A thread of the client that waits for messages reads the sockets of open links. One in its
// handshake is left to the loop's thread, the one that may change it to UCX.
TEST(UcxPeer, AHandshakeThatArrivesInPiecesChangesToUcxThoughAnotherThreadReads) {
  const auto plain = make_ucx_peer("plain", "");
  const auto server = make_ucx_peer("server", "tcp");
  const std::string address = server->listen("127.0.0.1:0").value();
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  testing::CuttingProxy proxy(port, 0.0, /*seed=*/7);
  proxy.halve();
  const auto client = make_ucx_peer("client", "tcp");
  ASSERT_TRUE(client->connect(plain->listen("127.0.0.1:0").value()).ok());
  ASSERT_EQ(client->sync("plain", "echo", number_payload(1), {}).kind, CallResult::Kind::kAnswer);
  std::atomic<bool> is_over{false};
  std::thread reader([&] { client->wait([&] { return is_over.load(); }, TimePoint::max()); });
  EXPECT_TRUE(client->connect(format("127.0.0.1:{}", proxy.port())).ok());
  (void)link_after_calls(*client, "UCX");
  is_over = true;
  client->wake();
  reader.join();
}

// UCX waits for an answer for a second, and a peer may be silent for less than that.
TEST(UcxPeer, ACallIsAnsweredByTcpThoughUcxWouldWaitLongerThanAPeerMayBeSilent) {
  constexpr Duration kDeadAfter = std::chrono::milliseconds(900);
  const auto server = make_ucx_peer("server", "tcp", {}, kDeadAfter);
  const std::string address = server->listen("127.0.0.1:0").value();
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  testing::CuttingProxy proxy(port, 0.0, /*seed=*/7);
  proxy.withhold("RvUcx1");  // the offer
  const auto client = make_ucx_peer("client", "tcp", {}, kDeadAfter);
  ASSERT_TRUE(client->connect(format("127.0.0.1:{}", proxy.port())).ok());
  (void)link_after_calls(*client, "TCP");
}

TEST(UcxPeer, AnotherTokenIsRefusedBeforeUcxIsUsed) {
  const auto server = make_ucx_peer("server", "tcp", "secret");
  const auto client = make_ucx_peer("client", "tcp", "another");
  ASSERT_TRUE(client->connect(server->listen("127.0.0.1:0").value()).ok());
  const CallResult result = client->sync("server", "echo", number_payload(1), {});
  EXPECT_EQ(result.status.code(), StatusCode::kUnauthenticated) << result.status.to_string();
  EXPECT_TRUE(server->peers().empty());
}

TEST(UcxPeer, TlsIsRefused) {
  Peer::Options options;
  options.name = "peer";
  options.uses_ucx = true;
  PeerTls tls;
  tls.certificate_chain = test::tls_text("server.pem");
  tls.private_key = test::tls_text("server_key.pem");
  tls.authorities = test::tls_text("authority.pem");
  options.tls = std::move(tls);
  const Status status = Peer::make(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("does not encrypt"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace reverie
