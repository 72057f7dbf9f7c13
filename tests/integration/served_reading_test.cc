// Readers of a served store: the order of what they get, streams that stay open, and readers that
// leave, that request ahead, or that do not read.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/adapters/reverb/reverb_service.h"
#include "reverie/base/waiting.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::make_item;

class ServedReading : public ::testing::Test {
 protected:
  static constexpr std::int64_t kQueueSize = 5'000;

  void SetUp() override { serve("127.0.0.1:0"); }
  void TearDown() override {
    client_.reset();
    stop();
  }
  void serve(const std::string& address) {
    TableOptions queue =
        testing::table_options("q", "Fifo", "Fifo", kQueueSize, RateLimiter::queue(kQueueSize));
    queue.max_times_sampled = 1;
    store_ = LocalService::open({queue}, {}).value();
    service_ = ReverbService::make(store_).value();
    server_ = std::make_unique<GrpcServer>(threads_, GrpcServerOptions{});
    add_services();
    address_ = server_->listen({address}).value().front();
    if (!client_) client_ = ReverbClient::open(threads_, address_).value();
  }
  virtual void add_services() { service_->add_to(*server_); }
  void stop() {
    service_->close();
    server_->stop(seconds(20));  // waits until the ends of calls are sent
  }
  void fill(ItemKey begin, ItemKey end) {
    for (ItemKey key = begin; key < end; ++key) {
      Item item = make_item(key, 1.0, static_cast<float>(key));
      ASSERT_TRUE(insert_and_wait(*store_, {"q", {&item, 1}, TimePoint::max()}).status.ok());
    }
  }
  static SampleRequest asking(std::size_t count, double timeout_s = 30) {
    SampleRequest request;
    request.table = "q";
    request.count = request.min_count = count;
    request.deadline = Clock::system().now() + seconds(timeout_s);
    return request;
  }
  SampleResult sample(std::size_t count, double timeout_s = 30) {
    return sample_and_wait(*client_, asking(count, timeout_s));
  }
  std::int64_t size() { return info_and_wait(*store_).value().front().current_size; }
  std::int64_t waiting() { return why_blocked_and_wait(*store_, "q").value().samples.waiting; }
  std::uint64_t calls_begun() { return server_->figures().calls_begun; }
  // Checks that keys and values count up from `next`, and advances it.
  static void expect_in_order(const SampleBatch& batch, ItemKey* next) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      ASSERT_EQ(batch.keys()[i], *next);
      ASSERT_EQ(testing::value_of(batch.trajectories()[i]), static_cast<float>(*next));
      ++*next;
    }
  }

  IoThreads threads_{2};
  std::shared_ptr<LocalService> store_;
  std::unique_ptr<ReverbService> service_;
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::shared_ptr<ReverbClient> client_;
};

TEST_F(ServedReading, OneStreamServesAllRequestsOfAReader) {
  fill(1, 101);
  ItemKey next = 1;
  for (int i = 0; i < 20; ++i) {
    const SampleResult result = sample(5);
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    expect_in_order(result.batch, &next);
  }
  EXPECT_EQ(calls_begun(), 2u) << "one asked for the names of the columns";
}

TEST_F(ServedReading, AReaderOfOneItemDrawsNothingAhead) {
  fill(1, 11);
  for (int i = 1; i <= 10; ++i) {
    ASSERT_TRUE(sample(1).status.ok());
    ASSERT_EQ(size(), 10 - i);
  }
}

TEST_F(ServedReading, SuccessiveRequestsReadAQueueInOrder) {
  constexpr std::size_t kBatch = 100;
  fill(1, kQueueSize + 1);
  ItemKey next = 1;
  ASSERT_TRUE(sample(1).status.ok());  // tells the client the names of the columns
  ++next;
  PendingSample asked(*client_, asking(kBatch));
  for (int i = 0; i < 30; ++i) {
    SampleRequest request = asking(kBatch);
    request.follows = asked.id();
    PendingSample ahead(*client_, std::move(request));
    const SampleResult result = asked.wait({});
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    ASSERT_EQ(result.batch.size(), kBatch);
    expect_in_order(result.batch, &next);
    asked = std::move(ahead);
  }
  // One call for the first sample and one for the rest; further ones if a request followed just
  // before its predecessor's answer arrived, when no stream was known to be free.
  EXPECT_GE(calls_begun(), 2u);
  EXPECT_LE(calls_begun(), 10u);
}

