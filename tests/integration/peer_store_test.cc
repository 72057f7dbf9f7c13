// Clients of a store over our own protocol: what the conformance suite does not test. Processes
// that die are tested in tests/python/peer_store_test.py.
#include <array>
#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/base/waiting.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/server/server.h"
#include "reverie/service/blocking.h"
#include "reverie/store_messages/store_wire.h"
#include "tests/support/eventually.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
#include "tests/support/within.h"

namespace reverie {
namespace {

using test::eventually;
using testing::make_item;
using testing::table_options;

std::vector<TableOptions> tables() {
  return {table_options("t", "Fifo", "Fifo", 1000, RateLimiter::min_size(1)),
          table_options("large", "Uniform", "Fifo", 1000, RateLimiter::min_size(1)),
          table_options("full", "Fifo", "Fifo", 1000, RateLimiter::queue(1))};
}

constexpr std::uint32_t kLargeRows = 100'000;
constexpr std::size_t kLargeBytes = kLargeRows * sizeof(float);

class PeerStoreTest : public ::testing::Test {
 protected:
  void serve(ServerOptions options = {}) {
    if (!address_.empty()) options.addresses = {address_};
    server_ = Server::open(tables(), std::move(options)).value();
    address_ = server_->addresses().front();
  }
  std::shared_ptr<PeerStoreClient> client(PeerStoreOptions options = {}) {
    options.retry_time = std::min<Duration>(options.retry_time, seconds(20));
    return PeerStoreClient::open(loops_, address_, std::move(options)).value();
  }
  static InsertResult insert(ReplayService& service, std::string_view table, ItemKey key) {
    Item item = make_item(key, 1.0, static_cast<float>(key));
    return insert_and_wait(service, {table, {&item, 1}});
  }
  // Inserts items of one large chunk each, whose rows count up from the item's key.
  static void insert_large(ReplayService& service, ItemKey first, ItemKey last) {
    for (ItemKey key = first; key <= last; ++key) {
      Item item = make_item(key, 1.0, static_cast<float>(key), kLargeRows);
      ASSERT_TRUE(insert_and_wait(service, {"large", {&item, 1}}).status.ok());
    }
  }
  static SampleResult sample(ReplayService& service, std::size_t count) {
    SampleRequest request;
    request.table = "large";
    request.count = request.min_count = count;
    return sample_and_wait(service, std::move(request));
  }
  // The first sample of large rows makes the client map the memory that holds them.
  void map_memory(ReplayService& service) {
    EXPECT_TRUE(eventually([&] {
      (void)sample(service, 1);
      return server_->peers().leased_bytes > 0;
    }));
    EXPECT_TRUE(eventually([&] { return server_->peers().leased_bytes == 0; }));
  }
  static void expect_large(const SampleBatch& batch) {
    for (const TrajectoryView& trajectory : batch.trajectories()) {
      const Piece& piece = trajectory.pieces().front();
      const float first = testing::float_row(*piece.chunk, piece.offset);
      ASSERT_EQ(testing::float_row(*piece.chunk, piece.offset + kLargeRows - 1),
                first + kLargeRows - 1);
    }
  }
  static std::int64_t size_of(ReplayService& service) {
    return info_and_wait(service).value().front().current_size;
  }

