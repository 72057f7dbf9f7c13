// What every transport between two peers must do. A transport joins by giving a function that
// configures peers to use it.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/value_writer.h"
#include "tests/support/number_values.h"

namespace reverie::test {

struct TransportCase {
  std::string name;
  std::string transport;                       // its name in PeerInfo
  std::function<void(Peer::Options&)> choose;  // makes this the only allowed transport
  bool is_tcp = false;
};

inline void PrintTo(const TransportCase& one, std::ostream* out) {
  *out << one.name;
}

class TransportSuite : public ::testing::TestWithParam<TransportCase> {
 protected:
  static constexpr Duration kPatience = std::chrono::seconds(60);
  using Bytes = std::vector<std::byte>;

  std::unique_ptr<Peer> make(const std::string& name) const {
    Peer::Options options;
    options.name = name;
    GetParam().choose(options);
    Result<std::unique_ptr<Peer>> peer = Peer::make(options);
    EXPECT_TRUE(peer.ok()) << peer.status().to_string();
    return std::move(peer).value();
  }
  std::string listening(Peer& peer) const {
    const Result<std::string> address = peer.listen(
        GetParam().is_tcp ? "127.0.0.1:0" : format("unix:@transport-{}", random_seed()));
    EXPECT_TRUE(address.ok()) << address.status().to_string();
    return address.ok() ? *address : std::string();
  }

