// Each item is inserted once and in order, over connections that are cut, with a server that goes
// away and comes back, or never comes.
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/gather/batch.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/server/server.h"
#include "reverie/service/blocking.h"
#include "tests/scale.h"
#include "tests/support/cutting_proxy.h"
#include "tests/support/eventually.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"
#include "tests/support/within.h"

namespace reverie {
namespace {

constexpr std::int64_t kQueueSize = 50;

class InsertOnce : public ::testing::Test {
 protected:
  void open(const std::string& address = "localhost:0") {
    TableOptions queue =
        testing::table_options("q", "Fifo", "Fifo", kQueueSize, RateLimiter::queue(kQueueSize));
    queue.max_times_sampled = 1;
    ServerOptions options;
    options.addresses = {address};
    server_ = Server::open({queue}, std::move(options)).value();
  }
  std::shared_ptr<ReverbClient> client(std::uint16_t port, ReverbClientOptions options = {}) {
    return ReverbClient::open(io_threads_, "localhost:" + std::to_string(port), std::move(options))
        .value();
  }
  static Status write_one(TrajectoryWriter& writer, ColumnId column, std::int64_t number) {
    const Value value = i64(number);
    const ColumnValue step{column, value.view()};
    REVERIE_RETURN_IF_ERROR(writer.append({&step, 1}, false));
    const StepRange range{writer.next_step() - 1, 1};
    const TrajectoryColumn picked{"x", column, {&range, 1}, false};
    return writer.create_item({"q", 1.0, {&picked, 1}, "\"*\""}, TimePoint::max(), {});
  }
  // Takes the next items out of the queue, in the server's process; returns their numbers.
  std::vector<std::int64_t> take(std::size_t count_max) {
    SampleRequest request;
    request.table = "q";
    request.count = count_max;
    const SampleResult result = sample_and_wait(*server_->store(), std::move(request));
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    const Batch batch = assemble(result.batch, {}).value();
    std::vector<std::int64_t> numbers(result.batch.size());
    std::memcpy(numbers.data(), batch.columns[0].bytes.data(), numbers.size() * 8);
    return numbers;
  }

  void drop_some() {
    SampleRequest request;
    request.table = "q";
    request.count = 16;
    request.deadline = Clock::system().now() + std::chrono::milliseconds(10);
    (void)sample_and_wait(*server_->store(), std::move(request));
  }

