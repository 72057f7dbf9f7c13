// What every ReplayService must do.
//
// A new implementation joins with one line in a test file:
//
//     INSTANTIATE_TEST_SUITE_P(Local, ReplayServiceSuite, ::testing::Values(ServiceKind{"Local",
//     open_local}));
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/table_describer.h"
#include "tests/support/items.h"

namespace reverie::testing {

// Features that a service may lack because its protocol cannot express them.
enum class Lack {
  kLookUps,        // reading items by key
  kDistinct,       // drawing as many as max_size items without replacement
  kReasons,        // why a request waits, and which bound holds
  kCounts,         // of requests that wait, and of updates that found no item
  kAllShards,      // one shard does not answer; a reset reports that after the others were reset
  kMoreThanLeast,  // a sample draws exactly min_count items, and never more up to count
};

struct ServiceKind {
  std::string name;
  // Opens a service with those tables; its deadlines follow `clock`.
  std::function<std::shared_ptr<ReplayService>(std::vector<TableOptions>, Clock& clock)> open;
  std::vector<Lack> lacks = {};
  // Answers come later from another thread, and deadlines follow the system's clock.
  bool is_far = false;
};

// The value that a completion gets, on any thread.
template <typename T>
class Outcome {
 public:
  std::function<void(T)> done() {
    return [state = state_](T value) {
      MutexLock lock(state->mutex);
      ++state->count;
      state->value.emplace(std::move(value));
      state->changed.notify_all();
    };
  }
  bool is_here() const { return count() > 0; }
  int count() const {
    MutexLock lock(state_->mutex);
    return state_->count;
  }
  // Waits for the value, at most 20 s.
  T take() {
    const TimePoint until = Clock::system().now() + seconds(20);
    MutexLock lock(state_->mutex);
    while (!state_->value) {
      REVERIE_CHECK(Clock::system().wait_until(state_->changed, state_->mutex, until));
    }
    return std::move(*state_->value);
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    std::optional<T> value REVERIE_GUARDED_BY(mutex);
    int count REVERIE_GUARDED_BY(mutex) = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline std::ostream& operator<<(std::ostream& out, const ServiceKind& kind) {
  return out << kind.name;
}

class ReplayServiceSuite : public ::testing::TestWithParam<ServiceKind> {
 protected:
  std::shared_ptr<ReplayService> open(std::vector<TableOptions> tables) {
    return GetParam().open(std::move(tables), clock_);
  }
  static bool is_far() { return GetParam().is_far; }
  static bool lacks(Lack what) { return std::ranges::count(GetParam().lacks, what) > 0; }
  // The deadline `s` seconds from now. A far service gets at least kMomentS to answer.
  TimePoint in(double s) {
    if (is_far()) return Clock::system().now() + seconds(std::max(s, kMomentS));
    return clock_.now() + seconds(s);
  }

  Status insert(ReplayService& service, ItemKey key, double priority = 1.0, double timeout_s = 0,
                float value = 0) {
    Item item = make_item(key, priority, value);
    return insert_and_wait(service, {"t", {&item, 1}, in(timeout_s)}).status;
  }
  SampleResult sample(ReplayService& service, std::size_t count, double timeout_s = 0) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = count;
    request.deadline = in(timeout_s);
    return sample_and_wait(service, std::move(request));
  }
  void reset(ReplayService& service) {
    const StatusCode code = reset_and_wait(service, "t").code();
    EXPECT_EQ(code, lacks(Lack::kAllShards) ? StatusCode::kUnavailable : StatusCode::kOk);
  }
  TableInfo info(ReplayService& service) { return info_and_wait(service).value().front(); }

  static std::vector<ItemKey> keys_of(const SampleBatch& batch) {
    return {batch.keys().begin(), batch.keys().end()};
  }
  static TableOptions fifo_table(std::int64_t max_size = 100) {
    return table_options("t", "Fifo", "Fifo", max_size, RateLimiter::min_size(1));
  }
  static TableOptions queue_table(std::int64_t size) {
    TableOptions options = table_options("t", "Fifo", "Fifo", size, RateLimiter::queue(size));
    options.max_times_sampled = 1;
    return options;
  }
  static TableOptions stack_table(std::int64_t size) {
    TableOptions options = table_options("t", "Lifo", "Lifo", size, RateLimiter::queue(size));
    options.max_times_sampled = 1;
    return options;
  }

  // The shortest deadline for a service whose answers come from another thread. A sanitizer build
  // on a busy machine has needed more than half a second.
#ifdef NDEBUG
  static constexpr double kMomentS = 0.5;
#else
  static constexpr double kMomentS = 2.0;
#endif
  ManualClock clock_;
};

TEST_P(ReplayServiceSuite, AQueueGivesEachItemOnceInOrder) {
  const auto service = open({queue_table(3)});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key).ok());
  EXPECT_EQ(insert(*service, 4).code(), StatusCode::kDeadlineExceeded) << "the fourth waits";
  SampleResult two = sample(*service, 2);
  EXPECT_EQ(keys_of(two.batch), (std::vector<ItemKey>{1, 2}));
  ASSERT_TRUE(insert(*service, 5).ok());
  EXPECT_EQ(keys_of(sample(*service, 2).batch), (std::vector<ItemKey>{3, 5}));
  EXPECT_EQ(sample(*service, 1).status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(info(*service).current_size, 0);
}

TEST_P(ReplayServiceSuite, AStackGivesTheNewestFirst) {
  const auto service = open({stack_table(3)});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key).ok());
  EXPECT_EQ(keys_of(sample(*service, 3).batch), (std::vector<ItemKey>{3, 2, 1}));
}