// A server whose answers about its tables come when the test gives them.
class LateNames : public ServedReading {
 protected:
  void SetUp() override {
    ServedReading::SetUp();
    fill(1, 101);
  }
  void add_services() override {
    ServedReading::add_services();
    server_->add_unary(format("{}ServerInfo", wire::kServicePath),
                       [this](const auto&, const auto&, const GrpcUnaryReply& reply) {
                         MutexLock lock(mutex_);
                         replies_.push_back(reply);
                       });
  }
  std::size_t asked() {
    MutexLock lock(mutex_);
    return replies_.size();
  }
  void answer(std::size_t index) {
    GrpcUnaryReply reply;
    {
      MutexLock lock(mutex_);
      reply = replies_.at(index);
    }
    reply(GrpcPayload::of(
        wire::write_info_response({1, 2, info_and_wait(*store_).value(), /*client_number=*/0})));
  }
  PendingSample ask(RequestId follows) {
    SampleRequest request = asking(5);
    request.follows = follows;
    return {*client_, std::move(request)};
  }

  Mutex mutex_;
  std::vector<GrpcUnaryReply> replies_ REVERIE_GUARDED_BY(mutex_);
};

TEST_F(LateNames, RequestsThatFollowAFirstOneKeepTheirOrder) {
  PendingSample first = ask(0);
  PendingSample second = ask(first.id());
  while (asked() < 1) {
  }
  answer(0);
  ItemKey next = 1;
  expect_in_order(first.wait({}).batch, &next);
  PendingSample third = ask(second.id());  // the client knows the names
  const SampleResult thirds = third.wait({});
  expect_in_order(second.wait({}).batch, &next);
  expect_in_order(thirds.batch, &next);
  EXPECT_EQ(next, 16);
  EXPECT_EQ(asked(), 1u);
}

TEST_F(LateNames, OneThatIsCancelledBehindAnotherLeavesThoseAfterIt) {
  PendingSample first = ask(0);
  PendingSample second = ask(first.id());
  PendingSample third = ask(second.id());
  while (asked() < 1) {
  }
  client_->cancel(second.id());
  EXPECT_EQ(second.wait({}).status.code(), StatusCode::kCancelled);
  answer(0);
  ItemKey next = 1;
  expect_in_order(first.wait({}).batch, &next);
  expect_in_order(third.wait({}).batch, &next);
  EXPECT_EQ(next, 11);
}

TEST_F(LateNames, OneThatFailsLeavesThoseBehindIt) {
  PendingSample first = ask(0);
  PendingSample second = ask(first.id());
  while (asked() < 1) {
  }
  client_->cancel(first.id());
  EXPECT_EQ(first.wait({}).status.code(), StatusCode::kCancelled);
  while (asked() < 2) {
  }
  answer(1);
  ItemKey next = 1;
  expect_in_order(second.wait({}).batch, &next);
  EXPECT_EQ(next, 6);
}

