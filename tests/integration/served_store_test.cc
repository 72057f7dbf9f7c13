// A store behind a socket (server/server.h and adapters/reverb/reverb_client.h), with several
// threads on both sides.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/server/server.h"
#include "reverie/service/blocking.h"
#include "tests/support/eventually.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

class ServedStore : public ::testing::Test {
 protected:
  static constexpr std::int64_t kQueueSize = 5;

  void SetUp() override { open("localhost:0"); }
  void open(const std::string& address) {
    TableOptions queue =
        testing::table_options("q", "Fifo", "Fifo", kQueueSize, RateLimiter::queue(kQueueSize));
    queue.max_times_sampled = 1;
    ServerOptions options;
    options.addresses = {address};
    server_ = Server::open({queue}, std::move(options)).value();
  }
  std::shared_ptr<ReverbClient> client() {
    return ReverbClient::open(io_threads_, "localhost:" + std::to_string(server_->port())).value();
  }
  static Result<SampleBatch> sample(ReplayService& service, std::size_t count, double timeout_s) {
    SampleRequest request;
    request.table = "q";
    request.count = request.min_count = count;
    request.deadline = Clock::system().now() + seconds(timeout_s);
    SampleResult result = sample_and_wait(service, std::move(request));
    if (!result.status.ok()) return result.status;
    return std::move(result.batch);
  }

  IoThreads io_threads_{2};
  std::unique_ptr<Server> server_;
};

TEST_F(ServedStore, EveryCallOnAClosedClientSaysThatItIsClosed) {
  const auto shared = client();
  ASSERT_TRUE(info_and_wait(*shared).ok());
  shared->close();
  const ItemKey key = 1;
  const std::string_view closed = "the client is closed";
  EXPECT_EQ(info_and_wait(*shared).status().message(), closed);
  EXPECT_EQ(why_blocked_and_wait(*shared, "q").status().message(), closed);
  EXPECT_EQ(lookup_and_wait(*shared, {"q", {&key, 1}}).status.message(), closed);
  EXPECT_EQ(reset_and_wait(*shared, "q").message(), closed);
  EXPECT_EQ(mutate_and_wait(*shared, {"q", {&key, 1}}).status.message(), closed);
  EXPECT_EQ(sample(*shared, 1, 1).status().message(), closed);
}