TEST_P(ReplayServiceSuite, DeletingAQueueItemFreesItsPlace) {
  const auto service = open({queue_table(2)});
  ASSERT_TRUE(insert(*service, 1).ok());
  ASSERT_TRUE(insert(*service, 2).ok());
  const ItemKey key = 1;
  MutateRequest request;
  request.table = "t";
  request.deletes = {&key, 1};
  EXPECT_EQ(mutate_and_wait(*service, request).deleted, 1u);
  EXPECT_TRUE(insert(*service, 3).ok());
  EXPECT_EQ(keys_of(sample(*service, 2).batch), (std::vector<ItemKey>{2, 3}));
}

TEST_P(ReplayServiceSuite, AnUndecodableItemLeavesItsTableAsIfNeverDrawn) {
  const auto service = open({fifo_table()});
  for (ItemKey key = 1; key <= 4; ++key) ASSERT_TRUE(insert(*service, key).ok());
  const SampleResult drawn = sample(*service, 3);
  ASSERT_TRUE(drawn.status.ok());
  std::vector<CorruptItem> corrupt;  // one per draw; an item may be drawn several times
  for (const ItemKey key : drawn.batch.keys()) corrupt.push_back({key, 7, "damaged"});
  const std::set<ItemKey> gone(drawn.batch.keys().begin(), drawn.batch.keys().end());
  const auto count = static_cast<std::int64_t>(gone.size());
  MutateRequest request;
  request.table = "t";
  request.corrupt = corrupt;
  for (int round = 0; round < 2; ++round) {  // the second finds nothing
    mutate_and_wait(*service, request);
    EXPECT_EQ(info(*service).current_size, 4 - count);
    EXPECT_EQ(info(*service).corrupt_items, count);
    EXPECT_EQ(info(*service).samples, 0);
  }
}

TEST_P(ReplayServiceSuite, AnUndecodableQueueItemIsCountedAfterItHasLeft) {
  const auto service = open({queue_table(3)});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key).ok());
  ASSERT_EQ(keys_of(sample(*service, 1).batch), (std::vector<ItemKey>{1}));
  const std::vector<CorruptItem> corrupt = {{1, 7, "damaged"}};
  MutateRequest request;
  request.table = "t";
  request.corrupt = corrupt;
  mutate_and_wait(*service, request);
  EXPECT_EQ(info(*service).corrupt_items, 1);
  EXPECT_EQ(keys_of(sample(*service, 2).batch), (std::vector<ItemKey>{2, 3}));
}

TEST_P(ReplayServiceSuite, AQueueOfTwoAcceptsABatchOfFourInPortions) {
  const auto service = open({queue_table(2)});
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 4; ++key) items.push_back(make_item(key, 1.0));
  Outcome<InsertResult> outcome;
  service->insert({"t", items, TimePoint::max()}, outcome.done());
  EXPECT_FALSE(outcome.is_here());
  EXPECT_EQ(keys_of(sample(*service, 1).batch), (std::vector<ItemKey>{1}));
  EXPECT_FALSE(outcome.is_here());
  EXPECT_EQ(keys_of(sample(*service, 3).batch), (std::vector<ItemKey>{2, 3, 4}));
  EXPECT_TRUE(is_far() || outcome.is_here());
  const InsertResult result = outcome.take();
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.applied, 4u);
}