  IoThreads io_threads_{2};
  std::unique_ptr<Server> server_;
};

// The queue is emptied while it is filled: an item that was inserted again after it was taken would
// be seen twice, a lost one never.
TEST_F(InsertOnce, AConnectionCutAtAnyByteLosesNoItemAndRepeatsNone) {
  const std::int64_t count = scaled(2'000, 100'000);
  open();
  const testing::CuttingProxy proxy(server_->port(), /*cut_share=*/0.05, /*seed=*/11);
  const auto shared = client(proxy.port());
  std::thread writing([&] {
    const auto writer = TrajectoryWriter::open(shared, {}).value();
    const ColumnId column = writer->column("x");
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(write_one(*writer, column, i).ok());
      // Many small messages, each a chance to be cut.
      if (i % 3 == 0) {
        ASSERT_TRUE(writer->flush(1, TimePoint::max(), {}).ok());
      }
    }
    ASSERT_TRUE(writer->flush(0, TimePoint::max(), {}).ok());
  });
  std::int64_t next = 0;
  while (next < count) {
    for (const std::int64_t number : take(16)) {
      ASSERT_EQ(number, next) << "after " << proxy.cuts() << " cuts";
      ++next;
    }
  }
  writing.join();
  EXPECT_EQ(server_->figures().inserts, static_cast<std::uint64_t>(count));
  EXPECT_GT(proxy.cuts(), static_cast<std::uint64_t>(count) / 100);
  RecordProperty("cuts", std::to_string(proxy.cuts()));
}

TEST_F(InsertOnce, AClientContinuesWithinTwoSecondsOfAServerRestart) {
  open();
  const std::string address = server_->addresses().front();
  const auto shared = client(server_->port());
  std::atomic<bool> is_over{false};
  std::atomic<bool> has_ended{false};
  std::thread writing([&] {
    const auto writer = TrajectoryWriter::open(shared, {}).value();
    const ColumnId column = writer->column("x");
    for (std::int64_t i = 0; !is_over; ++i) {
      EXPECT_TRUE(write_one(*writer, column, i).ok());
      EXPECT_TRUE(writer->flush(kQueueSize, TimePoint::max(), {}).ok());
    }
    has_ended = true;
  });
  std::int64_t next = 0;
  const auto read_to = [&](std::int64_t end) {
    while (next < end) {
      for (const std::int64_t number : take(16)) {
        // Items that the first server held are lost; no item is repeated or out of order.
        ASSERT_GE(number, next);
        next = number + 1;
      }
    }
  };
  for (int restart = 0; restart < 3; ++restart) {
    read_to(next + 200);
    server_.reset();
    open(address);
    const TimePoint back = Clock::system().now();
    const std::int64_t before = next;
    read_to(next + 1);
    EXPECT_TRUE(test::ended_within(back, 2.0));
    EXPECT_LE(next - before, kQueueSize + 2 * 16) << "only what was in the queue is gone";
  }
  is_over = true;
  while (!has_ended) drop_some();
  writing.join();
}

TEST_F(InsertOnce, AClientGivesUpOnAServerThatDoesNotReturn) {
  open();
  ReverbClientOptions options;
  options.retry_time = std::chrono::milliseconds(300);
  const auto shared = client(server_->port(), options);
  const auto writer = TrajectoryWriter::open(shared, {}).value();
  const ColumnId column = writer->column("x");
  ASSERT_TRUE(write_one(*writer, column, 0).ok());
  ASSERT_TRUE(writer->flush(0, TimePoint::max(), {}).ok());
  const std::string address = server_->addresses().front();
  server_.reset();
  ASSERT_TRUE(write_one(*writer, column, 1).ok());
  ASSERT_TRUE(write_one(*writer, column, 2).ok());
  const TimePoint begin = Clock::system().now();
  // On a busy machine the first item may be given up before the second.
  expect_refused(writer->flush(0, TimePoint::max(), {}), StatusCode::kUnavailable,
                 {"queued item", "'q'", "0.3 s", "retry for longer"});
  EXPECT_TRUE(test::ended_within(begin, 3.0));
  expect_refused(info_and_wait(*shared).status(), StatusCode::kUnavailable, {"0.3 s"});
  // If the server comes back, the writer continues, with its full timeout again.
  open(address);
  // A busy machine may not connect within that time.
  std::int64_t last = 2;
  ASSERT_TRUE(test::eventually([&] {
    return write_one(*writer, column, ++last).ok() && writer->flush(0, TimePoint::max(), {}).ok();
  }));
  const std::vector<std::int64_t> taken = take(16);
  ASSERT_FALSE(taken.empty());
  EXPECT_GE(taken.front(), 3) << "what was given up is not sent";
  EXPECT_EQ(taken.back(), last);
}

TEST_F(InsertOnce, AQueryIsRepeatedWhenItsConnectionIsLost) {
  open();
  const testing::CuttingProxy proxy(server_->port(), /*cut_share=*/0.1, /*seed=*/5);
  const auto shared = client(proxy.port());
  for (int i = 0; i < 15; ++i) {
    const auto infos = info_and_wait(*shared);
    ASSERT_TRUE(infos.ok()) << infos.status().to_string();
    EXPECT_EQ(infos->front().options.name, "q");
    const ItemKey key = 1;
    const double priority = 2;
    MutateRequest update;
    update.table = "q";
    update.keys = {&key, 1};
    update.key_priorities = {&priority, 1};
    EXPECT_TRUE(mutate_and_wait(*shared, update).status.ok());
  }
  EXPECT_GT(proxy.cuts(), 2u);
}

// The client is destroyed at about the time at which its timer repeats a query.
TEST_F(InsertOnce, AClientThatIsDestroyedWhileItRepeatsAQueryEndsItBefore) {
  GrpcServer server(io_threads_, {});
  std::atomic<std::int64_t> asked_at_ns{0};
  server.add_unary(format("{}ServerInfo", wire::kServicePath),
                   [&](const auto&, const auto&, const GrpcUnaryReply& reply) {
                     asked_at_ns = Clock::system().now().ns;
                     reply(unavailable("not now"));
                   });
  const std::string address = server.listen({"localhost:0"}).value().front();
  for (int i = 0; i < 40; ++i) {
    asked_at_ns = 0;
    std::atomic<int> ended{0};
    auto shared = ReverbClient::open(io_threads_, address, {}).value();
    shared->info([&](const Result<std::vector<TableInfo>>& result) {
      EXPECT_FALSE(result.ok());
      ++ended;
    });
    ASSERT_TRUE(test::eventually([&] { return asked_at_ns != 0; }));
    const TimePoint until =
        TimePoint{asked_at_ns} + std::chrono::microseconds(10'000 + 10 * (i % 40));
    while (Clock::system().now() < until) {
    }
    shared = nullptr;
    EXPECT_EQ(ended, 1);
  }
}

TEST_F(InsertOnce, AClientThatClosesWhileItWaitsForAServerEndsItsCalls) {
  open();
  const std::uint16_t port = server_->port();
  server_.reset();
  const auto shared = client(port);
  std::atomic<int> ended{0};
  std::vector<Item> items;
  items.push_back(testing::make_item(1, 1.0));
  shared->insert({"q", items, TimePoint::max()}, [&](const InsertResult& result) {
    EXPECT_EQ(result.status.code(), StatusCode::kCancelled);
    ++ended;
  });
  shared->info([&](const Result<std::vector<TableInfo>>& result) {
    EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
    ++ended;
  });
  shared->close();
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace reverie