  IoThreads threads_{1};
  LinkLoops loops_{threads_};
  std::string address_;
  std::unique_ptr<Server> server_;
};

TEST_F(PeerStoreTest, RequestsTravelThroughSharedMemory) {
  serve();
  const auto peer = client();
  for (ItemKey key = 1; key <= 20; ++key) ASSERT_TRUE(insert(*peer, "t", key).status.ok());
  EXPECT_EQ(peer->transport(), "shared memory");
  EXPECT_EQ(server_->peers().connections, 1u);
  EXPECT_EQ(server_->peers().inserts, 20u);
}

TEST_F(PeerStoreTest, ASampleLargerThanAMessageArrivesInParts) {
  ServerOptions options;
  options.peers_leased_bytes_max = 0;  // everything is copied
  serve(std::move(options));
  const auto peer = client();
  insert_large(*peer, 1, 20);
  const SampleResult result = sample(*peer, 40);
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  ASSERT_EQ(result.batch.size(), 40u);
  expect_large(result.batch);
  EXPECT_EQ(server_->peers().leased_bytes, 0u);
}

TEST_F(PeerStoreTest, ARequestForMoreSamplesThanFitInMemoryIsRefusedAlone) {
  serve();
  const auto peer = client();
  insert_large(*peer, 1, 1);
  for (const std::uint64_t count :
       {store_wire::kRequestSamplesMax + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 62}) {
    const SampleResult result = sample(*peer, count);
    EXPECT_EQ(result.status.code(), StatusCode::kInvalidArgument) << result.status.message();
    EXPECT_TRUE(result.batch.empty());
  }
  EXPECT_EQ(sample(*peer, 2).batch.size(), 2u) << "the connection and the server go on";
}

TEST_F(PeerStoreTest, ALargeSampleStaysInTheServersMemoryUntilItIsReleased) {
  serve();
  const auto peer = client();
  insert_large(*peer, 1, 20);
  map_memory(*peer);
  SampleResult result = sample(*peer, 40);
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  ASSERT_EQ(result.batch.size(), 40u);
  const std::size_t leased = server_->peers().leased_bytes;
  EXPECT_GT(leased, kLargeBytes);
  EXPECT_LT(leased, 21 * kLargeBytes) << "each chunk once";
  // The reader's data stays unchanged when the table drops it and new items arrive.
  ASSERT_TRUE(reset_and_wait(*peer, "large").ok());
  insert_large(*peer, 101, 140);
  expect_large(result.batch);
  for (const TrajectoryView& trajectory : result.batch.trajectories()) {
    EXPECT_LE(testing::value_of(trajectory), 20.0f);
  }
  result.batch.clear();
  EXPECT_TRUE(eventually([&] { return server_->peers().leased_bytes == 0; }));
}

// The alarm rings for another request before the memory is due.
TEST_F(PeerStoreTest, AnotherTimerDoesNotDelayTheReturnOfMemory) {
  serve();
  const auto peer = client();
  insert_large(*peer, 1, 5);
  map_memory(*peer);
  ASSERT_TRUE(insert(*peer, "full", 1).status.ok());
  SampleResult result = sample(*peer, 5);
  ASSERT_GT(server_->peers().leased_bytes, 0u);
  Item waits = make_item(2, 1.0);
  std::atomic<bool> is_over{false};
  const TimePoint begin = Clock::system().now();
  peer->insert({"full", {&waits, 1}, begin + std::chrono::milliseconds(10)},
               [&](const InsertResult&) { is_over = true; });
  result.batch.clear();
  EXPECT_TRUE(eventually([&] { return server_->peers().leased_bytes == 0; }));
  EXPECT_TRUE(test::ended_within(begin, 1.0));
  EXPECT_TRUE(eventually([&] { return is_over.load(); }));
}

TEST_F(PeerStoreTest, ASlowReadersSamplesAreCopied) {
  ServerOptions options;
  options.peers_leased_bytes_max = 5 * kLargeBytes;
  serve(std::move(options));
  const auto peer = client();
  insert_large(*peer, 1, 20);
  map_memory(*peer);
  std::vector<SampleResult> kept;
  for (int i = 0; i < 5; ++i) {
    kept.push_back(sample(*peer, 3));
    ASSERT_TRUE(kept.back().status.ok()) << kept.back().status.message();
    expect_large(kept.back().batch);
    EXPECT_LE(server_->peers().leased_bytes, 5 * kLargeBytes);
  }
  EXPECT_GT(server_->peers().leased_bytes, 0u);
}

// Two draws that end on two threads may exceed the bound together; nothing is lent after that.
TEST_F(PeerStoreTest, DrawsThatEndAtOnceLeaveTheBoundOfASlowReaderInPlace) {
  constexpr std::size_t kBound = kLargeBytes + (std::size_t{64} << 10);  // one chunk
  const std::array<std::string, 2> names = {"t", "large"};
  ServerOptions options;
  options.peers_leased_bytes_max = kBound;
  serve(std::move(options));
  std::array<SampleResult, 2> drawn;
  std::atomic<int> drawn_count{0};
  const auto reader = client();
  const std::array<std::shared_ptr<PeerStoreClient>, 2> writers = {client(), client()};
  insert_large(*reader, 1, 1);
  map_memory(*reader);
  for (int round = 0; round < 200; ++round) {
    for (const std::string& name : names) ASSERT_TRUE(reset_and_wait(*reader, name).ok());
    drawn = {};
    drawn_count = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      SampleRequest request;
      request.table = names[i];
      request.count = request.min_count = 1;
      (void)reader->sample(std::move(request), [&, i](SampleResult result) {
        drawn[i] = std::move(result);
        ++drawn_count;
      });
    }
    ASSERT_TRUE(eventually([&] {
      std::int64_t waiting = 0;
      const std::vector<TableInfo> infos = info_and_wait(*server_->store()).value();
      for (const TableInfo& info : infos) waiting += info.pending_samples;
      return waiting == 2;
    }));
    std::barrier both(2);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < names.size(); ++i) {
      threads.emplace_back([&, i] {
        Item item = make_item(1, 1.0, 1.0f, kLargeRows);
        both.arrive_and_wait();
        EXPECT_TRUE(insert_and_wait(*writers[i], {names[i], {&item, 1}}).status.ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(eventually([&] { return drawn_count == 2; }));
    const SampleResult third = sample(*reader, 1);
    ASSERT_TRUE(third.status.ok()) << third.status.message();
    ASSERT_LE(server_->peers().leased_bytes, 2 * kBound) << "round " << round;
  }
}

TEST_F(PeerStoreTest, ABatchOutlivesItsClientInTheServersMemory) {
  serve();
  SampleResult result;
  {
    const auto peer = client();
    insert_large(*peer, 1, 20);
    map_memory(*peer);
    result = sample(*peer, 20);
    ASSERT_TRUE(result.status.ok()) << result.status.message();
  }
  EXPECT_GT(server_->peers().leased_bytes, 0u);
  const auto other = client();
  ASSERT_TRUE(reset_and_wait(*other, "large").ok());
  insert_large(*other, 101, 130);
  expect_large(result.batch);
  for (const TrajectoryView& trajectory : result.batch.trajectories()) {
    EXPECT_LE(testing::value_of(trajectory), 20.0f);
  }
  result.batch.clear();
  EXPECT_TRUE(eventually([&] { return server_->peers().leased_bytes == 0; }));
  EXPECT_TRUE(eventually([&] { return server_->peers().connections == 1; }));
}

// Items that are handed back are inserted from there.
TEST_F(PeerStoreTest, TheItemsOfARetainedBatchKeepTheirMemory) {
  for (const bool is_mapped : {true, false}) {
    SCOPED_TRACE(is_mapped);
    ServerOptions options;
    if (!is_mapped) options.peers_leased_bytes_max = 0;
    serve(std::move(options));
    const auto peer = client();
    insert_large(*peer, 1, 20);
    if (is_mapped) map_memory(*peer);
    SampleResult result = sample(*peer, 20);
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    result.batch.retain();
    ASSERT_FALSE(result.batch.has_pin());
    if (is_mapped) {
      EXPECT_GT(server_->peers().leased_bytes, 0u);
    }
    for (int i = 0; i < 5; ++i) (void)sample(*peer, 20);  // these may take the same memory
    server_.reset();
    peer->close();
    expect_large(result.batch);
  }
}

TEST_F(PeerStoreTest, ABatchOutlivesItsServer) {
  serve();
  const auto peer = client();
  insert_large(*peer, 1, 20);
  map_memory(*peer);
  const SampleResult result = sample(*peer, 20);
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  server_->stop();
  server_ = nullptr;
  serve();
  insert_large(*peer, 101, 110);
  expect_large(result.batch);
}

TEST_F(PeerStoreTest, RequestsWaitingForOneTableDoNotBlockAnother) {
  serve();
  const auto peer = client();
  ASSERT_TRUE(insert(*peer, "full", 1).status.ok());
  std::vector<Item> items;
  for (ItemKey key = 2; key <= 500; ++key) items.push_back(make_item(key, 1.0));
  std::size_t done = 0;
  peer->insert({"full", items}, [&](const InsertResult& result) { done = result.applied; });
  EXPECT_TRUE(insert(*peer, "t", 1).status.ok());
  EXPECT_EQ(size_of(*peer), 1);
  peer->close();  // ends the insert that waits
}

TEST_F(PeerStoreTest, ClientsContinueAfterARestart) {
  serve();
  const auto peer = client();
  ASSERT_TRUE(insert(*peer, "t", 1).status.ok());
  server_->stop();
  server_ = nullptr;
  serve();
  EXPECT_TRUE(insert(*peer, "t", 2).status.ok());
  EXPECT_EQ(size_of(*peer), 1) << "what the old one had is gone with it";
}

// The thread that waits for a sample reads the parts itself. While it reads the last one that came,
// the I/O thread notices that the connection has ended.
// The server's time ends with the client's, however late the request reaches it.
TEST_F(PeerStoreTest, ASampleThatHasWaitedForItsServerGetsWhatWasDrawnByItsDeadline) {
  serve();
  const auto peer = client();
  server_.reset();
  SampleRequest request;
  request.table = "full";
  request.count = request.min_count = 2;
  const TimePoint begin = Clock::system().now();
  request.deadline = begin + seconds(4);
  PendingSample asked(*peer, std::move(request));
  pause_until(Clock::system(), begin + seconds(2.5));
  serve();
  ASSERT_TRUE(insert(*server_->store(), "full", 1).status.ok());
  const SampleResult result = asked.wait({});
  EXPECT_EQ(result.status.code(), StatusCode::kDeadlineExceeded) << result.status.to_string();
  EXPECT_EQ(result.batch.size(), 1u);
}

TEST_F(PeerStoreTest, ASampleWhoseServerStopsBetweenItsPartsFails) {
  constexpr std::uint64_t kCount = 100'000;  // small ones, in some twenty-five parts
  for (std::uint64_t i = 0; i < 20; ++i) {
    serve();
    const auto peer = client({.retry_time = std::chrono::seconds(1)});
    Item item = make_item(1, 1.0, 1.0f);
    ASSERT_TRUE(insert_and_wait(*peer, {"large", {&item, 1}}).status.ok());
    std::atomic<bool> has_failed{false};
    std::thread reader([&] {
      while (sample(*peer, kCount).status.ok()) {
      }
      has_failed = true;
    });
    const bool has_begun = eventually([&] { return server_->peers().samples > kCount + i * 5000; });
    server_.reset();
    const bool is_over = eventually([&] { return has_failed.load(); });
    peer->close();
    reader.join();
    ASSERT_TRUE(has_begun && is_over) << "server " << i;
  }
}

TEST_F(PeerStoreTest, AnIdleConnectionIsClosedAndRestoredWithTheNextRequest) {
  ServerOptions options;
  options.grpc.idle_timeout = std::chrono::milliseconds(20);
  serve(std::move(options));
  const auto peer = client();
  for (ItemKey key = 1; key <= 3; ++key) {
    ASSERT_TRUE(insert(*peer, "large", key).status.ok());
    EXPECT_TRUE(eventually([&] { return server_->peers().connections == 0; }));
    EXPECT_EQ(sample(*peer, 1).batch.size(), 1u) << "not repeatable, except after a goodbye";
    EXPECT_TRUE(eventually([&] { return server_->peers().connections == 0; }));
  }
}

TEST_F(PeerStoreTest, AConnectionThatWaitsOrReadsTheServersMemoryIsNotIdle) {
  ServerOptions options;
  options.grpc.idle_timeout = std::chrono::milliseconds(20);
  serve(std::move(options));
  const auto reader = client();
  insert_large(*reader, 1, 20);
  map_memory(*reader);
  SampleResult result = sample(*reader, 20);
  ASSERT_GT(server_->peers().leased_bytes, 0u);
  const auto waiter = client();
  std::atomic<bool> is_done{false};
  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = 1;
  (void)waiter->sample(std::move(request), [&](const SampleResult& drawn) {
    EXPECT_TRUE(drawn.status.ok()) << drawn.status.message();
    is_done = true;
  });
  const auto idle = client();
  for (int i = 0; i < 5; ++i) {  // several idle times, while two connections are in use
    EXPECT_EQ(size_of(*idle), 0);
    EXPECT_TRUE(eventually([&] { return server_->peers().connections == 2; }));
  }
  expect_large(result.batch);
  result.batch.clear();
  ASSERT_TRUE(insert(*idle, "t", 1).status.ok());
  EXPECT_TRUE(eventually([&] { return is_done.load(); }));
  EXPECT_TRUE(eventually([&] { return server_->peers().connections == 0; }));
}

// The goodbye and a request may cross: the client then repeats the request, since it has not begun.
TEST_F(PeerStoreTest, ARequestThatCrossesTheServersGoodbyeIsServed) {
  ServerOptions options;
  options.grpc.idle_timeout = std::chrono::microseconds(100);
  serve(std::move(options));
  const auto peer = client();
  ASSERT_TRUE(insert(*peer, "large", 1).status.ok());
  for (int i = 0; i < 2'000; ++i) {
    for (int looks = 0; looks < i % 100; ++looks) (void)server_->peers();  // at varying moments
    const SampleResult result = sample(*peer, 1);
    ASSERT_TRUE(result.status.ok()) << "round " << i << ": " << result.status.message();
  }
  EXPECT_TRUE(eventually([&] { return server_->peers().connections == 0; }));
}

TEST_F(PeerStoreTest, AWrongTokenIsRefused) {
  ServerOptions options;
  options.grpc.token = "secret";
  serve(std::move(options));
  EXPECT_TRUE(insert(*client({.token = "secret"}), "t", 1).status.ok());
  for (const char* const token : {"", "another"}) {
    const auto status = info_and_wait(*client({.token = token})).status();
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status.message();
  }
}

// Any process that listens at the server's address could claim to have no token.
TEST_F(PeerStoreTest, AServerThatDoesNotProveTheTokenIsRefused) {
  serve();
  EXPECT_TRUE(insert(*client(), "t", 1).status.ok());
  const auto strict = client({.token = "secret"});
  expect_refused(insert(*strict, "t", 2).status, StatusCode::kUnauthenticated,
                 {address_, "has no token", "give both the same"});
  expect_refused(info_and_wait(*strict).status(), StatusCode::kUnauthenticated, {"has no token"});
  EXPECT_EQ(size_of(*client()), 1);
}

TEST_F(PeerStoreTest, RequestsWithoutAServerFailInTime) {
  address_ = "localhost:1";
  const auto peer = client({.retry_time = std::chrono::milliseconds(50)});
  const Status status = info_and_wait(*peer).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("localhost:1"), std::string::npos) << status.message();
}

TEST_F(PeerStoreTest, AFirstRequestWithoutTimeToWaitHasTimeToConnect) {
  serve();
  for (ItemKey key = 1; key <= 10; ++key) {
    const auto inserter = client();
    Item item = make_item(key, 1.0);
    const Status status = insert_and_wait(*inserter, {"t", {&item, 1}, TimePoint{}}).status;
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto sampler = client();
    SampleRequest request;
    request.table = "t";
    request.deadline = TimePoint{};
    const SampleResult result = sample_and_wait(*sampler, std::move(request));
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
  }
}

TEST_F(PeerStoreTest, ARequestLargerThanAMessageFailsAloneAtOnce) {
  ServerOptions options;
  options.grpc.limits.message_bytes_max = std::size_t{1} << 20;
  serve(std::move(options));
  const auto peer = client();
  for (ItemKey key = 1; key <= 2; ++key) {
    Item large = make_item(10 + key, 1.0, 0, 300'000);
    expect_refused(insert_and_wait(*peer, {"large", {&large, 1}}).status,
                   StatusCode::kResourceExhausted,
                   {"'large'", "1200000", "1048576", "message_bytes"});
    EXPECT_TRUE(insert(*peer, "large", key).status.ok());
  }
  const std::vector<ItemKey> keys(9 << 20);
  expect_refused(lookup_and_wait(*peer, {"t", keys}).status, StatusCode::kResourceExhausted,
                 {"67108864", "ask for less"});
  EXPECT_EQ(sample(*peer, 2).batch.size(), 2u);
  EXPECT_EQ(server_->peers().connections, 1u);
}

TEST_F(PeerStoreTest, AWriterThatMeetsABoundEndsNothingElseOfItsClient) {
  ServerOptions options;
  options.reverb.kept_bytes_max = std::size_t{1} << 20;
  serve(std::move(options));
  std::atomic<int> in{0};
  std::atomic<bool> is_drawn{false};
  const auto peer = client();
  const auto insert_of = [&](std::uint64_t writer, std::string_view table, Item item,
                             ReplayService::Done<InsertResult> done) {
    InsertRequest request;
    request.table = table;
    request.items = {&item, 1};
    request.writer = writer;
    peer->insert(request, std::move(done));
  };
  for (ItemKey key = 1; key <= 3; ++key) {
    insert_of(1, "full", make_item(key, 1.0), [&](const InsertResult& result) {
      EXPECT_TRUE(result.status.ok()) << result.status.message();
      ++in;
    });
  }
  SampleRequest waits;
  waits.table = "t";
  waits.count = waits.min_count = 1;
  peer->sample(std::move(waits), [&](const SampleResult& result) {
    EXPECT_TRUE(result.status.ok()) << result.status.message();
    is_drawn = true;
  });
  ASSERT_TRUE(eventually([&] { return in == 1; }));

  const auto insert_and_see = [&](Item item) {
    Status seen;
    std::atomic<bool> is_done{false};
    insert_of(2, "t", std::move(item), [&](const InsertResult& result) {
      seen = result.status;
      is_done = true;
    });
    EXPECT_TRUE(eventually([&] { return is_done.load(); }));
    return seen;
  };
  for (ItemKey key = 10; key <= 12; ++key) {
    const Ref<Chunk> large = testing::float_chunk(0, 300'000);
    expect_refused(insert_and_see(testing::item_over(*large, key, 1.0, 0, 300'000)),
                   StatusCode::kResourceExhausted, {"1048576"});
  }
  EXPECT_FALSE(is_drawn);
  EXPECT_EQ(server_->peers().connections, 1u);
  EXPECT_TRUE(insert_and_see(make_item(20, 1.0)).ok()) << "the same writer goes on";
  EXPECT_TRUE(eventually([&] { return is_drawn.load(); }));
  for (int i = 1; i <= 3; ++i) {
    SampleRequest draw;
    draw.table = "full";
    draw.count = draw.min_count = 1;
    const SampleResult result = sample_and_wait(*peer, std::move(draw));
    ASSERT_EQ(result.batch.size(), 1u) << result.status.message();
  }
  EXPECT_TRUE(eventually([&] { return in == 3; }));
  EXPECT_EQ(server_->peers().inserts, 4u) << "none twice";
}

TEST_F(PeerStoreTest, ARequestOfMoreRowsThanAChunkMayHaveIsNotSent) {
  serve();
  const auto peer = client();
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kFloat32, {0}}});
  const std::uint32_t rows = (1u << 24u) + 5;
  const Ref<Chunk> chunk = Chunk::open(schema, {}, rows, 0, Allocator::heap()).value();
  chunk->publish(rows);
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{{"x", DType::kFloat32, {0}}, 0, 0, 1, false}}, std::string("x"));
  const Piece piece{chunk.get(), 0, 1};
  Item item{1, 1.0, Trajectory(layout, {&piece, 1})};
  expect_refused(insert_and_wait(*peer, {"t", {&item, 1}}).status, StatusCode::kInvalidArgument,
                 {"16777221 rows", "16777216", "insert_rows"});
  EXPECT_TRUE(insert(*peer, "t", 2).status.ok());
  EXPECT_EQ(server_->peers().connections, 1u);
}

TEST_F(PeerStoreTest, ACompletionMayDropTheLastHandle) {
  serve();
  // Without a server, the thread of the timer completes the requests.
  for (const std::string& address : {address_, std::string("localhost:1")}) {
    address_ = address;
    auto held = client({.retry_time = std::chrono::milliseconds(50)});
    PeerStoreClient& peer = *held;
    std::atomic<bool> is_asked{false};
    std::atomic<int> ended{0};
    peer.info([&](const Result<std::vector<TableInfo>>&) {
      EXPECT_TRUE(eventually([&] { return is_asked.load(); }));
      held = nullptr;
      ++ended;
    });
    SampleRequest waits;
    waits.table = "t";
    waits.count = waits.min_count = 1;
    peer.sample(std::move(waits), [&](const SampleResult& result) {
      EXPECT_FALSE(result.status.ok());
      ++ended;
    });
    is_asked = true;
    ASSERT_TRUE(eventually([&] { return ended == 2; }));
  }
}

TEST_F(PeerStoreTest, AServerThatServesNoPeersIsUnavailable) {
  ServerOptions options;
  options.serves_peers = false;
  serve(std::move(options));
  const auto peer = client({.retry_time = std::chrono::milliseconds(100)});
  EXPECT_EQ(info_and_wait(*peer).status().code(), StatusCode::kUnavailable);
}

// The same table and types, but other names.
TEST_F(PeerStoreTest, ARestartedServersColumnsHaveItsOwnNames) {
  const auto serve_column = [this](const std::string& name) {
    server_ = nullptr;
    TableOptions table = table_options("t", "Fifo", "Fifo", 10, RateLimiter::min_size(1));
    table.signature = Signature{{{name, DType::kFloat32, {}}}, name};
    ServerOptions options;
    options.addresses = {address_.empty() ? "localhost:0" : address_};
    server_ = Server::open({table}, std::move(options)).value();
    address_ = server_->addresses().front();
    const auto layout = make_ref<Layout>(
        std::vector<LayoutColumn>{{{name, DType::kFloat32, {}}, 0, 0, 1, true}}, name);
    const Ref<Chunk> chunk = testing::float_chunk(0, 1);
    const Piece piece{chunk.get(), 0, 1};
    Item item{1, 1.0, Trajectory(layout, {&piece, 1})};
    ASSERT_TRUE(insert_and_wait(*server_->store(), {"t", {&item, 1}}).status.ok());
  };
  const auto name_of = [](ReplayService& service) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = 1;
    const SampleResult result = sample_and_wait(service, std::move(request));
    EXPECT_TRUE(result.status.ok()) << result.status.message();
    if (result.batch.empty()) return std::string();
    return result.batch.trajectories()[0].layout->columns()[0].spec.name;
  };
  serve_column("old");
  const auto peer = client();
  EXPECT_EQ(name_of(*peer), "old");
  for (const std::string name : {"new", "newer"}) {
    serve_column(name);
    ASSERT_TRUE(eventually([&] { return peer->transport() == "nothing"; }));
    EXPECT_EQ(name_of(*peer), name) << "asked for while there was no connection";
    EXPECT_EQ(name_of(*peer), name);
  }
}

}  // namespace
}  // namespace reverie
