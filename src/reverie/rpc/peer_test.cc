#include "reverie/rpc/peer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/net/ucx_connection.h"
#include "reverie/os/byte_ring.h"
#include "reverie/tensor/value_writer.h"
#include "tests/scale.h"
#include "tests/support/cutting_proxy.h"
#include "tests/support/eventually.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/number_values.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

void let_pass(Duration time) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  const TimePoint until = Clock::system().now() + time;
  while (Clock::system().wait_until(never, mutex, until)) {
  }
}

// Collects the results of calls.
class Results {
 public:
  Peer::Done next() {
    {
      MutexLock lock(mutex_);
      ++expected_;
    }
    return [this](CallResult result) {
      MutexLock lock(mutex_);
      results_.push_back(std::move(result));
      changed_.notify_all();
    };
  }
  std::vector<CallResult> all() {
    const TimePoint until = Clock::system().now() + kPatience;
    MutexLock lock(mutex_);
    while (results_.size() < expected_ && Clock::system().wait_until(changed_, mutex_, until)) {
    }
    EXPECT_EQ(results_.size(), expected_);
    return std::move(results_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::size_t expected_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<CallResult> results_ REVERIE_GUARDED_BY(mutex_);
};

std::size_t count_of(const std::vector<CallResult>& results, StatusCode code) {
  return static_cast<std::size_t>(
      std::count_if(results.begin(), results.end(),
                    [code](const CallResult& result) { return result.status.code() == code; }));
}

Peer::Options named(std::string name, std::string token = {}, bool uses_unix = true,
                    bool uses_tcp = true) {
  Peer::Options options;
  options.name = std::move(name);
  options.token = std::move(token);
  options.uses_unix = uses_unix;
  options.uses_tcp = uses_tcp;
  return options;
}

std::unique_ptr<Peer> make_peer(const Peer::Options& options) {
  Result<std::unique_ptr<Peer>> peer = Peer::make(options);
  EXPECT_TRUE(peer.ok()) << peer.status().to_string();
  return std::move(peer).value();
}

std::string listening(Peer& peer, const std::string& address) {
  const Result<std::string> chosen = peer.listen(address);
  EXPECT_TRUE(chosen.ok()) << chosen.status().to_string();
  return chosen.ok() ? *chosen : std::string();
}

void define_double(Peer& peer) {
  const Status status = peer.define("double", [&peer](Request request) {
    peer.answer(request.id, number_payload(2 * number_of(request.message.payload)));
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// The tests run for every way to reach a peer.
class PeerSuite : public ::testing::TestWithParam<std::string> {
 protected:
  PeerSuite() {
    address_ = listening(*server_, any_address());
    EXPECT_TRUE(client_->connect(address_).ok());
    define_double(*server_);
  }

  // UCX begins with TCP.
  static bool is_tcp() { return GetParam() == "tcp" || GetParam() == "ucx"; }
  static std::string any_address() {
    return is_tcp() ? "127.0.0.1:0" : format("unix:@reverie-{}", random_seed());
  }
  Peer::Options options(const std::string& name) {
    Peer::Options made = named(name, "secret", !is_tcp(), is_tcp());
    made.uses_ucx = GetParam() == "ucx";
    made.uses_shared_memory = GetParam() == "shm";
    made.dead_after = kPatience;  // a thread may lack a core for long
    return made;
  }

  const std::unique_ptr<Peer> server_ = make_peer(options("server"));
  const std::unique_ptr<Peer> client_ = make_peer(options("client"));
  std::string address_;
};

std::vector<std::string> ways() {
  std::vector<std::string> all = {"tcp", "unix", "shm"};
  if (check_ucx().ok()) all.push_back("ucx");
  return all;
}

INSTANTIATE_TEST_SUITE_P(Transports, PeerSuite, ::testing::ValuesIn(ways()),
                         [](const auto& entry) { return entry.param; });

TEST_P(PeerSuite, CarriesCallsAndAnswers) {
  Results results;
  std::int64_t expected = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(client_->call("server", "double", number_payload(i), {}, results.next()).ok());
    expected += 2 * i;
  }
  std::int64_t sum = 0;
  for (const CallResult& result : results.all()) {
    EXPECT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
    sum += number_of(result.payload);
  }
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(client_->pending_calls(), 0u);
}

// A group's member may listen only when it joins, long after it connected.
TEST_P(PeerSuite, FindsAPeerThatListensOnlyAfterItConnected) {
  const std::unique_ptr<Peer> late = make_peer(options("late"));
  ASSERT_TRUE(late->connect(address_).ok());
  Results results;
  ASSERT_TRUE(late->call("server", "double", number_payload(1), {}, results.next()).ok());
  EXPECT_EQ(results.all().front().kind, CallResult::Kind::kAnswer);
  define_double(*late);
  listening(*late, any_address());
  Results of_client;
  ASSERT_TRUE(client_->call("late", "double", number_payload(2), {}, of_client.next()).ok());
  const std::vector<CallResult> got = of_client.all();
  ASSERT_EQ(got.front().kind, CallResult::Kind::kAnswer) << got.front().status.to_string();
  EXPECT_EQ(number_of(got.front().payload), 4);
}

TEST_P(PeerSuite, CarriesBulkSeparatelyFromTheHead) {
  constexpr std::size_t kSize = 20'000'003;
  ASSERT_TRUE(server_
                  ->define("echo",
                           [this](Request request) {
                             EXPECT_EQ(request.message.payload.bulk.size(), 1u);
                             server_->answer(request.id, std::move(request.message.payload));
                           })
                  .ok());
  auto bytes = std::make_shared<std::vector<std::byte>>(kSize);
  for (std::size_t i = 0; i < kSize; ++i) (*bytes)[i] = static_cast<std::byte>(i * 31 + (i >> 13u));
  Payload payload;
  const std::int64_t shape[] = {static_cast<std::int64_t>(kSize)};
  ValueWriter(payload).lent_tensor(DType::kUInt8, shape, *bytes, TensorMaker::kNumpy, bytes);
  Results results;
  ASSERT_TRUE(client_->call("server", "echo", std::move(payload), {}, results.next()).ok());
  const std::vector<CallResult> got = results.all();
  ASSERT_EQ(got.size(), 1u);
  ASSERT_EQ(got[0].payload.bulk.size(), 1u) << got[0].status.to_string();
  const auto echoed = got[0].payload.bulk[0].bytes;
  ASSERT_EQ(echoed.size(), kSize);
  EXPECT_EQ(std::memcmp(echoed.data(), bytes->data(), kSize), 0);
}

// One of the threads reads for all; whichever it is, each gets its own answer.
TEST_P(PeerSuite, ThreadsThatWaitAtTheSameTimeGetTheirAnswers) {
  std::vector<std::jthread> threads;
  for (std::int64_t t = 0; t < 6; ++t) {
    threads.emplace_back([this, t] {
      for (std::int64_t i = 0; i < 300; ++i) {
        const CallResult result = client_->sync("server", "double", number_payload(i * t), {});
        ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
        EXPECT_EQ(number_of(result.payload), 2 * i * t);
      }
    });
  }
}

TEST_P(PeerSuite, ClosingEndsTheWaitsOfAllThreads) {
  std::atomic<int> held{0};
  ASSERT_TRUE(server_->define("hold", [&](Request) { ++held; }).ok());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this] {
      EXPECT_EQ(client_->sync("server", "hold", {}, {}).status.code(), StatusCode::kCancelled);
    });
  }
  ASSERT_TRUE(test::eventually([&] { return held == 3; }));
  client_->close();
}

// A thread that yields, as those do that wait for requests, does not keep a caller's thread from
// reading its own answer.
TEST_P(PeerSuite, AThreadThatWaitsForNothingHindersNoCaller) {
  std::atomic<bool> is_over{false};
  std::jthread idle([&] {
    while (!is_over) {
      (void)client_->wait([&] { return is_over.load(); },
                          Clock::system().now() + std::chrono::milliseconds(100),
                          /*yields=*/true);
    }
  });
  for (std::int64_t i = 0; i < 300; ++i) {
    const CallResult result = client_->sync("server", "double", number_payload(i), {});
    ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
    EXPECT_EQ(number_of(result.payload), 2 * i);
  }
  is_over = true;
  client_->wake();
}

// More than a socket's buffers hold, in both directions, while threads wait and nothing else reads.
TEST_P(PeerSuite, LongMessagesInBothDirectionsDoNotBlockEachOther) {
  ASSERT_TRUE(server_
                  ->define("echo",
                           [this](Request request) {
                             server_->answer(request.id, std::move(request.message.payload));
                           })
                  .ok());
  const std::vector<std::byte> bytes(3'000'000, std::byte{5});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, &bytes] {
      for (int i = 0; i < 10; ++i) {
        Payload payload;
        ValueWriter(payload).bytes(bytes);
        const CallResult result = client_->sync("server", "echo", std::move(payload), {});
        ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
        EXPECT_GE(result.payload.head.size(), bytes.size());
      }
    });
  }
}