TEST_F(LateNames, AClosedClientEndsAllThatWait) {
  PendingSample first = ask(0);
  PendingSample second = ask(first.id());
  while (asked() < 1) {
  }
  client_->close();
  EXPECT_EQ(first.wait({}).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(second.wait({}).status.code(), StatusCode::kCancelled);
}

TEST_F(ServedReading, ABatchDrawnInManyPortionsIsCompleteAndInOrder) {
  fill(1, kQueueSize + 1);
  ItemKey next = 1;
  const SampleResult result = sample(kQueueSize);
  ASSERT_TRUE(result.status.ok()) << result.status.to_string();
  ASSERT_EQ(result.batch.size(), static_cast<std::size_t>(kQueueSize));
  expect_in_order(result.batch, &next);
}

TEST_F(ServedReading, ATimeoutReturnsTheSamplesDrawnAndTheNextRequestWorks) {
  fill(1, 4);
  const SampleResult result = sample(10, 0.05);
  expect_refused(result.status, StatusCode::kDeadlineExceeded, {"3 of 10 samples"});
  EXPECT_EQ(result.batch.size(), 3u);
  EXPECT_TRUE(result.batch.rate_limited());
  fill(4, 6);
  ItemKey next = 4;
  const SampleResult after = sample(2);
  ASSERT_TRUE(after.status.ok()) << after.status.to_string();
  expect_in_order(after.batch, &next);
}

TEST_F(ServedReading, ATimeoutEndsARequestWhoseItemsComeOneByOne) {
  ASSERT_TRUE((fill(1, 2), sample(1).status.ok()));
  std::atomic<bool> is_over = false;
  std::thread filler([&] {
    for (ItemKey key = 2; !is_over; ++key) {
      fill(key, key + 1);
      pause_until(Clock::system(), Clock::system().now() + seconds(0.05));
    }
  });
  const TimePoint begin = Clock::system().now();
  const SampleResult result = sample(1'000, 0.3);
  EXPECT_LT(Clock::system().now() - begin, seconds(2)) << "the server ends it, not the client";
  expect_refused(result.status, StatusCode::kDeadlineExceeded, {"of 1000 samples"});
  ItemKey next = 2;
  expect_in_order(result.batch, &next);
  const SampleResult after = sample(2);
  expect_in_order(after.batch, &next);
  is_over = true;
  filler.join();
}

TEST_F(ServedReading, CancellingARequestCancelsOnlyThoseThatFollowIt) {
  ASSERT_TRUE((fill(1, 2), sample(1).status.ok()));
  PendingSample asked(*client_, asking(1));
  SampleRequest request = asking(1);
  request.follows = asked.id();
  PendingSample ahead(*client_, std::move(request));
  SampleRequest other = asking(1);
  PendingSample beside(*client_, std::move(other));
  while (waiting() < 2) {
  }
  client_->cancel(asked.id());
  EXPECT_EQ(asked.wait({}).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(ahead.wait({}).status.code(), StatusCode::kCancelled);
  while (waiting() > 1) {
  }
  fill(2, 3);
  EXPECT_TRUE(beside.wait({}).status.ok());
  EXPECT_EQ(size(), 0);
}

TEST_F(ServedReading, ACancelAfterTheAnswerDoesNotAffectOthers) {
  fill(1, 3);
  PendingSample first(*client_, asking(1));
  const RequestId id = first.id();
  ASSERT_TRUE(first.wait({}).status.ok());
  PendingSample second(*client_, asking(1));  // uses the stream of the first
  client_->cancel(id);
  EXPECT_TRUE(second.wait({}).status.ok());
}

// Drawn samples cannot be put back in their place, since the items after them may be gone by then.
// So they are counted.
TEST_F(ServedReading, SamplesDrawnForADisconnectedReaderAreCounted) {
  fill(1, kQueueSize + 1);
  {
    const auto gone = ReverbClient::open(threads_, address_).value();
    ASSERT_TRUE(sample_and_wait(*gone, asking(10)).status.ok());
    PendingSample asked(*gone, asking(2'000));
    gone->close();
    (void)asked.wait({});
  }
  ItemKey last = 0;
  std::size_t left = 0;
  while (true) {
    const SampleResult rest = sample(100, 0.2);
    for (const ItemKey key : rest.batch.keys()) {
      ASSERT_GT(key, last);
      last = key;
      ++left;
    }
    if (!rest.status.ok()) break;
  }
  const ReverbFigures figures = service_->figures();
  EXPECT_EQ(figures.samples + figures.unsent_samples, static_cast<std::uint64_t>(kQueueSize));
  EXPECT_GE(left, static_cast<std::size_t>(kQueueSize) - 2'010);
}

TEST_F(ServedReading, ARestartedServerServesTheNextRequest) {
  fill(1, 11);
  ASSERT_TRUE(sample(2).status.ok());
  const std::string address = address_;
  stop();
  serve(address);
  fill(1, 11);
  for (int tries = 0; tries < 100; ++tries) {
    const SampleResult result = sample(2);
    if (result.status.ok()) return;
    ASSERT_EQ(result.status.code(), StatusCode::kUnavailable) << result.status.to_string();
  }
  FAIL() << "the server was not found again";
}

TEST_F(ServedReading, AStoppingServerEndsWaitingRequests) {
  ASSERT_TRUE((fill(1, 2), sample(1).status.ok()));
  PendingSample asked(*client_, asking(1));
  while (waiting() < 1) {
  }
  stop();
  const Status status = asked.wait({}).status;
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
}

// A server that accepts requests and never answers.
TEST(SilentServer, IsAbandonedSoonAfterTheDeadline) {
  class Silent final : public GrpcServerEvents {
   public:
    void on_message(Ref<GrpcMessage>) override {}
    void on_half_close() override {}
    void on_end(const Status&) override {}
  };
  IoThreads threads(2);
  const auto store =
      LocalService::open(
          {testing::table_options("q", "Fifo", "Fifo", 10, RateLimiter::min_size(1))}, {})
          .value();
  const auto service = ReverbService::make(store).value();
  GrpcServer server(threads, {});
  service->add_to(server);
  server.add_method(format("{}SampleStream", wire::kServicePath),
                    [](const auto&) { return std::make_shared<Silent>(); });
  const auto client =
      ReverbClient::open(threads, server.listen({"127.0.0.1:0"}).value().front()).value();
  SampleRequest request;
  request.table = "q";
  request.deadline = Clock::system().now() + seconds(0.05);
  const SampleResult result = sample_and_wait(*client, std::move(request));
  expect_refused(result.status, StatusCode::kDeadlineExceeded, {"0 of 1 samples"});
}

}  // namespace
}  // namespace reverie