TEST_P(ReplayServiceSuite, InsertAtOnceLeavesItemsThatDoNotFitUnchanged) {
  const auto service = open({queue_table(2)});
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 3; ++key) items.push_back(make_item(key, 1.0));
  std::size_t done = service->insert_at_once("t", items);
  // A service that cannot tell whether items fit inserts none of them at once.
  EXPECT_TRUE(done == 2 || done == 0) << done;
  for (; done < items.size(); ++done) {
    EXPECT_FALSE(items[done].trajectory.empty());
    service->insert({"t", {&items[done], 1}, TimePoint::max()}, [](const InsertResult&) {});
  }
  Item last = make_item(4, 1.0);
  EXPECT_EQ(service->insert_at_once("t", {&last, 1}), 0u) << "3 waits before it";
  EXPECT_EQ(service->insert_at_once("none", {&last, 1}), 0u);
  auto keys = keys_of(sample(*service, 3, 1).batch);
  // Items that a silent shard got first arrive later, through another shard.
  if (lacks(Lack::kAllShards)) std::ranges::sort(keys);
  EXPECT_EQ(keys, (std::vector<ItemKey>{1, 2, 3}));
  // An invalid item is left to insert(); the items before it go in.
  std::vector<Item> bad;
  bad.push_back(make_item(5, 1.0));
  bad.push_back(make_item(6, std::nan("")));
  EXPECT_LE(service->insert_at_once("t", bad), 1u);
  EXPECT_FALSE(bad[1].trajectory.empty());
}

TEST_P(ReplayServiceSuite, ATimedOutInsertSaysHowManyWereApplied) {
  const auto service = open({queue_table(2)});
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 5; ++key) items.push_back(make_item(key, 1.0));
  const InsertResult result = insert_and_wait(*service, {"t", items, in(0)});
  EXPECT_EQ(result.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(result.applied, 2u);
  if (lacks(Lack::kReasons)) return;
  EXPECT_NE(result.status.message().find("2 of 5"), std::string::npos) << result.status.message();
  EXPECT_NE(result.status.message().find("max_diff"), std::string::npos) << result.status.message();
}

TEST_P(ReplayServiceSuite, SamplesDrawnBeforeTheDeadlineAreNotLost) {
  const auto service = open({queue_table(10)});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key).ok());
  Outcome<SampleResult> outcome;
  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = 5;
  request.deadline = in(is_far() ? 2 : 10);
  service->sample(std::move(request), outcome.done());
  ASSERT_TRUE(insert(*service, 4).ok());
  clock_.advance(seconds(11));
  const SampleResult result = outcome.take();
  EXPECT_EQ(result.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(keys_of(result.batch), (std::vector<ItemKey>{1, 2, 3, 4}));
  EXPECT_TRUE(result.batch.rate_limited());
}

TEST_P(ReplayServiceSuite, ASampleMayReturnFewerItemsThanRequested) {
  if (lacks(Lack::kMoreThanLeast)) GTEST_SKIP() << "it draws as many as it must";
  const auto service = open({queue_table(10)});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key).ok());
  SampleRequest request;
  request.table = "t";
  request.count = 100;
  request.min_count = 1;
  const SampleResult result = sample_and_wait(*service, std::move(request));
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.batch.size(), 3u);
}

TEST_P(ReplayServiceSuite, RequestsOfTheSameKindAreServedInOrder) {
  const auto service = open({queue_table(1)});
  ASSERT_TRUE(insert(*service, 1).ok());
  Mutex mutex;
  std::vector<ItemKey> confirmed;
  std::vector<Outcome<InsertResult>> outcomes(4);
  for (ItemKey key = 2; key <= 5; ++key) {
    Item item = make_item(key, 1.0);
    service->insert({"t", {&item, 1}, TimePoint::max()},
                    [&, key, done = outcomes[key - 2].done()](InsertResult result) {
                      {
                        MutexLock lock(mutex);
                        confirmed.push_back(key);
                      }
                      done(std::move(result));
                    });
  }
  if (!lacks(Lack::kCounts)) {
    EXPECT_EQ(info(*service).pending_inserts, 4);
  }
  for (ItemKey key = 1; key <= 5; ++key) {
    EXPECT_EQ(keys_of(sample(*service, 1).batch), std::vector<ItemKey>{key});
  }
  for (auto& outcome : outcomes) outcome.take();
  EXPECT_EQ(confirmed, (std::vector<ItemKey>{2, 3, 4, 5}));
}

