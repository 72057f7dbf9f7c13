#include "reverie/net/connection.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "reverie/net/listener.h"
#include "reverie/net/tls_connection.h"
#include "tests/conformance/connection_suite.h"
#include "tests/support/certificates.h"
#include "tests/support/ucx_pair.h"

namespace reverie {
namespace {

using test::client_tls;
using test::ConnectionEnd;
using test::ConnectionMaker;
using test::ConnectionSuite;
using test::make_ucx_pair;
using test::server_tls;
using test::tls_text;

SocketAddress address_of(const std::string& text) {
  return resolve(parse_endpoint(text).value(), false)->front();
}

std::string scratch_path(const std::string& name) {
  return format("{}/reverie_net_{}_{}", std::filesystem::temp_directory_path().string(), ::getpid(),
                name);
}

// Waits for the value of a callback.
template <typename T>
class Arrival {
 public:
  void put(T value) {
    MutexLock lock(mutex_);
    value_ = std::move(value);
    changed_.notify_all();
  }
  T take() {
    MutexLock lock(mutex_);
    while (!value_) changed_.wait(mutex_);
    T value = std::move(*value_);
    value_.reset();
    return value;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<T> value_ REVERIE_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<Connection>> connect_to(IoLoop& loop, const std::string& address,
                                               std::shared_ptr<const TlsContext> tls = nullptr,
                                               Duration timeout = std::chrono::seconds(10)) {
  // Shared, because a callback may still hold it when this function returns.
  const auto arrival = std::make_shared<Arrival<Result<std::unique_ptr<Connection>>>>();
  ConnectHandle handle;
  loop.run_and_wait([&] {
    handle = connect(loop, parse_endpoint(address).value(), std::move(tls), {}, timeout,
                     [arrival](auto result) { arrival->put(std::move(result)); });
  });
  auto result = arrival->take();
  loop.run_and_wait([&] { handle.reset(); });
  return result;
}

// Makes a connected pair through a listener.
ConnectionPair make_through(IoThreads& threads, const std::string& address, bool is_encrypted) {
  std::shared_ptr<const TlsContext> server;
  std::shared_ptr<const TlsContext> client;
  if (is_encrypted) {
    server = TlsContext::server(server_tls(), {"test"}).value();
    client = TlsContext::client(client_tls(), {"test"}).value();
  }
  const auto accepted = std::make_shared<Arrival<std::unique_ptr<Connection>>>();
  IoLoop& loop = threads.loop(1);
  auto listener =
      Listener::open(threads.loop(0), address_of(address), [&, accepted](int fd, const auto& peer) {
        accepted->put(make_connection(loop, fd, peer, server));
      });
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
  auto first = connect_to(threads.loop(0), (*listener)->address().to_string(), client);
  EXPECT_TRUE(first.ok()) << first.status().to_string();
  return {std::move(first).value(), accepted->take()};
}

ConnectionPair make_tls_over_pair(IoThreads& threads) {
  ConnectionPair pair = make_connection_pair(threads.loop(0), threads.loop(1)).value();
  pair.first = make_tls_connection(std::move(pair.first),
                                   TlsContext::client(client_tls(), {"test"}).value(), "localhost");
  pair.second = make_tls_connection(std::move(pair.second),
                                    TlsContext::server(server_tls(), {"test"}).value(), {});
  return pair;
}

std::vector<ConnectionMaker> makers() {
  std::vector<ConnectionMaker> all = {
      {"Pair",
       [](IoThreads& threads) {
         return make_connection_pair(threads.loop(0), threads.loop(1)).value();
       }},
      {"Tcp", [](IoThreads& threads) { return make_through(threads, "127.0.0.1:0", false); }},
      {"Unix",
       [](IoThreads& threads) {
         return make_through(threads, "unix:" + scratch_path("suite"), false);
       }},
      {"TlsOverPair", make_tls_over_pair},
      {"TlsOverTcp",
       [](IoThreads& threads) { return make_through(threads, "127.0.0.1:0", true); }}};
  if (!check_ucx().ok()) return all;
  for (const auto& [name, transports] :
       {std::pair("UcxTcp", "tcp"), std::pair("UcxSharedMemory", "shm,self"),
        std::pair("UcxAsItFinds", "")}) {
    const std::string chosen = transports;
    all.push_back({name, [chosen](IoThreads& threads) { return make_ucx_pair(threads, chosen); }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Net, ConnectionSuite, ::testing::ValuesIn(makers()),
                         [](const auto& maker) { return maker.param.name; });

TEST(Connect, NamesTheAddressThatDoesNotAnswer) {
  IoThreads threads;
  const auto refused = connect_to(threads.loop(0), "127.0.0.1:1");
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("127.0.0.1:1: Connection refused"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(connect_to(threads.loop(0), "unix:/nowhere/x").status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(connect_to(threads.loop(0), "no-such-name.invalid:1").status().code(),
            StatusCode::kUnavailable);
}

TEST(Connect, TriesTheNextAddressOfAName) {
  IoThreads threads;
  std::atomic<int> count{0};
  auto listener = Listener::open(threads.loop(0), address_of("[::1]:0"), [&](int fd, const auto&) {
    ::close(fd);
    ++count;
  });
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here";
  // "localhost" is 127.0.0.1, where no socket listens, and then ::1.
  const auto port = (*listener)->address().port();
  EXPECT_TRUE(connect_to(threads.loop(0), format("localhost:{}", port)).ok());
}

TEST(Connect, ADroppedAttemptNeverCallsBack) {
  IoThreads threads;
  threads.loop(0).run_and_wait([&] {
    const ConnectHandle handle =
        connect(threads.loop(0), parse_endpoint("no-such-name.invalid:1").value(), nullptr, {},
                std::chrono::seconds(10), [](auto) { ADD_FAILURE(); });
  });
  threads.loop(0).run_and_wait([] {});
}

TEST(ListenerTest, RefusesAnAddressInUse) {
  IoThreads threads;
  const auto ignore = [](int fd, const auto&) { ::close(fd); };
  auto first = Listener::open(threads.loop(0), address_of("127.0.0.1:0"), ignore);
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)->address().to_string();
  const auto second = Listener::open(threads.loop(0), address_of(address), ignore);
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find(address), std::string::npos);
  (*first)->close();
  EXPECT_TRUE(Listener::open(threads.loop(0), address_of(address), ignore).ok());
}

TEST(ListenerTest, TheWildcardOfIPv6AcceptsIPv4UnderItsOwnAddresses) {
  IoThreads threads;
  Arrival<std::string> came;
  const auto note = [&](int fd, const SocketAddress& peer) {
    ::close(fd);
    came.put(peer.to_string());
  };
  auto listener = Listener::open(threads.loop(0), address_of("[::]:0"), note);
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here";
  const auto port = (*listener)->address().port();
  EXPECT_TRUE(connect_to(threads.loop(0), format("127.0.0.1:{}", port)).ok());
  EXPECT_TRUE(came.take().starts_with("127.0.0.1:"));
  if (!connect_to(threads.loop(0), format("[::1]:{}", port)).ok()) return;  // it is switched off
  EXPECT_TRUE(came.take().starts_with("[::1]:"));
}

TEST(ListenerTest, AUnixSocketIsPrivateAndIsRemovedWithItsListener) {
  IoThreads threads;
  const std::string path = scratch_path("mode");
  const auto ignore = [](int fd, const auto&) { ::close(fd); };
  {
    auto listener = Listener::open(threads.loop(0), address_of("unix:" + path), ignore);
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    const auto permissions = std::filesystem::status(path).permissions();
    EXPECT_EQ(permissions & std::filesystem::perms(0077), std::filesystem::perms::none);
    EXPECT_EQ(Listener::open(threads.loop(0), address_of("unix:" + path), ignore).status().code(),
              StatusCode::kAlreadyExists);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ListenerTest, ASocketLeftByADeadProcessIsReplacedAndAFileIsNot) {
  IoThreads threads;
  const std::string path = scratch_path("left");
  const auto ignore = [](int fd, const auto&) { ::close(fd); };
  const SocketAddress address = address_of("unix:" + path);
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(left, address.data(), address.size()), 0);
  ::close(left);
  EXPECT_TRUE(Listener::open(threads.loop(0), address, ignore).ok());
  std::ofstream(path) << "precious";
  EXPECT_EQ(Listener::open(threads.loop(0), address, ignore).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

// The status that the client gets when it reads first.
Status handshake_status(const TlsServerOptions& server, const TlsClientOptions& client,
                        const std::vector<std::string>& protocols = {"test"}) {
  IoThreads threads(2);
  ConnectionPair pair = make_connection_pair(threads.loop(0), threads.loop(1)).value();
  ConnectionEnd first(make_tls_connection(
      std::move(pair.first), TlsContext::client(client, protocols).value(), "localhost"));
  ConnectionEnd second(make_tls_connection(std::move(pair.second),
                                           TlsContext::server(server, {"test"}).value(), {}));
  second.read_on();
  first.read_on();
  first.send("a");
  second.send("b");
  if (first.received(1) == "b" && second.received(1) == "a") return {};
  return first.wait_for_end();
}

// A connection over two strings. It never reports events.
class Pipe final : public Connection {
 public:
  Pipe(IoLoop& loop, std::string& in, std::string& out) : loop_(loop), in_(in), out_(out) {}

  IoLoop& loop() override { return loop_; }
  void set_events(ConnectionEvents*) override {}
  IoResult read(std::span<std::byte> into) override {
    const std::size_t size = std::min(into.size(), in_.size());
    std::memcpy(into.data(), in_.data(), size);
    in_.erase(0, size);
    return {.size_bytes = size};
  }
  IoResult write(std::span<const std::span<const std::byte>> pieces) override {
    IoResult result;
    for (const auto piece : pieces) {
      out_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      result.size_bytes += piece.size();
    }
    return result;
  }
  void want_read() override {}
  void want_write() override {}
  bool is_peer_local() const override { return true; }
  std::string peer() const override { return "a string"; }

 private:
  IoLoop& loop_;
  std::string& in_;
  std::string& out_;
};

TEST(Tls, AWriteContinuesAfterAReadCompletesTheHandshake) {
  struct Events final : ConnectionEvents {
    void on_readable() override {}
    void on_writable() override { is_writable = true; }
    bool is_writable = false;
  };
  IoThreads threads(1);
  IoLoop& loop = threads.loop(0);
  std::string up;
  std::string down;
  Events events;
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
  const std::string text = "settings";
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  ASSERT_TRUE(loop.run_and_wait([&] {
    client = make_tls_connection(std::make_unique<Pipe>(loop, down, up),
                                 TlsContext::client(client_tls(), {"test"}).value(), "localhost");
    server = make_tls_connection(std::make_unique<Pipe>(loop, up, down),
                                 TlsContext::server(server_tls(), {"test"}).value(), {});
    server->set_events(&events);
    std::byte into[64];
    EXPECT_EQ(client->read(into).size_bytes, 0u);          // sends the client's hello
    EXPECT_EQ(server->write({&piece, 1}).size_bytes, 0u);  // answers it, and waits for the client
    server->want_write();
    EXPECT_EQ(client->write({&piece, 1}).size_bytes, text.size());  // ends the handshake
    EXPECT_EQ(server->read(into).size_bytes, text.size());
  }));
  ASSERT_TRUE(loop.run_and_wait([&] {
    EXPECT_TRUE(events.is_writable);  // a task that was posted before has run
    EXPECT_EQ(server->write({&piece, 1}).size_bytes, text.size());
    client.reset();
    server.reset();
  }));
}

// The socket stays open, so it gives no event for what the read of the text has taken as well.
TEST(Tls, AnEndThatArrivesWithTheLastBytesIsToldToTheReader) {
  struct Events final : ConnectionEvents {
    void on_readable() override { is_readable = true; }
    void on_writable() override {}
    bool is_readable = false;
  };
  IoThreads threads(1);
  IoLoop& loop = threads.loop(0);
  const std::string text = "the last words";
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  for (const bool is_damaged : {false, true}) {
    std::string up;
    std::string down;
    Events events;
    std::unique_ptr<Connection> client;
    std::unique_ptr<Connection> server;
    std::byte into[64];
    ASSERT_TRUE(loop.run_and_wait([&] {
      client = make_tls_connection(std::make_unique<Pipe>(loop, down, up),
                                   TlsContext::client(client_tls(), {"test"}).value(), "localhost");
      server = make_tls_connection(std::make_unique<Pipe>(loop, up, down),
                                   TlsContext::server(server_tls(), {"test"}).value(), {});
      server->set_events(&events);
      EXPECT_EQ(client->read(into).size_bytes, 0u);                   // sends the client's hello
      EXPECT_EQ(server->read(into).size_bytes, 0u);                   // answers it
      EXPECT_EQ(client->write({&piece, 1}).size_bytes, text.size());  // ends the handshake
      if (is_damaged) {
        up += std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x');  // a record
      } else {
        client.reset();  // says goodbye
      }
      EXPECT_EQ(server->read(into).size_bytes, text.size());
      server->want_read();
    }));
    ASSERT_TRUE(loop.run_and_wait([&] {
      EXPECT_TRUE(events.is_readable);  // a task that was posted before has run
      const IoResult end = server->read(into);
      EXPECT_EQ(end.size_bytes, 0u);
      EXPECT_EQ(end.is_end, !is_damaged);
      EXPECT_EQ(end.status.code(), is_damaged ? StatusCode::kUnavailable : StatusCode::kOk);
      client.reset();
      server.reset();
    }));
  }
}

TEST(Tls, AStrangersCertificateIsRefused) {
  TlsServerOptions server = server_tls();
  server.certificate_chain = tls_text("stranger.pem");
  server.private_key = tls_text("stranger_key.pem");
  const Status status = handshake_status(server, client_tls());
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(status.message().find("self-signed"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("authorities"), std::string::npos) << status.message();
}

TEST(Tls, ACertificateForAnotherNameIsRefused) {
  TlsClientOptions client = client_tls();
  client.server_name = "replay.local";
  const Status status = handshake_status(server_tls(), client);
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(status.message().find("'replay.local': hostname mismatch"), std::string::npos)
      << status.message();
  client.server_name = "127.0.0.1";
  EXPECT_TRUE(handshake_status(server_tls(), client).ok());
  client.server_name = "127.0.0.2";
  EXPECT_FALSE(handshake_status(server_tls(), client).ok());
}

TEST(Tls, ClientAuthoritiesAdmitOnlyTheirOwnClients) {
  TlsServerOptions server = server_tls();
  server.client_authorities = tls_text("authority.pem");
  TlsClientOptions client = client_tls();
  EXPECT_FALSE(handshake_status(server, client).ok());
  client.certificate_chain = tls_text("stranger.pem");
  client.private_key = tls_text("stranger_key.pem");
  EXPECT_FALSE(handshake_status(server, client).ok());
  client.certificate_chain = tls_text("client.pem");
  client.private_key = tls_text("client_key.pem");
  EXPECT_TRUE(handshake_status(server, client).ok());
}

TEST(Tls, AClientOfAnotherProtocolIsRefused) {
  EXPECT_EQ(handshake_status(server_tls(), client_tls(), {"other"}).code(),
            StatusCode::kFailedPrecondition);
}

TEST(Tls, AnExpiredOrFutureCertificateIsRefusedBeforeUse) {
  for (const auto& [name, what] : {std::pair("expired", "was valid until Jan  1 00:00:00 2001"),
                                   std::pair("early", "is valid from Jan  1 00:00:00 2100")}) {
    const std::string chain = tls_text(std::string(name) + ".pem");
    const std::string key = tls_text(std::string(name) + "_key.pem");
    for (const Status& status : {TlsContext::server({chain, key, {}}, {}).status(),
                                 TlsContext::client({{}, chain, key, {}}, {}).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    }
  }
}

TEST(Tls, RefusesInvalidCertificatesAndKeys) {
  const auto refusal = [](const std::string& chain, const std::string& key,
                          const std::string& authorities = {}) {
    return TlsContext::server({chain, key, authorities}, {}).status().message();
  };
  const std::string chain = tls_text("server.pem");
  const std::string key = tls_text("server_key.pem");
  EXPECT_NE(refusal("", "").find("needs a certificate"), std::string::npos);
  EXPECT_NE(refusal(chain, "").find("one is missing"), std::string::npos);
  EXPECT_NE(refusal("nonsense", key).find("not valid PEM"), std::string::npos);
  EXPECT_NE(refusal(chain, "nonsense").find("private key is not valid PEM"), std::string::npos);
  EXPECT_NE(refusal(chain, tls_text("client_key.pem")).find("does not fit"), std::string::npos);
  EXPECT_NE(refusal(chain, key, "nonsense").find("authorities"), std::string::npos);
}

}  // namespace
}  // namespace reverie