TEST_F(ServedStore, EachItemOfManyWritersReachesOneReader) {
  constexpr int kWriters = 3;
  constexpr int kItems = 40;
  const auto shared = client();
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      const auto writer = TrajectoryWriter::open(shared, {}).value();
      const ColumnId column = writer->column("x");
      for (int i = 0; i < kItems; ++i) {
        const Value value = i64(w * kItems + i);
        const ColumnValue step{column, value.view()};
        ASSERT_TRUE(writer->append({&step, 1}, false).ok());
        const StepRange range{writer->next_step() - 1, 1};
        const TrajectoryColumn picked{"x", column, {&range, 1}, false};
        ASSERT_TRUE(
            writer->create_item({"q", 1.0, {&picked, 1}, "\"*\""}, TimePoint::max(), {}).ok());
      }
      ASSERT_TRUE(writer->flush(0, TimePoint::max(), {}).ok());
    });
  }
  std::mutex mutex;
  std::set<ItemKey> keys;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&] {
      const auto reader = client();
      for (int i = 0; i < kWriters * kItems / 2 / 4; ++i) {
        const SampleBatch batch = sample(*reader, 4, 60).value();
        const std::lock_guard lock(mutex);
        keys.insert(batch.keys().begin(), batch.keys().end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(keys.size(), static_cast<std::size_t>(kWriters * kItems)) << "each once";
  EXPECT_EQ(server_->figures().inserts, static_cast<std::uint64_t>(kWriters * kItems));
}

TEST_F(ServedStore, ACompletionMayDropTheLastHandle) {
  for (const bool is_on_timer_thread : {false, true}) {
    auto held = client();
    ReverbClient& asked = *held;
    std::atomic<bool> is_asked{false};
    std::atomic<int> ended{0};
    const auto drop = [&] {
      EXPECT_TRUE(test::eventually([&] { return is_asked.load(); }));
      held = nullptr;
      ++ended;
    };
    if (is_on_timer_thread) {
      server_.reset();  // it answers no insert, which ends 2 s after its deadline
      Item item = testing::make_item(1, 1.0);
      asked.insert({"q", {&item, 1}, TimePoint{}}, [&](const InsertResult&) { drop(); });
      ++ended;
    } else {
      SampleRequest waits;
      waits.table = "q";
      waits.count = waits.min_count = 1;
      asked.sample(std::move(waits), [&](const SampleResult& result) {
        EXPECT_EQ(result.status.code(), StatusCode::kCancelled);
        ++ended;
      });
      asked.info([&](const Result<std::vector<TableInfo>>&) { drop(); });
    }
    is_asked = true;
    ASSERT_TRUE(test::eventually([&] { return ended == 2; }));
  }
}

TEST_F(ServedStore, ACancelledRequestLeavesNothingBehind) {
  const auto shared = client();
  std::atomic<int> asked{0};
  SampleRequest request;
  request.table = "q";
  WaitOptions wait;
  wait.interrupted = [&] { return ++asked > 2; };
  EXPECT_EQ(sample_and_wait(*shared, std::move(request), wait).status.code(),
            StatusCode::kCancelled);
  EXPECT_TRUE(test::eventually(
      [&] { return why_blocked_and_wait(*server_->store(), "q").value().samples.waiting == 0; }));
  std::vector<Item> items;
  for (ItemKey key = 1; key <= kQueueSize + 2; ++key) items.push_back(testing::make_item(key, 1.0));
  asked = 0;
  const InsertResult result = insert_and_wait(*shared, {"q", items, TimePoint::max()}, wait);
  EXPECT_EQ(result.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(result.applied, static_cast<std::size_t>(kQueueSize));
  EXPECT_TRUE(test::eventually(
      [&] { return why_blocked_and_wait(*server_->store(), "q").value().inserts.waiting == 0; }));
}

TEST_F(ServedStore, AnInsertWithoutTimeToWaitIsMadeIfThereIsRoom) {
  ItemKey key = 0;
  const auto insert = [&](ReplayService& service) {
    Item item = testing::make_item(++key, 1.0);
    return insert_and_wait(service, {"q", {&item, 1}, TimePoint{}}).status;
  };
  for (int round = 0; round < 10; ++round) {
    const auto shared = client();  // the first insert of each has to connect
    for (std::int64_t i = 0; i < kQueueSize; ++i) {
      const Status status = insert(*shared);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const TimePoint begin = Clock::system().now();
    EXPECT_EQ(insert(*shared).code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(Clock::system().now() - begin, seconds(1.5)) << "as soon as the server has answered";
    ASSERT_TRUE(test::eventually(
        [&] { return why_blocked_and_wait(*server_->store(), "q").value().inserts.waiting == 0; }));
    const auto batch = sample(*server_->store(), kQueueSize, 10);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    EXPECT_EQ(batch->keys().front(), key - kQueueSize);
    // The item that failed does not come later.
    EXPECT_EQ(info_and_wait(*server_->store()).value().front().current_size, 0);
    ASSERT_TRUE(insert(*shared).ok());
    ASSERT_TRUE(sample(*server_->store(), 1, 10).ok());
  }
}

TEST_F(ServedStore, UnconfirmedItemsReachTheNextServer) {
  const auto shared = client();
  const std::string address = server_->addresses().front();
  std::vector<Item> items;
  for (ItemKey key = 1; key <= kQueueSize + 1; ++key) items.push_back(testing::make_item(key, 1.0));
  std::atomic<bool> is_done{false};
  InsertResult result;
  shared->insert({"q", items, TimePoint::max()}, [&](InsertResult r) {
    result = std::move(r);
    is_done = true;
  });
  ASSERT_TRUE(test::eventually([&] { return server_->figures().inserts >= kQueueSize; }));
  server_.reset();
  open(address);
  // At least the last item was not confirmed; all are resent, so one has to make room.
  auto sampled = sample(*shared, 1, 60);
  // If the client has not noticed the lost connection yet, the sample fails with it.
  if (sampled.status().code() == StatusCode::kUnavailable) sampled = sample(*shared, 1, 60);
  ASSERT_TRUE(sampled.ok()) << sampled.status().to_string();
  EXPECT_EQ(sampled->size(), 1u);
  ASSERT_TRUE(test::eventually([&] { return is_done.load(); }));
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.applied, items.size());
}

TEST_F(ServedStore, AClientThatClosesEndsItsCalls) {
  const auto shared = client();
  std::atomic<bool> is_done{false};
  Status status;
  SampleRequest request;
  request.table = "q";
  shared->sample(std::move(request), [&](const SampleResult& result) {
    status = result.status;
    is_done = true;
  });
  shared->close();
  EXPECT_TRUE(is_done);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(info_and_wait(*shared).status().code(), StatusCode::kCancelled);
}

// A server that refuses the first updates of priorities, as one does that starts or stops.
class RefusedUpdates : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.add_unary(format("{}ServerInfo", wire::kServicePath),
                      [](const auto&, const auto&, const GrpcUnaryReply& reply) {
                        reply(GrpcPayload::of(wire::write_info_response({1, 2, {}, 0})));
                      });
    server_.add_unary(format("{}MutatePriorities", wire::kServicePath),
                      [this](const auto&, const Ref<GrpcMessage>& request,
                             const GrpcUnaryReply& reply) { reply(apply(*request)); });
    client_ =
        ReverbClient::open(io_threads_, server_.listen({"127.0.0.1:0"}).value().front()).value();
  }
  void TearDown() override { client_->close(); }

  void refuse(int count) {
    MutexLock lock(mutex_);
    refusals_ = count;
  }
  RequestId update(double priority) {
    const ItemKey key = 7;
    MutateRequest request;
    request.table = "t";
    request.keys = {&key, 1};
    request.key_priorities = {&priority, 1};
    return client_->mutate(request, [this, priority](const MutateResult& result) {
      MutexLock lock(mutex_);
      ended_[priority] = result.status.code();
    });
  }
  std::map<double, StatusCode> ended() {
    MutexLock lock(mutex_);
    return ended_;
  }
  std::vector<double> applied() {
    MutexLock lock(mutex_);
    return applied_;
  }

  IoThreads io_threads_{2};
  Mutex mutex_;
  std::vector<double> applied_ REVERIE_GUARDED_BY(mutex_);
  std::map<double, StatusCode> ended_ REVERIE_GUARDED_BY(mutex_);
  int refusals_ REVERIE_GUARDED_BY(mutex_) = 0;
  GrpcServer server_{io_threads_, {}};
  std::shared_ptr<ReverbClient> client_;

 private:
  Result<GrpcPayload> apply(const GrpcMessage& request) {
    const auto read = wire::read_mutate_request(request.bytes());
    if (!read.ok()) return read.status();
    MutexLock lock(mutex_);
    if (refusals_ > 0) {
      --refusals_;
      return unavailable("not yet");
    }
    applied_.push_back(read->priorities.front());
    return GrpcPayload();
  }
};

TEST_F(RefusedUpdates, AreRepeatedBeforeTheUpdatesThatWereGivenMeanwhile) {
  refuse(1);
  update(5.0);
  ASSERT_TRUE(info_and_wait(*client_).ok());  // its answer comes after the refusal
  update(1.0);
  update(2.0);
  ASSERT_TRUE(test::eventually([&] { return ended().size() == 3; }));
  EXPECT_EQ(applied(), (std::vector<double>{5.0, 1.0, 2.0}));
  for (const auto& [priority, code] : ended()) EXPECT_EQ(code, StatusCode::kOk) << priority;
  update(3.0);
  ASSERT_TRUE(test::eventually([&] { return ended().size() == 4; }));
  EXPECT_EQ(applied().back(), 3.0);
}

TEST_F(RefusedUpdates, EndWhenTheyAreCancelledOrTheirClientCloses) {
  refuse(1'000'000);
  const RequestId first = update(5.0);
  ASSERT_TRUE(info_and_wait(*client_).ok());
  const RequestId second = update(1.0);
  update(2.0);
  client_->cancel(first);
  client_->cancel(second);
  ASSERT_TRUE(test::eventually([&] { return ended().size() == 2; }));
  client_->close();
  ASSERT_TRUE(test::eventually([&] { return ended().size() == 3; }));
  for (const auto& [priority, code] : ended()) EXPECT_NE(code, StatusCode::kOk) << priority;
}

// The same table and types, but other names.
TEST(ServedColumns, ARestartedServersColumnsHaveItsOwnNames) {
  IoThreads io_threads(2);
  std::unique_ptr<Server> server;
  std::string address = "localhost:0";
  const auto serve_column = [&](const std::string& name) {
    server = nullptr;
    TableOptions table = testing::table_options("t", "Fifo", "Fifo", 10, RateLimiter::min_size(1));
    const std::string structure = R"({"dict": [[")" + name + R"(", "*"]]})";
    table.signature = Signature{{{name, DType::kFloat32, {}}}, structure};
    ServerOptions options;
    options.addresses = {address};
    server = Server::open({table}, std::move(options)).value();
    address = "localhost:" + std::to_string(server->port());
    const auto layout = make_ref<Layout>(
        std::vector<LayoutColumn>{{{name, DType::kFloat32, {}}, 0, 0, 1, true}}, structure);
    const Ref<Chunk> chunk = testing::float_chunk(0, 1);
    const Piece piece{chunk.get(), 0, 1};
    Item item{1, 1.0, Trajectory(layout, {&piece, 1})};
    ASSERT_TRUE(insert_and_wait(*server->store(), {"t", {&item, 1}}).status.ok());
  };
  serve_column("old");
  const auto client = ReverbClient::open(io_threads, address).value();
  // A sample in progress, or sent before the loss is known, fails: the next one counts.
  const auto name_of = [&] {
    std::string name;
    EXPECT_TRUE(test::eventually([&] {
      SampleRequest request;
      request.table = "t";
      request.count = request.min_count = 1;
      const SampleResult result = sample_and_wait(*client, std::move(request));
      if (result.status.ok()) {
        name = result.batch.trajectories()[0].layout->columns()[0].spec.name;
      }
      return result.status.ok();
    }));
    return name;
  };
  EXPECT_EQ(name_of(), "old");
  for (const std::string name : {"new", "newer"}) {
    serve_column(name);
    EXPECT_EQ(name_of(), name);
    EXPECT_EQ(name_of(), name);
  }
}

}  // namespace
}  // namespace reverie