TEST_P(ReplayServiceSuite, ACancelledRequestCompletesOnceAndLeavesNothingQueued) {
  const auto service = open({queue_table(1)});
  Outcome<SampleResult> outcome;
  SampleRequest request;
  request.table = "t";
  const RequestId id = service->sample(std::move(request), outcome.done());
  ASSERT_NE(id, 0u);
  service->cancel(id);
  service->cancel(id);
  EXPECT_EQ(outcome.take().status.code(), StatusCode::kCancelled);
  ASSERT_TRUE(insert(*service, 1).ok());
  EXPECT_EQ(outcome.count(), 1);
  EXPECT_EQ(info(*service).current_size, 1) << "the cancelled sample took nothing";
}

TEST_P(ReplayServiceSuite, WhyBlockedNamesTheBoundAndTheLongestWait) {
  if (lacks(Lack::kReasons)) GTEST_SKIP() << "it cannot say why";
  const auto service = open({queue_table(1)});
  ASSERT_TRUE(insert(*service, 1).ok());
  Item item = make_item(2, 1.0);
  service->insert({"t", {&item, 1}, TimePoint::max()}, [](InsertResult) {});
  clock_.advance(seconds(7));
  const BlockedReport report = why_blocked_and_wait(*service, "t").value();
  EXPECT_EQ(report.inserts.waiting, 1);
  EXPECT_NEAR(report.inserts.longest_wait_s, 7.0, 1e-6);
  EXPECT_NE(report.inserts.reason.find("over max_diff 1 by 1"), std::string::npos)
      << report.inserts.reason;
  EXPECT_EQ(report.samples.waiting, 0);
  EXPECT_EQ(report.samples.reason, "");
}

TEST_P(ReplayServiceSuite, ClosingCompletesWaitingAndLaterRequests) {
  const auto service = open({queue_table(1)});
  Outcome<SampleResult> outcome;
  SampleRequest request;
  request.table = "t";
  service->sample(std::move(request), outcome.done());
  service->close();
  EXPECT_EQ(outcome.take().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(insert(*service, 1).code(), StatusCode::kCancelled);
  EXPECT_EQ(sample(*service, 1).status.code(), StatusCode::kCancelled);
}

TEST_P(ReplayServiceSuite, UnusedItemsAreHandedBackInOrder) {
  const auto service = open({queue_table(8)});
  for (ItemKey key = 1; key <= 8; ++key) ASSERT_TRUE(insert(*service, key, 1.0, 0, 5).ok());
  SampleBatch first = sample(*service, 3).batch;
  SampleBatch second = sample(*service, 4).batch;
  const std::optional<std::size_t> handed_back = service->hand_back("t", second);
  if (!handed_back) GTEST_SKIP() << "it cannot undo a draw";
  EXPECT_EQ(*handed_back, 4u);
  EXPECT_EQ(service->hand_back("t", first), 3u);
  EXPECT_EQ(service->hand_back("t", first), 0u) << "they have it back";
  first.clear();
  second.clear();
  EXPECT_EQ(insert(*service, 9).code(), StatusCode::kDeadlineExceeded) << "the queue is full again";
  const SampleResult all = sample(*service, 8);
  EXPECT_EQ(keys_of(all.batch), (std::vector<ItemKey>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(value_of(all.batch.trajectories()[7]), 5);
  EXPECT_EQ(all.batch.times_sampled()[0], 1);
}

TEST_P(ReplayServiceSuite, AnItemWhoseReaderDisconnectedIsMarkedFromThenOn) {
  TableOptions options = queue_table(8);
  options.max_times_sampled = 2;
  options.rate_limiter.samples_per_insert = 2;
  options.rate_limiter.max_diff = 16;
  const auto service = open({options});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key, 1.0, 0, 5).ok());
  // Item 1 is drawn for the last time, item 2 for the first.
  SampleBatch batch = sample(*service, 3).batch;
  ASSERT_EQ(keys_of(batch), (std::vector<ItemKey>{1, 1, 2}));
  EXPECT_TRUE(batch.redelivered().empty());
  const std::optional<std::size_t> unused = service->hand_back("t", batch);
  if (!unused) GTEST_SKIP() << "it cannot undo a draw";
  batch = sample(*service, 3).batch;
  ASSERT_EQ(keys_of(batch), (std::vector<ItemKey>{1, 1, 2}));
  EXPECT_TRUE(batch.redelivered().empty()) << "its reader only did not use it";
  batch.set_all_redelivered();
  EXPECT_EQ(service->hand_back("t", batch), 3u);
  batch = sample(*service, 6).batch;
  ASSERT_EQ(keys_of(batch), (std::vector<ItemKey>{1, 1, 2, 2, 3, 3}));
  const auto marks = batch.redelivered();
  EXPECT_EQ(std::vector<std::uint8_t>(marks.begin(), marks.end()),
            (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 0}));
  batch.clear();
  for (ItemKey key = 4; key <= 6; ++key) ASSERT_TRUE(insert(*service, key, 1.0, 0, 5).ok());
  EXPECT_TRUE(sample(*service, 6).batch.redelivered().empty()) << "others in the same places";
}