// The next reader, the I/O thread or the same thread, continues within the message.
TEST_P(PeerSuite, AThreadMayStopWaitingInTheMiddleOfAMessage) {
  ASSERT_TRUE(server_
                  ->define("echo",
                           [this](Request request) {
                             server_->answer(request.id, std::move(request.message.payload));
                           })
                  .ok());
  const std::vector<std::byte> bytes(3'000'000, std::byte{6});
  for (int i = 0; i < 10; ++i) {
    Payload payload;
    ValueWriter(payload).bytes(bytes);
    const auto is_done = std::make_shared<std::atomic<bool>>(false);
    ASSERT_TRUE(client_
                    ->call("server", "echo", std::move(payload), {},
                           [this, is_done, &bytes](CallResult result) {
                             EXPECT_EQ(result.kind, CallResult::Kind::kAnswer);
                             EXPECT_GE(result.payload.head.size(), bytes.size());
                             is_done->store(true);
                             client_->wake();
                           })
                    .ok());
    while (!*is_done) {
      (void)client_->wait([&] { return is_done->load(); },
                          Clock::system().now() + std::chrono::microseconds(100));
    }
  }
}

// The I/O thread keeps the time, and another thread reads. While that thread is late, the other
// side is not taken for dead.
TEST_P(PeerSuite, AThreadThatReadsLateLosesNoPeer) {
  if (GetParam() == "ucx") GTEST_SKIP() << "its I/O thread alone reads";
  std::atomic<int> lost{0};
  const auto patient = [this](const std::string& name) {
    Peer::Options made = options(name);
    made.dead_after = std::chrono::milliseconds(1500);
    return make_peer(made);
  };
  const std::unique_ptr<Peer> reader = patient("reader");
  const std::unique_ptr<Peer> caller = patient("caller");
  reader->set_on_event([&](Peer::EventKind kind, const std::string&) {
    if (kind == Peer::EventKind::kLost) ++lost;
  });
  std::atomic<bool> is_over{false};
  std::atomic<bool> was_late{false};
  std::jthread waits([&] {
    while (!is_over) {
      (void)reader->wait([&] { return is_over.load(); }, TimePoint::max());
    }
  });
  const std::thread::id late_thread = waits.get_id();
  EXPECT_TRUE(reader
                  ->define("take_long",
                           [&](Request request) {
                             // The I/O thread reads for moments in which no other thread does.
                             if (std::this_thread::get_id() == late_thread) {
                               let_pass(std::chrono::milliseconds(2500));
                               was_late = true;
                             }
                             reader->answer(request.id, {});
                           })
                  .ok());
  EXPECT_TRUE(caller->connect(listening(*reader, any_address())).ok());
  EXPECT_TRUE(test::eventually([&] {
    const CallResult result = caller->sync("reader", "take_long", {}, {});
    EXPECT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
    return was_late.load();
  }));
  EXPECT_EQ(lost, 0);
  is_over = true;
  reader->wake();
}

