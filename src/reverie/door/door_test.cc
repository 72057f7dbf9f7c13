#include "reverie/door/door.h"

#include <atomic>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "reverie/net/address.h"
#include "tests/support/certificates.h"
#include "tests/support/connection_end.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

using test::ConnectionEnd;
using test::eventually;

class DoorTest : public ::testing::Test {
 protected:
  // A connection that the door handed to a protocol.
  struct Guest {
    std::string protocol;
    std::string received;
    std::shared_ptr<void> place;
    std::unique_ptr<ConnectionEnd> end;
  };

  ~DoorTest() override {
    door_.reset();
    guests_.clear();
  }

  void open(std::vector<std::pair<std::string, std::string>> protocols, DoorOptions options = {}) {
    door_ = std::make_unique<Door>(threads_, std::move(options));
    for (const auto& [name, first_bytes] : protocols) {
      door_->add_protocol({name, {first_bytes}, [this, name = name](AcceptedConnection incoming) {
                             auto held = std::make_shared<AcceptedConnection>(std::move(incoming));
                             MutexLock lock(mutex_);
                             // The test's thread takes it over, since an end waits for its loop.
                             came_.emplace_back(name, std::move(held));
                           }});
    }
  }
  std::string listen(const std::string& address = "127.0.0.1:0") {
    return door_->listen({address}).value().front();
  }
  // Connects to the address; with `tls` as a client that offers `alpn`.
  std::unique_ptr<ConnectionEnd> connect_to(const std::string& address,
                                            const std::vector<std::string>& alpn = {}) {
    std::shared_ptr<const TlsContext> tls;
    if (!alpn.empty()) tls = TlsContext::client(test::client_tls(), alpn).value();
    std::promise<std::unique_ptr<Connection>> made;
    ConnectHandle handle;
    IoLoop& loop = threads_.loop(0);
    loop.run_and_wait([&] {
      handle = connect(loop, parse_endpoint(address).value(), tls, {}, std::chrono::seconds(60),
                       [&](Result<std::unique_ptr<Connection>> connection) {
                         made.set_value(std::move(connection).value());
                       });
    });
    auto connection = made.get_future().get();
    loop.run_and_wait([&] { handle.reset(); });
    return std::make_unique<ConnectionEnd>(std::move(connection));
  }
  // Whether the door closes the connection soon.
  static bool is_hung_up_on(ConnectionEnd& end) {
    return end.wait_for_end().code() != StatusCode::kDeadlineExceeded;
  }
  Guest& await_guest() {
    std::pair<std::string, std::shared_ptr<AcceptedConnection>> came;
    REVERIE_CHECK(eventually([&] {
      MutexLock lock(mutex_);
      if (came_.empty()) return false;
      came = std::move(came_.front());
      came_.erase(came_.begin());
      return true;
    }));
    Guest incoming{came.first, std::move(came.second->received), std::move(came.second->place),
                   std::make_unique<ConnectionEnd>(std::move(came.second->connection))};
    return guests_.emplace_back(std::move(incoming));
  }