TEST_P(ReplayServiceSuite, ItemsDeletedOrResetMeanwhileAreNotHandedBack) {
  TableOptions options = fifo_table();
  options.max_times_sampled = 2;
  const auto service = open({options});
  ASSERT_TRUE(insert(*service, 1).ok());
  ASSERT_TRUE(insert(*service, 2).ok());
  SampleBatch batch = sample(*service, 1).batch;
  const ItemKey key = 1;
  MutateRequest erase;
  erase.table = "t";
  erase.deletes = {&key, 1};
  ASSERT_EQ(mutate_and_wait(*service, erase).deleted, 1u);
  const std::optional<std::size_t> handed_back = service->hand_back("t", batch);
  if (!handed_back) GTEST_SKIP() << "it cannot undo a draw";
  EXPECT_EQ(*handed_back, 0u);
  batch = sample(*service, 2).batch;
  EXPECT_EQ(keys_of(batch), (std::vector<ItemKey>{2, 2}));
  EXPECT_TRUE(reset_and_wait(*service, "t").ok());
  EXPECT_EQ(service->hand_back("t", batch), 0u);
  EXPECT_EQ(info(*service).current_size, 0);
  ASSERT_TRUE(insert(*service, 3).ok());
  EXPECT_EQ(service->hand_back("t", batch), 0u);
  EXPECT_EQ(keys_of(sample(*service, 2).batch), (std::vector<ItemKey>{3, 3}));
}