// It has written more, which no thread reads before its end is seen.
TEST_P(PeerSuite, ACallerThatIsLostWhileItsCallTakesLongCostsNoOtherPeer) {
  if (GetParam() != "shm") GTEST_SKIP() << "it has no ring";
  const auto patient = [this](const std::string& name) {
    Peer::Options made = options(name);
    made.dead_after = std::chrono::milliseconds(1500);
    return make_peer(made);
  };
  const std::unique_ptr<Peer> reader = patient("reader");
  const std::unique_ptr<Peer> other = patient("other");
  std::atomic<int> lost{0};
  other->set_on_event([&](Peer::EventKind kind, const std::string&) {
    if (kind == Peer::EventKind::kLost) ++lost;
  });
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_late{false};
  std::jthread waits([&] {
    while (!is_over) {
      (void)reader->wait([&] { return is_over.load(); }, TimePoint::max());
    }
  });
  const std::thread::id late_thread = waits.get_id();
  const auto take_long = [&](const Request& request) {
    if (std::this_thread::get_id() == late_thread && !is_late.exchange(true)) {
      let_pass(std::chrono::milliseconds(2500));
    }
    reader->answer(request.id, {});
  };
  EXPECT_TRUE(reader->define("take_long", take_long).ok());
  const std::string address = listening(*reader, format("unix:@reverie-{}", random_seed()));
  EXPECT_TRUE(other->connect(address).ok());
  EXPECT_TRUE(test::eventually([&] {
    return other->sync("reader", "take_long", {}, {}).kind == CallResult::Kind::kAnswer;
  }));
  is_late = false;
  EXPECT_TRUE(test::eventually([&] {
    const std::unique_ptr<Peer> caller = patient("caller");
    EXPECT_TRUE(caller->connect(address).ok());
    Results results;
    EXPECT_TRUE(caller->call("reader", "take_long", {}, {}, results.next()).ok());
    for (int i = 0; i < 30 && !is_late; ++i) let_pass(std::chrono::milliseconds(10));
    for (int i = 0; is_late && i < 10; ++i) {
      EXPECT_TRUE(caller->call("reader", "take_long", {}, {}, results.next()).ok());
    }
    caller->close();
    (void)results.all();
    return is_late.load();
  }));
  let_pass(std::chrono::milliseconds(2600));
  EXPECT_EQ(lost, 0);
  is_over = true;
  reader->wake();
  waits.join();
  // What their functions refer to is destroyed before them.
  other->close();
  reader->close();
}