  static CallResult call(Peer& client, const std::string& function, Payload payload) {
    CallOptions options;
    options.deadline = Clock::system().now() + kPatience;
    return client.sync("server", function, std::move(payload), options);
  }
  // Calls until messages use the transport of the case.
  void settle(Peer& client) const {
    const TimePoint until = Clock::system().now() + kPatience;
    std::string way;
    while (way != GetParam().transport && Clock::system().now() < until) {
      EXPECT_EQ(call(client, "nothing", {}).kind, CallResult::Kind::kAnswer);
      way = client.peers().empty() ? "" : client.peers().front().transport;
    }
    EXPECT_EQ(way, GetParam().transport);
    // The first large array causes a request for an arena; a later one can use it.
    for (int i = 0; i < 4; ++i) (void)call(client, "nothing", array({filled(300'000, i)}));
  }

  static Bytes filled(std::size_t size, int seed) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::byte>(i * 31 + (i >> 13u) + static_cast<std::size_t>(seed));
    }
    return bytes;
  }
  static Payload array(const std::vector<Bytes>& pieces) {
    Payload payload;
    ValueWriter writer(payload);
    writer.begin(ValueKind::kTuple, pieces.size());
    for (const Bytes& bytes : pieces) {
      const std::int64_t shape[] = {static_cast<std::int64_t>(bytes.size())};
      writer.tensor(DType::kUInt8, shape, bytes, TensorMaker::kNumpy);
    }
    return payload;
  }
  static bool shows(const Payload& payload, const Bytes& bytes) {
    return payload.bulk.size() == 1 && payload.bulk[0].bytes.size() == bytes.size() &&
           std::memcmp(payload.bulk[0].bytes.data(), bytes.data(), bytes.size()) == 0;
  }
  void define(const std::string& function, Peer::Handler handler) const {
    EXPECT_TRUE(server_->define(function, std::move(handler)).ok());
  }
  // Starts a connected server and client. Handlers must be defined before.
  void start() {
    define("nothing", [this](Request request) { server_->answer(request.id, {}); });
    EXPECT_TRUE(client_->connect(listening(*server_)).ok());
    settle(*client_);
  }

  std::unique_ptr<Peer> server_ = make("server");
  std::unique_ptr<Peer> client_ = make("client");
};

TEST_P(TransportSuite, CarriesMessagesOfEverySizeBothWays) {
  define("echo", [this](Request request) {
    server_->answer(request.id, std::move(request.message.payload));
  });
  start();
  for (const std::size_t size :
       {1ul, 63ul, 4096ul, 65'537ul, 131'071ul, 131'072ul, 1'000'001ul, 20'000'003ul}) {
    const Bytes sent = filled(size, 3);
    const CallResult result = call(*client_, "echo", array({sent}));
    ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
    EXPECT_TRUE(shows(result.payload, sent)) << size;
  }
  // Two arrays in one message, each aligned.
  const CallResult result = call(*client_, "echo", array({filled(100'001, 1), filled(200'003, 2)}));
  ASSERT_EQ(result.payload.bulk.size(), 1u);
  const std::span<const std::byte> both = result.payload.bulk[0].bytes;
  ASSERT_EQ(both.size(), Payload::padded(100'001) + 200'003);
  EXPECT_EQ(std::memcmp(both.data(), filled(100'001, 1).data(), 100'001), 0);
  EXPECT_EQ(std::memcmp(both.data() + Payload::padded(100'001), filled(200'003, 2).data(), 200'003),
            0);
}

TEST_P(TransportSuite, DeliversTheCallsOfAPeerInOrder) {
  Mutex mutex;  // for `came`; the order must not depend on it
  std::vector<std::int64_t> came;
  define("next", [&](Request request) {
    MutexLock lock(mutex);
    came.push_back(number_of(request.message.payload));
    server_->answer(request.id, {});
  });
  start();
  constexpr std::int64_t kCalls = 2000;
  std::atomic<std::int64_t> left{kCalls};
  for (std::int64_t i = 0; i < kCalls; ++i) {
    // A mix of sizes: through the arena, through the ring, and small ones.
    Payload payload = number_payload(i);
    if (i % 50 == 0) payload.bulk = array({filled(200'000, 0)}).bulk;
    if (i % 50 == 7) payload.bulk = array({filled(70'000, 0)}).bulk;
    ASSERT_TRUE(client_
                    ->call("server", "next", std::move(payload), {},
                           [&](CallResult result) {
                             EXPECT_EQ(result.kind, CallResult::Kind::kAnswer);
                             if (left.fetch_sub(1) == 1) left.notify_all();
                           })
                    .ok());
  }
  for (std::int64_t seen = left.load(); seen > 0; seen = left.load()) left.wait(seen);
  MutexLock lock(mutex);
  ASSERT_EQ(came.size(), static_cast<std::size_t>(kCalls));
  for (std::int64_t i = 0; i < kCalls; ++i) ASSERT_EQ(came[static_cast<std::size_t>(i)], i);
}

TEST_P(TransportSuite, ArraysBelongToTheReceiverHoweverLongTheyAreKept) {
  Mutex mutex;
  std::vector<Payload> kept;
  define("keep", [&](Request request) {
    MutexLock lock(mutex);
    kept.push_back(std::move(request.message.payload));
    server_->answer(request.id, {});
  });
  define("scribble", [this](Request request) {
    const std::span<const std::byte> bytes = request.message.payload.bulk[0].bytes;
    std::memset(const_cast<std::byte*>(bytes.data()), 0xee, bytes.size());
    request.message.payload = {};
    server_->answer(request.id, {});
  });
  start();
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(call(*client_, "keep", array({filled(200'000, i)})).kind, CallResult::Kind::kAnswer);
    ASSERT_EQ(call(*client_, "scribble", array({filled(200'000, i)})).kind,
              CallResult::Kind::kAnswer);
  }
  {
    MutexLock lock(mutex);
    ASSERT_EQ(kept.size(), 40u);
  }
  for (int i = 0; i < 40; ++i)
    EXPECT_TRUE(shows(kept[static_cast<std::size_t>(i)], filled(200'000, i)));
  // Arrays stay valid after the peer that sent them is gone.
  client_.reset();
  for (int i = 0; i < 40; ++i)
    EXPECT_TRUE(shows(kept[static_cast<std::size_t>(i)], filled(200'000, i)));
  server_.reset();
  EXPECT_TRUE(shows(kept.back(), filled(200'000, 39)));
}

TEST_P(TransportSuite, BulkMayChangeOnceACopyingCallHasReturned) {
  Mutex mutex;
  Bytes came;
  define("take", [&](Request request) {
    MutexLock lock(mutex);
    const std::span<const std::byte> bytes = request.message.payload.bulk[0].bytes;
    came.assign(bytes.begin(), bytes.end());
    server_->answer(request.id, {});
  });
  start();
  for (const std::size_t size : {100'000ul, 300'000ul, 3'000'000ul}) {
    Bytes bytes = filled(size, 1);
    Payload payload;
    const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
    ValueWriter(payload).lent_tensor(DType::kUInt8, shape, bytes, TensorMaker::kNumpy, nullptr,
                                     /*may_change=*/true);
    CallOptions options;
    options.copies_bulk = true;
    std::atomic<bool> is_done{false};
    ASSERT_TRUE(client_
                    ->call("server", "take", std::move(payload), options,
                           [&](CallResult) {
                             is_done = true;
                             is_done.notify_all();
                           })
                    .ok());
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    is_done.wait(false);
    MutexLock lock(mutex);
    EXPECT_EQ(came, filled(size, 1));
  }
}

TEST_P(TransportSuite, ThreadsMayCallConcurrently) {
  define("echo", [this](Request request) {
    server_->answer(request.id, std::move(request.message.payload));
  });
  start();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 60; ++i) {
        const Bytes sent = filled(i % 3 == 0 ? 200'000 : 100, 1000 * thread + i);
        const CallResult result = call(*client_, "echo", array({sent}));
        if (!shows(result.payload, sent)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(TransportSuite, ReportsTheTransportAndTheReasonForIt) {
  start();
  const std::vector<PeerInfo> peers = client_->peers();
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].transport, GetParam().transport);
  EXPECT_FALSE(peers[0].transport_reason.empty());
}

TEST_P(TransportSuite, AnIdlePeerUsesNoCpuTime) {
  start();
  const auto spent_s = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  Mutex mutex;
  CondVar never;
  const auto pass = [&](Duration time) {
    const TimePoint until = Clock::system().now() + time;
    MutexLock lock(mutex);
    while (Clock::system().wait_until(never, mutex, until)) {
    }
  };
  pass(std::chrono::milliseconds(100));
  const double before = spent_s();
  pass(std::chrono::seconds(1));
  EXPECT_LT(spent_s() - before, 0.02);  // CPU time of both peers together
}

// A server in another process is killed, or stopped, while it has calls to answer.
TEST_P(TransportSuite, ADeadPeerFailsItsCallsWithinTwoSeconds) {
  client_.reset();
  server_.reset();  // no thread of either peer may run at the fork
  for (const int signal : {SIGKILL, SIGSTOP}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto server = make("server");
      const auto answer = [&](Request request) { server->answer(request.id, {}); };
      if (!server->define("nothing", answer).ok()) ::_exit(1);
      if (!server->define("never", [](Request) {}).ok()) ::_exit(1);
      const std::string address = listening(*server);
      if (::write(ends[1], address.data(), address.size()) < 0) ::_exit(1);
      while (true) ::pause();
    }
    char text[256];
    const ssize_t size = ::read(ends[0], text, sizeof(text));
    ::close(ends[0]);
    ::close(ends[1]);
    ASSERT_GT(size, 0);
    const auto client = make("client");
    ASSERT_TRUE(client->connect({text, static_cast<std::size_t>(size)}).ok());
    settle(*client);
    std::atomic<int> left{20};
    for (int i = 0; i < 20; ++i) {
      Payload payload = i % 2 == 0 ? array({filled(200'000, i)}) : number_payload(i);
      ASSERT_TRUE(client
                      ->call("server", "never", std::move(payload), {},
                             [&](CallResult result) {
                               EXPECT_EQ(result.status.code(), StatusCode::kUnavailable);
                               left.fetch_sub(1);
                               left.notify_all();
                             })
                      .ok());
    }
    EXPECT_EQ(call(*client, "nothing", {}).kind, CallResult::Kind::kAnswer);
    const TimePoint begin = Clock::system().now();
    ::kill(child, signal);
    for (int seen = left.load(); seen > 0; seen = left.load()) left.wait(seen);
    EXPECT_LT(Clock::system().now() - begin, std::chrono::seconds(4));  // 2 s on a quiet machine
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

}  // namespace reverie::test
