#include "reverie/service/update_window.h"

#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

using test::eventually;

// Answers calls when the test says so.
class SlowService final : public ReplayService {
 public:
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override {
    MutexLock lock(mutex_);
    calls_.emplace_back(request.keys.begin(), request.keys.end());
    waiting_.push_back(std::move(done));
    return waiting_.size();
  }
  // Answers the oldest waiting call.
  void answer(const Status& status) {
    Done<MutateResult> done;
    {
      MutexLock lock(mutex_);
      done = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
    }
    done({.status = status});
  }
  // The keys of each call.
  std::vector<std::vector<ItemKey>> calls() {
    MutexLock lock(mutex_);
    return calls_;
  }

  RequestId insert(InsertRequest, Done<InsertResult>) override { return 0; }
  RequestId sample(SampleRequest, Done<SampleResult>) override { return 0; }
  RequestId lookup(const LookupRequest&, Done<LookupResult>) override { return 0; }
  RequestId reset(std::string_view, Done<Status>) override { return 0; }
  RequestId info(Done<Result<std::vector<TableInfo>>>) override { return 0; }
  RequestId why_blocked(std::string_view, Done<Result<BlockedReport>>) override { return 0; }
  void cancel(RequestId) override {}
  void close() override {}

 private:
  Mutex mutex_;
  std::vector<Done<MutateResult>> waiting_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::vector<ItemKey>> calls_ REVERIE_GUARDED_BY(mutex_);
};

class UpdateWindowTest : public ::testing::Test {
 protected:
  Status update(ItemKey key, TimePoint deadline = TimePoint::max()) {
    const double priority = 1.0;
    MutateRequest request;
    request.table = "t";
    request.keys = {&key, 1};
    request.key_priorities = {&priority, 1};
    return window.update(request, deadline, {});
  }
  static TimePoint now() { return Clock::system().now(); }

  std::shared_ptr<SlowService> service = std::make_shared<SlowService>();
  UpdateWindow window{service, UpdateWindow::kPace};
};

using Calls = std::vector<std::vector<ItemKey>>;

TEST_F(UpdateWindowTest, AcceptsUpdatesWithoutWaitingForAnAnswer) {
  for (ItemKey key = 0; key < UpdateWindow::kUpdatesMax; ++key) ASSERT_TRUE(update(key).ok());
  EXPECT_EQ(window.count(), UpdateWindow::kUpdatesMax);
  EXPECT_EQ(service->calls(), Calls{{0}}) << "the others wait for its answer";
  service->answer({});
  ASSERT_TRUE(eventually([&] { return service->calls().size() == 2; }));
  EXPECT_EQ(service->calls()[1].size(), UpdateWindow::kUpdatesMax - 1) << "in one call";
  service->answer({});
  EXPECT_TRUE(window.flush(TimePoint::max(), {}).ok());
}

TEST_F(UpdateWindowTest, WaitsForRoomWhenFull) {
  for (ItemKey key = 0; key < UpdateWindow::kUpdatesMax; ++key) ASSERT_TRUE(update(key).ok());
  EXPECT_EQ(update(99, now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(window.count(), UpdateWindow::kUpdatesMax) << "it was not taken";
  std::thread answering([&] { service->answer({}); });
  EXPECT_TRUE(update(99).ok());
  answering.join();
  window.send();
  EXPECT_EQ(service->calls().back().back(), 99u);
}

TEST_F(UpdateWindowTest, SendSubmitsAllWaitingUpdates) {
  for (const ItemKey key : {1u, 2u, 3u}) ASSERT_TRUE(update(key).ok());
  window.send();
  EXPECT_EQ(service->calls(), (Calls{{1}, {2, 3}}));
  window.send();
  EXPECT_EQ(service->calls().size(), 2u);
}

TEST_F(UpdateWindowTest, WithoutAPaceEachUpdateIsSentAtOnce) {
  UpdateWindow other(service, Duration::zero());
  for (const ItemKey key : {1u, 2u}) {
    const double priority = 1.0;
    MutateRequest request;
    request.table = "t";
    request.keys = {&key, 1};
    request.key_priorities = {&priority, 1};
    ASSERT_TRUE(other.update(request, TimePoint::max(), {}).ok());
    EXPECT_EQ(service->calls().size(), key);
    service->answer({});
  }
}

TEST_F(UpdateWindowTest, AnErrorIsReportedOnceByTheNextUpdate) {
  ASSERT_TRUE(update(1).ok());
  service->answer(not_found("no such table"));
  const Status told = update(3);
  EXPECT_EQ(told.code(), StatusCode::kNotFound);
  EXPECT_NE(told.message().find("earlier update of priorities of table 't'"), std::string::npos);
  EXPECT_EQ(window.count(), 0u) << "that call did nothing else";
  EXPECT_TRUE(update(3).ok());
}

TEST_F(UpdateWindowTest, OnlyTheInvalidUpdateOfASharedCallIsLost) {
  for (const ItemKey key : {1u, 2u, 3u}) ASSERT_TRUE(update(key).ok());
  window.send();
  service->answer({});
  service->answer(invalid_argument("no priority"));
  ASSERT_TRUE(eventually([&] { return service->calls().size() == 4; }));
  EXPECT_EQ(service->calls(), (Calls{{1}, {2, 3}, {2}, {3}}));
  service->answer({});
  service->answer(invalid_argument("no priority"));
  EXPECT_EQ(window.flush(TimePoint::max(), {}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(window.flush(TimePoint::max(), {}).ok());
}

TEST_F(UpdateWindowTest, FlushWaitsForAllUpdatesAndReportsAnError) {
  EXPECT_TRUE(window.flush(TimePoint::max(), {}).ok());
  ASSERT_TRUE(update(1).ok());
  EXPECT_EQ(window.flush(now(), {}).code(), StatusCode::kDeadlineExceeded);
  service->answer(invalid_argument("no priority"));
  EXPECT_EQ(window.flush(TimePoint::max(), {}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(window.flush(TimePoint::max(), {}).ok());
}

TEST_F(UpdateWindowTest, AWaitCanBeInterrupted) {
  ASSERT_TRUE(update(1).ok());
  WaitOptions wait;
  wait.interrupted = [] { return true; };
  EXPECT_EQ(window.flush(TimePoint::max(), wait).code(), StatusCode::kCancelled);
}

TEST_F(UpdateWindowTest, AnswersMayArriveAfterItsDestruction) {
  {
    UpdateWindow other(service, UpdateWindow::kPace);
    for (const ItemKey key : {5u, 6u, 7u}) {
      const double priority = 2.0;
      MutateRequest request;
      request.table = "t";
      request.keys = {&key, 1};
      request.key_priorities = {&priority, 1};
      ASSERT_TRUE(other.update(request, TimePoint::max(), {}).ok());
    }
  }
  EXPECT_EQ(service->calls(), (Calls{{5}, {6, 7}})) << "all were sent";
  service->answer({});
  service->answer({});
}

}  // namespace
}  // namespace reverie