TEST_P(PeerSuite, AnUnknownFunctionIsRefused) {
  Results results;
  ASSERT_TRUE(client_->call("server", "nothing", {}, {}, results.next()).ok());
  const std::vector<CallResult> got = results.all();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].kind, CallResult::Kind::kRemoteError);
  EXPECT_EQ(got[0].status.code(), StatusCode::kNotFound);
}

TEST_P(PeerSuite, AnAbandonedCallIsWithdrawnAtItsServer) {
  std::atomic<bool> is_withdrawn{false};
  std::atomic<bool> has_arrived{false};
  server_->set_withdrawn([&](std::span<const InboundId>) {
    is_withdrawn = true;
    is_withdrawn.notify_all();
  });
  ASSERT_TRUE(server_
                  ->define("never",
                           [&](Request) {
                             has_arrived = true;
                             has_arrived.notify_all();
                           })
                  .ok());
  Results results;
  const Result<CallId> call = client_->call("server", "never", {}, {}, results.next());
  ASSERT_TRUE(call.ok());
  has_arrived.wait(false);
  client_->cancel(*call);
  EXPECT_EQ(results.all()[0].status.code(), StatusCode::kCancelled);
  is_withdrawn.wait(false);
  server_->set_withdrawn(nullptr);
}

TEST_P(PeerSuite, TheCallsOfALostPeerAreWithdrawnTogether) {
  constexpr int kCalls = 1000;
  std::atomic<int> held{0};
  std::atomic<int> told{0};
  std::atomic<int> each{0};
  ASSERT_TRUE(server_->define("hold", [&](const Request&) { ++held; }).ok());
  server_->set_withdrawn([&](const auto requests) {
    EXPECT_EQ(requests.size(), std::size_t{kCalls});
    ++told;
  });
  const auto owner = std::make_shared<int>();
  server_->add_withdrawn(owner, [&](InboundId) { ++each; });
  Results results;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(client_->call("server", "hold", {}, {}, results.next()).ok());
  }
  ASSERT_TRUE(test::eventually([&] { return held == kCalls; }));
  client_->close();
  EXPECT_TRUE(test::eventually([&] { return told == 1 && each == kCalls; }));
  EXPECT_EQ(count_of(results.all(), StatusCode::kCancelled), std::size_t{kCalls});
  server_->close();  // while its callbacks' counters are alive
}

// The server reads nothing until the caller has written to its array again.
TEST_P(PeerSuite, ACallThatEndedSendsTheArrayAsItWas) {
  std::atomic<bool> is_blocked{false};
  std::atomic<bool> may_go_on{false};
  std::atomic<int> mixed{0};
  ASSERT_TRUE(server_
                  ->define("block",
                           [&](Request) {
                             is_blocked = true;
                             EXPECT_TRUE(test::eventually([&] { return may_go_on.load(); }));
                           })
                  .ok());
  ASSERT_TRUE(server_
                  ->define("take",
                           [&](const Request& request) {
                             const auto bytes = request.message.payload.bulk.front().bytes;
                             if (std::ranges::count(bytes, std::byte{1}) != std::ssize(bytes)) {
                               ++mixed;
                             }
                           })
                  .ok());
  ASSERT_EQ(client_->sync("server", "double", number_payload(1), {}).kind,
            CallResult::Kind::kAnswer);
  ASSERT_TRUE(client_->call("server", "block", {}, {}, [](const CallResult&) {}).ok());
  ASSERT_TRUE(test::eventually([&] { return is_blocked.load(); }));
  std::vector<std::byte> array(32'000'000, std::byte{1});
  const std::int64_t shape[] = {std::ssize(array)};
  Payload payload;
  ValueWriter(payload).lent_tensor(DType::kUInt8, shape, array, TensorMaker::kNumpy, nullptr,
                                   /*may_change=*/true);
  CallOptions options;
  options.deadline = Clock::system().now() + std::chrono::milliseconds(100);
  const CallResult late = client_->sync("server", "take", std::move(payload), options);
  EXPECT_EQ(late.status.code(), StatusCode::kDeadlineExceeded) << late.status.to_string();
  std::ranges::fill(array, std::byte{2});
  may_go_on = true;
  EXPECT_EQ(client_->sync("server", "double", number_payload(2), {}).kind,
            CallResult::Kind::kAnswer);
  EXPECT_EQ(mixed, 0);
  client_->close();
}

