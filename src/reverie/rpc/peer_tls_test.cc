// Peers with TLS: which peers are accepted, and the errors of peers without TLS.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/format.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"
#include "tests/support/certificates.h"
#include "tests/support/cutting_proxy.h"
#include "tests/support/eventually.h"
#include "tests/support/number_values.h"

namespace reverie {
namespace {

constexpr Duration kCallMax = std::chrono::seconds(60);

PeerTls peer_tls(const std::string& certificate = "server", const std::string& authority = "") {
  PeerTls tls;
  tls.certificate_chain = test::tls_text(certificate + ".pem");
  tls.private_key = test::tls_text(certificate + "_key.pem");
  tls.authorities = test::tls_text(authority.empty() ? "authority.pem" : authority);
  return tls;
}

std::unique_ptr<Peer> peer_by_tcp(const std::string& name, std::optional<PeerTls> tls,
                                  bool tells_addresses = true) {
  Peer::Options options;
  options.name = name;
  options.uses_unix = false;
  options.tells_addresses = tells_addresses;
  options.tls = std::move(tls);
  Result<std::unique_ptr<Peer>> peer = Peer::make(options);
  EXPECT_TRUE(peer.ok()) << peer.status().to_string();
  return std::move(peer).value();
}

// A peer whose function "double" returns twice its argument.
struct Doubling {
  explicit Doubling(std::optional<PeerTls> tls, bool tells_addresses = true)
      : peer(peer_by_tcp("server", std::move(tls), tells_addresses)) {
    EXPECT_TRUE(peer->define("double",
                             [this](const Request& request) {
                               ++calls;
                               peer->answer(request.id,
                                            number_payload(2 * number_of(request.message.payload)));
                             })
                    .ok());
    const Result<std::string> chosen = peer->listen("127.0.0.1:0");
    EXPECT_TRUE(chosen.ok()) << chosen.status().to_string();
    address = *chosen;
  }
  std::atomic<int> calls{0};
  std::unique_ptr<Peer> peer;
  std::string address;
};

CallResult call_double(Peer& client, std::int64_t number, Duration timeout = kCallMax) {
  CallOptions options;
  options.deadline = Clock::system().now() + timeout;
  return client.sync("server", "double", number_payload(number), options);
}

TEST(PeerTls, CallsAreCarriedAndTheTransportIsNamed) {
  Doubling server(peer_tls());
  const auto client = peer_by_tcp("client", peer_tls("client"));
  ASSERT_TRUE(client->connect(server.address).ok());
  EXPECT_EQ(number_of(call_double(*client, 21).payload), 42);
  ASSERT_EQ(client->peers().size(), 1u);
  EXPECT_EQ(client->peers()[0].transport, std::string("TCP with TLS"));
}

TEST(PeerTls, LargeMessagesAndManyCallsPass) {
  const auto server = peer_by_tcp("server", peer_tls());
  ASSERT_TRUE(server
                  ->define("echo",
                           [&](Request request) {
                             server->answer(request.id, std::move(request.message.payload));
                           })
                  .ok());
  const Result<std::string> address = server->listen("127.0.0.1:0");
  ASSERT_TRUE(address.ok());
  const auto client = peer_by_tcp("client", peer_tls("client"));
  ASSERT_TRUE(client->connect(*address).ok());
  for (const std::size_t size : {0u, 1u, 16'383u, 16'384u, 16'385u, 5'000'000u}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
    Payload payload;
    ValueWriter(payload).text(text);
    CallOptions options;
    options.deadline = Clock::system().now() + kCallMax;
    const CallResult result = client->sync("server", "echo", std::move(payload), options);
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    ValueReader reader(result.payload);
    const auto token = reader.next();
    ASSERT_TRUE(token.ok());
    EXPECT_TRUE(std::string(reinterpret_cast<const char*>(token->bytes.data()),
                            token->bytes.size()) == text)
        << size;
  }
}

// The client's loop, the one thread that writes to such a link, is busy while another thread closes
// the client. So its calls end before all of their frames are written.
TEST(PeerTls, CallsThatEndWhileTheirFramesWaitSendTheirArraysAsTheyWere) {
  constexpr int kCalls = 400;
  std::vector<std::byte> array(std::size_t{64} << 10, std::byte{1});
  std::atomic<bool> is_blocked{false};
  std::atomic<bool> may_read{false};
  std::atomic<bool> is_busy{false};
  std::atomic<bool> may_write{false};
  std::atomic<int> taken{0};
  std::atomic<int> changed{0};
  const auto made = [](const std::string& name) {
    Peer::Options options;
    options.name = name;
    options.uses_unix = false;
    options.tls = peer_tls();
    options.dead_after = kCallMax;  // their threads are blocked on purpose
    Result<std::unique_ptr<Peer>> peer = Peer::make(options);
    EXPECT_TRUE(peer.ok()) << peer.status().to_string();
    return std::move(peer).value();
  };
  const auto server = made("server");
  const auto other = made("other");
  const auto client = made("client");
  const auto block = [&](const Request&) {
    is_blocked = true;
    EXPECT_TRUE(test::eventually([&] { return may_read.load(); }));
  };
  ASSERT_TRUE(server->define("block", block).ok());
  const auto take = [&](const Request& request) {
    const auto bytes = request.message.payload.bulk.front().bytes;
    if (std::ranges::count(bytes, std::byte{1}) != std::ssize(bytes)) ++changed;
    ++taken;
  };
  ASSERT_TRUE(server->define("take", take).ok());
  const auto be_busy = [&](const Request&) {
    is_busy = true;
    EXPECT_TRUE(test::eventually([&] { return may_write.load(); }));
  };
  ASSERT_TRUE(client->define("be_busy", be_busy).ok());
  for (const auto& peer : {server.get(), other.get()}) {
    const Result<std::string> address = peer->listen("127.0.0.1:0");
    ASSERT_TRUE(address.ok()) << address.status().to_string();
    ASSERT_TRUE(client->connect(*address).ok());
    const CallResult reached = client->sync(peer->name(), std::string(kPingFunction), {}, {});
    ASSERT_TRUE(reached.status.ok()) << reached.status.to_string();
  }
  ASSERT_TRUE(client->call("server", "block", {}, {}, [](const CallResult&) {}).ok());
  ASSERT_TRUE(test::eventually([&] { return is_blocked.load(); }));
  std::atomic<bool> has_changed{false};
  const auto change = [&](const CallResult& result) {
    EXPECT_EQ(result.status.code(), StatusCode::kCancelled) << result.status.to_string();
    if (has_changed.exchange(true)) return;
    std::ranges::fill(array, std::byte{2});  // the call has ended
    may_read = true;
    EXPECT_TRUE(test::eventually([&] { return taken > 0; }));
    may_write = true;
  };
  const std::int64_t shape[] = {std::ssize(array)};
  for (int i = 0; i < kCalls; ++i) {
    Payload payload;
    ValueWriter(payload).lent_tensor(DType::kUInt8, shape, array, TensorMaker::kNumpy, nullptr,
                                     /*may_change=*/true);
    ASSERT_TRUE(client->call("server", "take", std::move(payload), {}, change).ok());
  }
  ASSERT_TRUE(other->call("client", "be_busy", {}, {}, [](const CallResult&) {}).ok());
  ASSERT_TRUE(test::eventually([&] { return is_busy.load(); }));
  client->close();
  EXPECT_TRUE(test::eventually(
      [&] { return std::ranges::none_of(server->peers(), &PeerInfo::is_connected); }));
  EXPECT_EQ(changed, 0);
}

TEST(PeerTls, AStrangersCertificateIsRefusedWithItsReason) {
  Doubling server(peer_tls());
  // Trusts the server, but has a certificate that the server's authority has not signed.
  const auto stranger = peer_by_tcp("stranger", peer_tls("stranger"));
  ASSERT_TRUE(stranger->connect(server.address).ok());
  EXPECT_EQ(call_double(*stranger, 1).status.code(), StatusCode::kUnauthenticated);
  // Does not trust the server.
  const auto wary = peer_by_tcp("wary", peer_tls("client", "stranger.pem"));
  ASSERT_TRUE(wary->connect(server.address).ok());
  EXPECT_EQ(call_double(*wary, 1).status.code(), StatusCode::kUnauthenticated);
  // Expects another name than that of the certificate.
  PeerTls other = peer_tls("client");
  other.server_name = "elsewhere";
  const auto misled = peer_by_tcp("misled", other);
  ASSERT_TRUE(misled->connect(server.address).ok());
  const CallResult result = call_double(*misled, 1);
  EXPECT_EQ(result.status.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(result.status.message().find("elsewhere"), std::string::npos)
      << result.status.to_string();
  EXPECT_EQ(server.calls, 0);
}

TEST(PeerTls, ConnectingEncryptedToPlainFailsAtOnceOnBothSides) {
  Doubling encrypted(peer_tls());
  const auto plain = peer_by_tcp("plain", std::nullopt);
  ASSERT_TRUE(plain->connect(encrypted.address).ok());
  const CallResult refused = call_double(*plain, 1);
  EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition) << refused.status.to_string();
  EXPECT_NE(refused.status.message().find("give both tls"), std::string::npos);
  Doubling open(std::nullopt);
  const auto client = peer_by_tcp("client", peer_tls("client"));
  ASSERT_TRUE(client->connect(open.address).ok());
  const CallResult wary = call_double(*client, 1);
  EXPECT_EQ(wary.status.code(), StatusCode::kFailedPrecondition) << wary.status.to_string();
  EXPECT_EQ(encrypted.calls + open.calls, 0);
}

TEST(PeerTls, CallsOverCutConnectionsRunAtMostOnce) {
  Doubling server(peer_tls(), /*tells_addresses=*/false);  // calls must go through the proxy
  const std::string& address = server.address;
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  testing::CuttingProxy proxy(port, 0.05, /*seed=*/7);
  const auto client = peer_by_tcp("client", peer_tls("client"));
  ASSERT_TRUE(client->connect(format("127.0.0.1:{}", proxy.port())).ok());
  constexpr int kCalls = 1'000;
  for (int i = 0; i < kCalls; ++i) {
    const CallResult result = call_double(*client, i);
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    ASSERT_EQ(number_of(result.payload), 2 * i);
  }
  EXPECT_EQ(server.calls, kCalls);
  EXPECT_GT(proxy.cuts(), 10u);
}

// A connection with TLS is read and written by the I/O thread alone.
TEST(PeerTls, AGoodbyeArrivesWhicheverThreadClosesThePeer) {
  Doubling server(peer_tls());
  const auto client = peer_by_tcp("client", peer_tls("client"));
  std::promise<void> called;
  ASSERT_TRUE(client->define("never", [&](const Request&) { called.set_value(); }).ok());
  ASSERT_TRUE(client->connect(server.address).ok());
  ASSERT_TRUE(call_double(*client, 1).status.ok());
  std::promise<CallResult> ended;
  ASSERT_TRUE(server.peer
                  ->call("client", "never", {}, {},
                         [&](CallResult result) { ended.set_value(std::move(result)); })
                  .ok());
  called.get_future().wait();
  client->close();
  const CallResult result = ended.get_future().get();
  EXPECT_NE(result.status.message().find("'client' has closed"), std::string::npos)
      << result.status.to_string();
}

TEST(PeerTls, InvalidTlsOptionsAreRefused) {
  Peer::Options options;
  options.name = "peer";
  options.tls = PeerTls{};
  EXPECT_EQ(Peer::make(options).status().code(), StatusCode::kInvalidArgument);
  options.tls = peer_tls();
  options.tls->private_key = test::tls_text("client_key.pem");
  EXPECT_EQ(Peer::make(options).status().code(), StatusCode::kInvalidArgument);
  options.tls = peer_tls("expired");
  EXPECT_EQ(Peer::make(options).status().code(), StatusCode::kInvalidArgument);
  options.tls = peer_tls();
  options.tls->authorities = "rubbish";
  EXPECT_EQ(Peer::make(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(PeerTls, TlsSufficesToListenWhereOthersCanReachAPeer) {
  const auto peer = peer_by_tcp("peer", peer_tls());
  const Result<std::string> chosen = peer->listen("0.0.0.0:0");
  EXPECT_TRUE(chosen.ok()) << chosen.status().to_string();
}

}  // namespace
}  // namespace reverie