  // A process with 288 descriptors at most, while it exists. They run out for a door when 192 are
  // in use.
  class FewDescriptors {
   public:
    FewDescriptors() {
      REVERIE_CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
      rlimit few = before_;
      few.rlim_cur = 288;
      REVERIE_CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    ~FewDescriptors() { REVERIE_CHECK(::setrlimit(RLIMIT_NOFILE, &before_) == 0); }

   private:
    rlimit before_{};
  };
  IoThreads threads_{2};
  std::unique_ptr<Door> door_;
  std::list<Guest> guests_;
  Mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<AcceptedConnection>>> came_
      REVERIE_GUARDED_BY(mutex_);
};

TEST_F(DoorTest, ASingleProtocolGetsAConnectionBeforeItsFirstByte) {
  open({{"h2", "PRI"}});
  const auto client = connect_to(listen());
  const Guest& incoming = await_guest();
  EXPECT_EQ(incoming.received, "");
  incoming.end->send("hello");
  client->read_on();
  EXPECT_EQ(client->received(5), "hello");
}

TEST_F(DoorTest, FirstBytesSelectTheProtocolHoweverTheyAreSplit) {
  open({{"h2", "PRI * HTTP/2.0"}, {"http/1.1", "GET "}});
  const std::string address = listen();
  const auto page = connect_to(address);
  page->send("GET / HTTP/1.1\r\n");
  EXPECT_EQ(await_guest().protocol, "http/1.1");
  EXPECT_EQ(guests_.front().received.substr(0, 4), "GET ");

  const auto caller = connect_to(address);
  caller->send("PRI * ");
  const auto third = connect_to(address);
  third->send("GET /x");
  EXPECT_EQ(await_guest().protocol, "http/1.1") << "the slow one keeps no other waiting";
  caller->send("HTTP/2.0\r\n");
  const Guest& incoming = await_guest();
  EXPECT_EQ(incoming.protocol, "h2");
  incoming.end->read_on();
  EXPECT_EQ(incoming.received + incoming.end->received(16 - incoming.received.size()),
            "PRI * HTTP/2.0\r\n")
      << "no byte is lost between the door and the protocol";
}

TEST_F(DoorTest, BytesOfAnUnknownProtocolCloseTheConnection) {
  open({{"h2", "PRI * HTTP/2.0"}, {"http/1.1", "GET "}});
  const auto client = connect_to(listen("unix:@reverie-door-test"));
  client->send("SSH-2.0-");
  client->read_on();
  EXPECT_TRUE(is_hung_up_on(*client));
  EXPECT_EQ(client->received(1), "");
  EXPECT_TRUE(eventually([&] { return door_->connection_count() == 0; }));
}

TEST_F(DoorTest, ASilentConnectionIsClosedAfterATimeout) {
  DoorOptions options;
  options.first_bytes_timeout = std::chrono::milliseconds(1);
  open({{"h2", "PRI"}, {"http/1.1", "GET "}}, options);
  const auto client = connect_to(listen());
  client->read_on();
  EXPECT_TRUE(is_hung_up_on(*client));
  EXPECT_TRUE(eventually([&] { return door_->connection_count() == 0; }));
}

TEST_F(DoorTest, OverTlsTheClientOrItsFirstBytesSelectTheProtocol) {
  DoorOptions options;
  options.tls = test::server_tls();
  open({{"h2", "PRI"}, {"http/1.1", "GET "}}, options);
  const std::string address = listen();
  const auto named = connect_to(address, {"http/1.1"});
  named->send("?");  // begins the handshake; no protocol begins with this byte
  EXPECT_EQ(await_guest().protocol, "http/1.1");
  const auto preferred = connect_to(address, {"http/1.1", "h2"});
  preferred->send("?");
  EXPECT_EQ(await_guest().protocol, "h2") << "the door's first protocol";
}

TEST_F(DoorTest, ListeningToOtherMachinesWithoutASecretIsRefused) {
  open({{"h2", "PRI"}});
  const Status refused = door_->check({"0.0.0.0:0"});
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(door_->listen({"127.0.0.1:0", "0.0.0.0:0"}).status(), refused);
  DoorOptions open_to_all;
  open_to_all.is_insecure_allowed = true;
  open({{"h2", "PRI"}}, open_to_all);
  EXPECT_TRUE(door_->check({"0.0.0.0:0"}).ok());
}

TEST_F(DoorTest, AConnectionIsCountedUntilItsProtocolReleasesIt) {
  DoorOptions options;
  options.connection_count_max = 1;
  open({{"h2", "PRI"}}, options);
  const std::string address = listen();
  const auto first = connect_to(address);
  Guest& incoming = await_guest();
  EXPECT_EQ(door_->connection_count(), 1u);
  const auto second = connect_to(address);
  second->read_on();
  EXPECT_TRUE(is_hung_up_on(*second));
  EXPECT_EQ(second->received(1), "");
  incoming.place.reset();
  EXPECT_EQ(door_->connection_count(), 0u);
  const auto third = connect_to(address);
  await_guest();
}

TEST_F(DoorTest, WhenDescriptorsRunOutTheOldestSilentConnectionMakesWayAndNoIdleOne) {
  DoorOptions options;
  options.first_bytes_timeout = std::chrono::hours(1);
  door_ = std::make_unique<Door>(threads_, std::move(options));
  std::atomic<int> asked{0};
  std::atomic<int> served{0};
  door_->add_protocol({.name = "h2",
                       .first_bytes = {"PRI"},
                       .serve = [](const AcceptedConnection&) {},
                       .make_way = [&] { return ++asked > 0; }});
  door_->add_protocol({.name = "http/1.1",
                       .first_bytes = {"GET "},
                       .serve = [&](const AcceptedConnection&) { ++served; }});
  const std::string address = listen();
  const FewDescriptors few;
  // Each takes two descriptors, since both of its ends are in this process.
  std::vector<std::unique_ptr<ConnectionEnd>> silent;
  for (int i = 0; i < 120; ++i) silent.push_back(connect_to(address));
  silent.front()->read_on();
  EXPECT_TRUE(is_hung_up_on(*silent.front())) << "the oldest";
  const auto caller = connect_to(address);
  caller->send("GET /");
  EXPECT_TRUE(eventually([&] { return served == 1; })) << "the newest";
  EXPECT_EQ(asked, 0) << "an idle connection was closed in favour of silent ones";
  door_.reset();
}

TEST_F(DoorTest, TheProtocolWhoseConnectionIsIdleForLongestMakesWay) {
  const TimePoint now = Clock::system().now();
  std::atomic<int> asked{0};
  std::atomic<int> asked_others{0};
  door_ = std::make_unique<Door>(threads_, DoorOptions());
  const auto add = [&](const char* name, std::atomic<int>& count, std::optional<TimePoint> since) {
    door_->add_protocol(
        {.name = name,
         .first_bytes = {std::string(name)},
         .serve =
             [this](AcceptedConnection incoming) {
               MutexLock lock(mutex_);
               came_.emplace_back("one", std::make_shared<AcceptedConnection>(std::move(incoming)));
             },
         .make_way = [&count] { return ++count > 0; },
         .idle_since = [since] { return since; }});
  };
  add("one", asked_others, now);
  add("two", asked, now + std::chrono::seconds(-5));
  add("three", asked_others, std::nullopt);
  const std::string address = listen();
  const FewDescriptors few;
  std::vector<std::unique_ptr<ConnectionEnd>> callers;
  while (asked + asked_others == 0) {
    ASSERT_LT(callers.size(), 120u) << "descriptors have not run out";
    callers.push_back(connect_to(address));
    callers.back()->send("one");
    EXPECT_EQ(await_guest().protocol, "one");
  }
  EXPECT_EQ(asked_others, 0);
  door_.reset();
}

TEST_F(DoorTest, AClosedDoorRefusesToListenAndClosesSilentConnections) {
  open({{"h2", "PRI"}, {"http/1.1", "GET "}});
  const std::string address = listen();
  const auto silent = connect_to(address);
  ASSERT_TRUE(eventually([&] { return door_->connection_count() == 1; }));
  door_->close();
  silent->read_on();
  EXPECT_TRUE(is_hung_up_on(*silent));
  EXPECT_EQ(door_->connection_count(), 0u);
  EXPECT_EQ(door_->listen({"127.0.0.1:0"}).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace reverie