// While its I/O thread is busy, a peer sends only what the threads of its callers write, as they do
// if few calls are in progress.
TEST_P(PeerSuite, WithdrawnRequestsDoNotKeepACallFromBeingWrittenAtOnce) {
  if (GetParam() == "ucx") GTEST_SKIP() << "its I/O thread alone writes";
  std::atomic<int> held{0};
  std::atomic<int> withdrawn{0};
  std::atomic<bool> is_busy{false};
  std::atomic<bool> may_go_on{false};
  std::atomic<bool> has_arrived{false};
  ASSERT_TRUE(client_->define("hold", [&](const Request&) { ++held; }).ok());
  ASSERT_TRUE(client_
                  ->define("busy",
                           [&](const Request& request) {  // on the client's I/O thread
                             is_busy = true;
                             EXPECT_TRUE(test::eventually([&] { return may_go_on.load(); }, 300));
                             client_->answer(request.id, {});
                           })
                  .ok());
  ASSERT_TRUE(server_
                  ->define("arrive",
                           [&](const Request& request) {
                             has_arrived = true;
                             server_->answer(request.id, {});
                           })
                  .ok());
  client_->set_withdrawn(
      [&](const auto requests) { withdrawn += static_cast<int>(requests.size()); });
  ASSERT_EQ(client_->sync("server", "double", number_payload(1), {}).kind,
            CallResult::Kind::kAnswer);
  Results cancelled;
  std::vector<CallId> calls;
  for (int i = 0; i < 3; ++i) {
    const Result<CallId> call = server_->call("client", "hold", {}, {}, cancelled.next());
    ASSERT_TRUE(call.ok());
    calls.push_back(*call);
  }
  EXPECT_TRUE(test::eventually([&] { return held == 3; }));
  for (const CallId call : calls) server_->cancel(call);
  EXPECT_TRUE(test::eventually([&] { return withdrawn == 3; }));
  Results results;
  EXPECT_TRUE(server_->call("client", "busy", {}, {}, results.next()).ok());
  EXPECT_TRUE(test::eventually([&] { return is_busy.load(); }));
  EXPECT_TRUE(client_->call("server", "arrive", {}, {}, results.next()).ok());
  EXPECT_TRUE(test::eventually([&] { return has_arrived.load(); }));
  may_go_on = true;
  EXPECT_EQ(count_of(results.all(), StatusCode::kOk), 2u);
  EXPECT_EQ(count_of(cancelled.all(), StatusCode::kCancelled), 3u);
  client_->set_withdrawn(nullptr);
}

// The first caller waits for the I/O thread, on which the handler runs.
TEST_P(PeerSuite, AHandlerMayCloseAPeerThatIsBeingClosed) {
  std::promise<void> called;
  std::atomic<bool> has_returned{false};
  ASSERT_TRUE(client_
                  ->define("close",
                           [&](const Request&) {
                             called.set_value();
                             EXPECT_TRUE(
                                 test::eventually([&] { return !client_->check_open().ok(); }));
                             client_->close();
                             has_returned = true;
                           })
                  .ok());
  ASSERT_EQ(client_->sync("server", "double", number_payload(1), {}).kind,
            CallResult::Kind::kAnswer);
  Results results;
  ASSERT_TRUE(server_->call("client", "close", {}, {}, results.next()).ok());
  called.get_future().wait();
  client_->close();
  EXPECT_TRUE(has_returned);
  EXPECT_EQ(count_of(results.all(), StatusCode::kUnavailable), 1u);
}

TEST(PeerWays, UcxIsRefusedWhereItCannotBeUsed) {
  Peer::Options options = named("peer");
  options.uses_ucx = true;
  options.uses_tcp = false;
  EXPECT_EQ(Peer::make(options).status().code(), StatusCode::kInvalidArgument);
  options.uses_tcp = true;
  EXPECT_EQ(Peer::make(options).status().code(), check_ucx().code());
  const auto peer = make_peer(named("peer"));
  const Status status = peer->set_ways(true, true, true, /*uses_ucx=*/true);
  EXPECT_EQ(status.code(), check_ucx().code());
  EXPECT_EQ(status.message().find("-DREVERIE_UCX=ON") == std::string::npos, status.ok());
}

// Sends a frame within a stranger's limits, then random bytes, then nothing.
TEST_P(PeerSuite, RandomBytesDoNotAffectOtherPeers) {
  if (GetParam() != "tcp") GTEST_SKIP() << "one way in is enough";
  Random draws(std::uint64_t{1});
  const auto port = static_cast<std::uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1)));
  for (int i = 0; i < 200; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    Greeting greeting{"evil", {draws.next(), 1}, {}, "", {"127.0.0.1:1"}, ""};
    const Message hello = encode(greeting);
    const auto header = encode_frame_header({FrameKind::kHello, 0, 0, 0}, hello);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), hello.payload.head.begin(), hello.payload.head.end());
    for (std::uint64_t n = draws.below(300); n > 0; --n) {
      bytes.push_back(static_cast<std::byte>(draws.below(256)));
    }
    if (draws.below(2) == 0) bytes[draws.below(bytes.size())] ^= std::byte{0x41};
    (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::close(fd);
  }
  Results results;
  ASSERT_TRUE(client_->call("server", "double", number_payload(4), {}, results.next()).ok());
  EXPECT_EQ(number_of(results.all()[0].payload), 8);
}