TEST_P(ReplayServiceSuite, AClosedServiceRefusesEveryCall) {
  const auto service = open({fifo_table()});
  ASSERT_TRUE(insert(*service, 1).ok());
  service->close();
  const ItemKey key = 1;
  MutateRequest erase;
  erase.table = "t";
  erase.deletes = {&key, 1};
  EXPECT_EQ(info_and_wait(*service).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(mutate_and_wait(*service, erase).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(reset_and_wait(*service, "t").code(), StatusCode::kCancelled);
  if (!lacks(Lack::kReasons)) {
    EXPECT_EQ(why_blocked_and_wait(*service, "t").status().code(), StatusCode::kCancelled);
  }
  if (!lacks(Lack::kLookUps)) {
    EXPECT_EQ(lookup_and_wait(*service, {"t", {&key, 1}}).status.code(), StatusCode::kCancelled);
  }
}

TEST_P(ReplayServiceSuite, AnExistingKeyOnlyGetsTheNewPriority) {
  const auto service = open({fifo_table()});
  ASSERT_TRUE(insert(*service, 1, 1.0, 0, 10).ok());
  ASSERT_TRUE(insert(*service, 1, 5.0, 0, 20).ok());
  EXPECT_EQ(info(*service).inserts, 1);
  const SampleResult result = sample(*service, 1);
  EXPECT_EQ(result.batch.priorities()[0], 5.0);
  EXPECT_EQ(value_of(result.batch.trajectories()[0]), 10) << "the data stayed";
}

TEST_P(ReplayServiceSuite, UpdatesAndLookupsAgree) {
  if (lacks(Lack::kLookUps)) GTEST_SKIP() << "it looks nothing up";
  const auto service = open({fifo_table()});
  for (ItemKey key = 1; key <= 4; ++key) ASSERT_TRUE(insert(*service, key).ok());
  const std::vector<ItemKey> keys = {2, 99, 3};
  const std::vector<double> priorities = {20, 1, 30};
  MutateRequest by_key;
  by_key.table = "t";
  by_key.keys = keys;
  by_key.key_priorities = priorities;
  const MutateResult result = mutate_and_wait(*service, by_key);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.updated, 2u);
  EXPECT_EQ(result.missing, 1u);
  const LookupResult found = lookup_and_wait(*service, {"t", keys});
  EXPECT_EQ(found.priorities[0], 20);
  EXPECT_TRUE(std::isnan(found.priorities[1]));
  EXPECT_EQ(found.tickets[1], 0u);
  MutateRequest by_ticket;
  by_ticket.table = "t";
  const std::vector<double> seven = {7.0};
  by_ticket.tickets = std::span(found.tickets).subspan(2, 1);
  by_ticket.ticket_priorities = seven;
  EXPECT_EQ(mutate_and_wait(*service, by_ticket).updated, 1u);
  EXPECT_EQ(lookup_and_wait(*service, {"t", keys}).priorities[2], 7.0);
}

TEST_P(ReplayServiceSuite, ABriefBatchHasTheTicketsAndTheTrajectories) {
  const auto service = open({fifo_table()});
  ASSERT_TRUE(insert(*service, 5, 1.0, 0, 50).ok());
  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = 3;
  request.brief = true;
  request.deadline = in(0);
  SampleResult result = sample_and_wait(*service, std::move(request));
  ASSERT_TRUE(result.status.ok());
  ASSERT_EQ(result.batch.size(), 3u);
  EXPECT_EQ(result.batch.table_size(), 1);
  EXPECT_EQ(result.batch.probabilities()[2], 1.0);
  EXPECT_EQ(value_of(result.batch.trajectories()[2]), 50);
  MutateRequest update;
  update.table = "t";
  const std::vector<double> seven = {7.0};
  update.tickets = result.batch.tickets().first(1);
  update.ticket_priorities = seven;
  EXPECT_EQ(mutate_and_wait(*service, update).updated, 1u);
  // A reused batch takes the form that the new request asks for.
  SampleRequest again;
  again.table = "t";
  again.deadline = in(0);
  again.batch = std::move(result.batch);
  result = sample_and_wait(*service, std::move(again));
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(keys_of(result.batch), (std::vector<ItemKey>{5}));
  EXPECT_EQ(result.batch.priorities()[0], 7.0);
}

TEST_P(ReplayServiceSuite, ARefusedUpdateChangesNothing) {
  const auto service =
      open({table_options("t", "Prioritized", "Fifo", 10, RateLimiter::min_size(1))});
  ASSERT_TRUE(insert(*service, 1, 2.0).ok());
  ASSERT_TRUE(insert(*service, 2, 3.0).ok());
  const std::vector<ItemKey> keys = {1, 2};
  const std::vector<double> priorities = {50, -1};
  MutateRequest request;
  request.table = "t";
  request.keys = keys;
  request.key_priorities = priorities;
  const MutateResult result = mutate_and_wait(*service, request);
  EXPECT_EQ(result.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(result.status.message().find("-1"), std::string::npos) << result.status.message();
  const SampleResult drawn = sample(*service, 20);
  for (std::size_t i = 0; i < drawn.batch.size(); ++i) {
    ASSERT_EQ(drawn.batch.priorities()[i], drawn.batch.keys()[i] == 1 ? 2 : 3);
  }
  if (lacks(Lack::kLookUps)) return;
  EXPECT_EQ(lookup_and_wait(*service, {"t", keys}).priorities, (std::vector<double>{2, 3}));
}

TEST_P(ReplayServiceSuite, ARefusedInsertLeavesTheTableUsable) {
  const auto service =
      open({table_options("t", "Prioritized", "Fifo", 10, RateLimiter::min_size(1))});
  EXPECT_EQ(insert(*service, 1, -1.0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(info(*service).current_size, 0);
  ASSERT_TRUE(insert(*service, 2, 1.0).ok());
  EXPECT_EQ(keys_of(sample(*service, 1).batch), std::vector<ItemKey>{2});
}

TEST_P(ReplayServiceSuite, AnErrorAboutAnUnknownTableListsTheTables) {
  const auto service = open({fifo_table()});
  Item item = make_item(1, 1.0);
  const Status status = insert_and_wait(*service, {"nope", {&item, 1}, in(0)}).status;
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  if (lacks(Lack::kReasons)) return;
  EXPECT_NE(status.message().find("'nope'"), std::string::npos);
  EXPECT_NE(status.message().find("'t'"), std::string::npos);
}

TEST_P(ReplayServiceSuite, ResetEmptiesTheTableAndAdmitsWaitingInserts) {
  const auto service = open({queue_table(1)});
  ASSERT_TRUE(insert(*service, 1).ok());
  Outcome<InsertResult> late;
  Item item = make_item(2, 1.0);
  service->insert({"t", {&item, 1}, TimePoint::max()}, late.done());
  reset(*service);
  EXPECT_TRUE(is_far() || late.is_here());
  EXPECT_TRUE(late.take().status.ok());
  EXPECT_EQ(keys_of(sample(*service, 1).batch), std::vector<ItemKey>{2});
}

TEST_P(ReplayServiceSuite, DescribesItsTables) {
  TableOptions first = fifo_table(7);
  first.signature = Signature{{{"x", DType::kFloat32, {}}}, R"({"dict":[["x","*"]]})"};
  const auto service = open({first, table_options("u", "Uniform", "Fifo", 9, first.rate_limiter)});
  const std::vector<TableInfo> infos = describe_and_wait(*service).value();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].options.name, "t");
  ASSERT_TRUE(infos[0].options.signature.has_value());
  EXPECT_EQ(infos[0].options.signature->columns[0].name, "x");
  EXPECT_EQ(infos[1].options.name, "u");
  EXPECT_FALSE(infos[1].options.signature.has_value());
}

TEST_P(ReplayServiceSuite, DistinctSamplesRepeatNothingOrAreRefused) {
  const auto service = open({fifo_table()});
  for (ItemKey key = 1; key <= 4; ++key) ASSERT_TRUE(insert(*service, key).ok());
  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = 4;
  request.distinct = true;
  const SampleResult result = sample_and_wait(*service, std::move(request));
  std::vector<ItemKey> keys = keys_of(result.batch);
  std::ranges::sort(keys);
  if (lacks(Lack::kDistinct)) {
    EXPECT_EQ(result.status.code(), StatusCode::kUnimplemented) << result.status.to_string();
    EXPECT_EQ(keys, std::vector<ItemKey>());
  } else {
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    EXPECT_EQ(keys, (std::vector<ItemKey>{1, 2, 3, 4}));
  }
}

TEST_P(ReplayServiceSuite, DistinctSamplesBeyondMaxSizeAreRefusedAtOnce) {
  if (lacks(Lack::kDistinct)) GTEST_SKIP() << "it refuses them all";
  const auto service = open({fifo_table(4)});
  SampleRequest request;
  request.table = "t";
  request.count = 5;
  request.distinct = true;
  const SampleResult result = sample_and_wait(*service, std::move(request));
  EXPECT_EQ(result.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(result.status.message().find("max_size 4"), std::string::npos);
}

// The completion of the first request runs while the second holds a part of its batch.
TEST_P(ReplayServiceSuite, AnImmediateSampleIsServedWhileAnotherHoldsPartOfItsBatch) {
  const auto service = open({fifo_table()});
  const auto request = [](std::size_t count, TimePoint deadline) {
    SampleRequest made;
    made.table = "t";
    made.count = made.min_count = count;
    made.deadline = deadline;
    return made;
  };
  Outcome<SampleResult> one, large, now;
  service->sample(request(1, TimePoint::max()), [&, done = one.done()](SampleResult result) {
    service->sample(request(700, in(0)), now.done());
    done(std::move(result));
  });
  service->sample(request(1000, TimePoint::max()), large.done());
  ASSERT_TRUE(insert(*service, 1).ok());
  EXPECT_EQ(one.take().batch.size(), 1u);
  const SampleResult result = now.take();
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.batch.size(), 700u);
  EXPECT_EQ(large.take().batch.size(), 1000u);
}

TEST_P(ReplayServiceSuite, AnImmediateInsertIsServedWhileAnotherIsHalfwayIn) {
  constexpr ItemKey kFull = 1500;
  const auto service = open({queue_table(kFull)});
  const auto items = [](ItemKey begin, ItemKey count) {
    std::vector<Item> made;
    for (ItemKey key = begin; key < begin + count; ++key) made.push_back(make_item(key, 1.0));
    return made;
  };
  std::vector<Item> first = items(1, kFull);
  ASSERT_TRUE(insert_and_wait(*service, {"t", first, in(0)}).status.ok());
  Outcome<InsertResult> one, large, now;
  std::vector<Item> second = items(2000, 1), third = items(3000, 900), last = items(4000, 300);
  service->insert({"t", second, TimePoint::max()}, [&, done = one.done()](InsertResult result) {
    service->insert({"t", last, in(0)}, now.done());
    done(std::move(result));
  });
  service->insert({"t", third, TimePoint::max()}, large.done());
  reset(*service);
  EXPECT_TRUE(one.take().status.ok());
  const InsertResult result = now.take();
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.applied, 300u);
  EXPECT_EQ(large.take().applied, 900u);
}

TEST_P(ReplayServiceSuite, ImmediateRequestsOfThreadsNeverTimeOutUnlessABoundBlocks) {
  constexpr int kThreads = 4, kCalls = 20, kItems = 600;
  TableOptions options = table_options("t", "Uniform", "Fifo", 1000, RateLimiter::min_size(1));
  const auto service = open({options});
  for (ItemKey key = 1; key <= 10; ++key) ASSERT_TRUE(insert(*service, key).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        SampleRequest request;
        request.table = "t";
        request.count = 1000;
        request.min_count = i % 2 == 0 ? 1000 : 1;
        request.deadline = is_far() ? TimePoint::max() : clock_.now();
        const SampleResult drawn = sample_and_wait(*service, std::move(request));
        EXPECT_TRUE(drawn.status.ok()) << drawn.status.to_string();
        if (!lacks(Lack::kMoreThanLeast)) {
          EXPECT_EQ(drawn.batch.size(), 1000u);
        }
        std::vector<Item> items;
        for (int k = 0; k < kItems; ++k) {
          items.push_back(make_item(static_cast<ItemKey>((t * kCalls + i) * kItems + k + 100), 1));
        }
        const TimePoint deadline = is_far() ? TimePoint::max() : clock_.now();
        const InsertResult inserted = insert_and_wait(*service, {"t", items, deadline});
        EXPECT_TRUE(inserted.status.ok()) << inserted.status.to_string();
        MutateRequest mutate;
        mutate.table = "t";
        mutate.deletes = drawn.batch.keys().first(std::min<std::size_t>(drawn.batch.size(), 1));
        EXPECT_TRUE(mutate_and_wait(*service, mutate).status.ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ReplayServiceSuite, ARequestThatLacksDistinctItemsDoesNotBlockOthers) {
  if (lacks(Lack::kDistinct)) GTEST_SKIP() << "it refuses them all";
  const auto service = open({fifo_table()});
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(*service, key).ok());
  Outcome<SampleResult> four;
  SampleRequest distinct;
  distinct.table = "t";
  distinct.count = distinct.min_count = 4;
  distinct.distinct = true;
  service->sample(std::move(distinct), four.done());
  EXPECT_FALSE(four.is_here());
  EXPECT_EQ(sample(*service, 2).batch.size(), 2u);
  ASSERT_TRUE(insert(*service, 4).ok());
  EXPECT_EQ(keys_of(four.take().batch), (std::vector<ItemKey>{1, 2, 3, 4}));
}

TEST_P(ReplayServiceSuite, ThreadsThatInsertAndSampleLoseAndDuplicateNothing) {
  constexpr int kProducers = 3, kConsumers = 3, kPerProducer = 400;
  const auto service = open({queue_table(16)});
  std::atomic<int> received[kProducers * kPerProducer] = {};
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < kPerProducer; ++i) {
        Item item = make_item(static_cast<ItemKey>(p * kPerProducer + i + 1), 1.0);
        ASSERT_TRUE(insert_and_wait(*service, {"t", {&item, 1}, TimePoint::max()}).status.ok());
      }
    });
  }
  for (int c = 0; c < kConsumers; ++c) {
    threads.emplace_back([&] {
      for (int i = 0; i < kProducers * kPerProducer / kConsumers / 4; ++i) {
        SampleRequest request;
        request.table = "t";
        request.count = request.min_count = 4;
        const SampleResult result = sample_and_wait(*service, std::move(request));
        ASSERT_TRUE(result.status.ok());
        for (const ItemKey key : result.batch.keys()) ++received[key - 1];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : received) ASSERT_EQ(count.load(), 1);
  EXPECT_EQ(info(*service).current_size, 0);
}

}  // namespace reverie::testing