TEST(Peer, WrongTokensAreRefusedHoweverMany) {
  const auto server = make_peer(named("server", "secret", /*uses_unix=*/false));
  define_double(*server);
  const std::string address = listening(*server, "127.0.0.1:0");
  const auto count = scaled(100, 10'000);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto client = make_peer(named("client", format("secret{}", i), /*uses_unix=*/false));
    ASSERT_TRUE(client->connect(address).ok());
    Results results;
    ASSERT_TRUE(client->call("server", "double", number_payload(1), {}, results.next()).ok());
    ASSERT_EQ(results.all()[0].status.code(), StatusCode::kUnauthenticated);
  }
}

// Makes calls through a proxy that cuts connections at random bytes in either direction.
TEST(Peer, CallsOverCutConnectionsRunAtMostOnceAndEnd) {
  const auto count = scaled(5'000, 100'000);
  Peer::Options options = named("server", "t", /*uses_unix=*/false);
  options.tells_addresses = false;  // calls must go through the proxy
  const auto server = make_peer(options);
  Mutex mutex;
  std::set<std::int64_t> ran;
  std::int64_t twice = 0;
  ASSERT_TRUE(server
                  ->define("double",
                           [&](Request request) {
                             const std::int64_t number = number_of(request.message.payload);
                             {
                               MutexLock lock(mutex);
                               twice += ran.insert(number).second ? 0 : 1;
                             }
                             server->answer(request.id, number_payload(2 * number));
                           })
                  .ok());
  const std::string address = listening(*server, "127.0.0.1:0");
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  testing::CuttingProxy proxy(port, 0.05, /*seed=*/7);
  const auto client = make_peer(named("client", "t", /*uses_unix=*/false));
  ASSERT_TRUE(client->connect(format("127.0.0.1:{}", proxy.port())).ok());
  std::int64_t answered = 0;
  std::int64_t failed = 0;
  std::int64_t wrong = 0;
  constexpr std::int64_t kAtOnce = 50;
  for (std::int64_t begin = 0; begin < count; begin += kAtOnce) {
    Results results;
    for (std::int64_t i = begin; i < begin + kAtOnce; ++i) {
      ASSERT_TRUE(client->call("server", "double", number_payload(i), {}, results.next()).ok());
    }
    for (const CallResult& result : results.all()) {
      if (result.kind == CallResult::Kind::kAnswer) {
        ++answered;
        wrong += number_of(result.payload) % 2;
      } else {
        ++failed;
      }
    }
  }
  MutexLock lock(mutex);
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(answered + failed, count);
  EXPECT_EQ(failed, 0);  // the server is alive and reachable again within moments
  EXPECT_EQ(ran.size(), static_cast<std::size_t>(count));
  EXPECT_GT(proxy.cuts(), 10u);
}

// A payload of `size` bytes.
Payload large_payload(std::size_t size) {
  Payload payload;
  const std::vector<std::byte> bytes(size);
  ValueWriter(payload).bytes(bytes);
  return payload;
}

TEST(Peer, CallsThatAreNotAnsweredAreBoundedInBytes) {
  Peer::Options options = named("server", "", /*uses_unix=*/false);
  options.held_bytes_max = 1'000'000;
  const auto server = make_peer(options);
  ASSERT_TRUE(server->define("never", [](const Request&) {}).ok());
  const auto client = make_peer(named("client", "", /*uses_unix=*/false));
  ASSERT_TRUE(client->connect(listening(*server, "127.0.0.1:0")).ok());
  Results results;
  const Result<CallId> alone =
      client->call("server", "never", large_payload(2'000'000), {}, results.next());
  ASSERT_TRUE(alone.ok());
  for (int i = 0; i < 2; ++i) {
    Results refused;
    ASSERT_TRUE(client->call("server", "never", large_payload(10), {}, refused.next()).ok());
    EXPECT_EQ(refused.all()[0].status.code(), StatusCode::kResourceExhausted);
  }
  client->cancel(*alone);
  EXPECT_EQ(count_of(results.all(), StatusCode::kCancelled), 1u);
}

TEST(Peer, AnswersThatAreNotReadAreBoundedInBytes) {
  Peer::Options options = named("server", "", /*uses_unix=*/false);
  options.held_bytes_max = 1'000'000;
  options.dead_after = kPatience;
  const auto server = make_peer(options);
  Mutex mutex;
  CondVar changed;
  std::vector<InboundId> requests;
  bool is_blocked = false;
  bool may_go_on = false;
  const auto wait_for = [&](const auto& condition) REVERIE_REQUIRES(mutex) {
    const TimePoint until = Clock::system().now() + kPatience;
    while (!condition() && Clock::system().wait_until(changed, mutex, until)) {
    }
    return condition();
  };
  ASSERT_TRUE(server
                  ->define("large",
                           [&](const Request& request) {
                             MutexLock lock(mutex);
                             requests.push_back(request.id);
                             changed.notify_all();
                           })
                  .ok());
  options.name = "client";
  const auto client = make_peer(options);
  ASSERT_TRUE(client
                  ->define("block",
                           [&](const Request&) {  // runs on the client's I/O thread
                             MutexLock lock(mutex);
                             is_blocked = true;
                             changed.notify_all();
                             EXPECT_TRUE(wait_for([&] { return may_go_on; }));
                           })
                  .ok());
  ASSERT_TRUE(client->connect(listening(*server, "127.0.0.1:0")).ok());
  Results results;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client->call("server", "large", {}, {}, results.next()).ok());
  }
  Results ignored;
  std::vector<InboundId> asked;
  {
    MutexLock lock(mutex);
    ASSERT_TRUE(wait_for([&] { return requests.size() == 3; }));
    asked = requests;
  }
  ASSERT_TRUE(server->call("client", "block", {}, {}, ignored.next()).ok());
  {
    MutexLock lock(mutex);
    ASSERT_TRUE(wait_for([&] { return is_blocked; }));
  }
  for (const InboundId request : asked) server->answer(request, large_payload(600'000));
  {
    MutexLock lock(mutex);
    may_go_on = true;
    changed.notify_all();
  }
  const std::vector<CallResult> ended = results.all();
  EXPECT_EQ(count_of(ended, StatusCode::kResourceExhausted), 2u);
  EXPECT_EQ(count_of(ended, StatusCode::kOk), 1u);
  client->close();  // ends the unanswered call while `results` is alive
  server->close();
}

// The first pages of the rings of all links in this process, mapped once more: the links may end.
class RingPages {
 public:
  RingPages() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/memfd:reverie-link") == std::string::npos) continue;
      auto* const at = reinterpret_cast<void*>(std::stoull(line, nullptr, 16));
      void* const page = ::mremap(at, 0, kRingPageBytes, MREMAP_MAYMOVE);
      if (page != MAP_FAILED) pages_.push_back(static_cast<RingPage*>(page));
    }
  }
  ~RingPages() {
    for (RingPage* const page : pages_) ::munmap(page, kRingPageBytes);
  }
  RingPages(const RingPages&) = delete;
  RingPages& operator=(const RingPages&) = delete;
  std::size_t count() const { return pages_.size(); }
  void spoil(std::atomic<std::uint64_t> RingPage::*word) {
    for (RingPage* const page : pages_) (page->*word).store(std::uint64_t{1} << 60);
  }

 private:
  std::vector<RingPage*> pages_;
};

// The writer looks at the reader's position, and the reader at the writer's.
TEST(Peer, APeerThatWritesRubbishToSharedMemoryIsReachedBySocket) {
  for (const auto word : {&RingPage::head, &RingPage::tail}) {
    Peer::Options options = named("server", "", true, false);
    options.dead_after = kPatience;
    const auto server = make_peer(options);
    options.name = "client";
    const auto client = make_peer(options);
    define_double(*server);
    ASSERT_TRUE(
        client->connect(listening(*server, format("unix:@reverie-{}", random_seed()))).ok());
    const auto uses = [&](const Peer& peer, const std::string& transport) {
      const std::vector<PeerInfo> others = peer.peers();
      return others.size() == 1 && others.front().transport == transport;
    };
    std::int64_t number = 0;
    const auto call = [&] {
      const CallResult result = client->sync("server", "double", number_payload(++number), {});
      ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
      EXPECT_EQ(number_of(result.payload), 2 * number);
    };
    const auto both_use = [&](const std::string& transport) {
      call();
      return uses(*client, transport) && uses(*server, transport);
    };
    ASSERT_TRUE(test::eventually([&] { return both_use("shared memory"); }));
    RingPages pages;
    ASSERT_GE(pages.count(), 2u);
    EXPECT_TRUE(test::eventually([&] {
      if (both_use("Unix socket")) return true;
      pages.spoil(word);  // a thread still polls the ring after a call
      return false;
    }));
    const std::string why = client->peers().front().transport_reason;
    EXPECT_TRUE(why.find("rubbish") != std::string::npos || why.find("map") != std::string::npos)
        << why;
  }
}

TEST(Peer, AForkedChildGetsNothingFromItsParentsPeer) {
  const auto peer = make_peer(named("a", "", /*uses_unix=*/false));
  ASSERT_TRUE(peer->define("never", [](const Request&) {}).ok());
  listening(*peer, "127.0.0.1:0");
  Results results;
  ASSERT_TRUE(peer->call("b", "f", {}, {}, results.next()).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    peer->set_withdrawn(nullptr);
    peer->add_withdrawn({}, nullptr);
    peer->set_on_event(nullptr);
    peer->wake();
    const bool has_nothing = peer->functions().empty() && peer->addresses().empty() &&
                             peer->peers().empty() && peer->pending_calls() == 0 &&
                             !peer->is_wanted({1, 1});
    ::_exit(has_nothing ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(peer->functions().size(), 1u);
  peer->close();  // ends the call while `results` is alive
}

TEST(Peer, ASecondCallerOfCloseWaitsForTheFirst) {
  Peer::Options options = named("a", "", /*uses_unix=*/false);
  options.find_timeout = kPatience;
  const auto peer = make_peer(options);
  std::promise<void> is_closing;
  std::promise<void> may_end;
  ASSERT_TRUE(peer->call("b", "f", {}, {},
                         [&](const CallResult&) {  // within the first close
                           peer->close();
                           is_closing.set_value();
                           may_end.get_future().wait();
                         })
                  .ok());
  auto first = std::async(std::launch::async, [&] { peer->close(); });
  is_closing.get_future().wait();
  auto second = std::async(std::launch::async, [&] { peer->close(); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_end.set_value();
  first.get();
  second.get();
}

TEST(Peer, KeepsNoCallbackOnceItIsClosed) {
  const auto peer = make_peer(named("a", "", /*uses_unix=*/false));
  const auto kept = std::make_shared<int>(1);
  ASSERT_TRUE(peer->define("f", [kept](const Request&) {}).ok());
  peer->set_withdrawn([kept](std::span<const InboundId>) {});
  peer->add_withdrawn(kept, [kept](InboundId) {});
  peer->set_on_event([kept](Peer::EventKind, const std::string&) {});
  EXPECT_EQ(kept.use_count(), 5);
  peer->close();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(Peer, DropsTheCallbacksOfOwnersThatHaveEnded) {
  const auto peer = make_peer(named("a", "", /*uses_unix=*/false));
  const auto kept = std::make_shared<int>(1);
  const auto stays = std::make_shared<int>(2);
  peer->add_withdrawn(stays, [kept](InboundId) {});
  for (int i = 0; i < 100; ++i) {
    peer->add_withdrawn(std::make_shared<int>(i), [kept](InboundId) {});
  }
  EXPECT_EQ(kept.use_count(), 3);  // of `stays`, and the last
}

TEST(Peer, SaysWhetherAPeerIsUnknownOrCannotBeReached) {
  const auto broker = make_peer(named("broker", "", /*uses_unix=*/false));
  const std::string address = listening(*broker, "127.0.0.1:0");
  const auto hidden = make_peer(named("hidden", "", /*uses_unix=*/false));
  const auto client = make_peer(named("client", "", /*uses_unix=*/false));
  for (const auto& peer : {hidden.get(), client.get()}) {
    ASSERT_TRUE(peer->connect(address).ok());
    const CallResult reached = peer->sync("broker", std::string(kPingFunction), {}, {});
    ASSERT_TRUE(reached.status.ok()) << reached.status.to_string();
  }
  expect_refused(client->sync("hidden", "f", {}, {}).status, StatusCode::kNotFound,
                 {"'hidden' is connected to 'broker'", "does not listen"});
  expect_refused(client->sync("absent", "f", {}, {}).status, StatusCode::kNotFound,
                 {"no peer 'absent' is known to 'client'", "'broker'", "has connected to one"});
  listening(*hidden, "127.0.0.1:0");
  const CallResult found = client->sync("hidden", std::string(kPingFunction), {}, {});
  EXPECT_TRUE(found.status.ok()) << found.status.to_string();
}

TEST(Peer, IsNotMadeWithoutAThread) {
  {
    const test::NoNewThreads none;
    expect_refused(Peer::make(named("a")).status(), StatusCode::kResourceExhausted,
                   {"peer 'a'", "ulimit -u"});
  }
  EXPECT_TRUE(Peer::make(named("a")).ok());
}

TEST(Peer, RefusesInvalidNamesAndBounds) {
  EXPECT_EQ(Peer::make({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Peer::make(named(std::string(300, 'x'))).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Peer::make(named("a", "", /*uses_unix=*/false, /*uses_tcp=*/false)).status().code(),
            StatusCode::kInvalidArgument);
  Peer::Options hasty = named("a");
  hasty.dead_after = {};
  EXPECT_EQ(Peer::make(hasty).status().code(), StatusCode::kInvalidArgument);
  const auto peer = make_peer(named("a"));
  EXPECT_EQ(peer->call("", "f", {}, {}, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(peer->call("b", "", {}, {}, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(peer->call("a", "f", {}, {}, {}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer->listen("0.0.0.0:0").status().code(), StatusCode::kInvalidArgument);
  peer->close();
  EXPECT_EQ(peer->call("b", "f", {}, {}, {}).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace reverie
