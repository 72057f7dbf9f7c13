#include "reverie/replay/local_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "reverie/replay/chunk_store.h"
#include "reverie/selectors/uniform_selector.h"
#include "reverie/service/blocking.h"
#include "tests/support/ending_checkpoints.h"
#include "tests/support/eventually.h"
#include "tests/support/forwarding_selector.h"
#include "tests/support/items.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::make_item;
using testing::table_options;

std::shared_ptr<LocalService> open(std::vector<TableOptions> tables, StoreOptions options = {}) {
  return LocalService::open(std::move(tables), options).value();
}

TableOptions fifo(std::string name, std::int64_t max_size = 1000) {
  return table_options(std::move(name), "Fifo", "Fifo", max_size, RateLimiter::min_size(1));
}

Status insert(ReplayService& service, std::string_view table, Item item, TimePoint deadline) {
  return insert_and_wait(service, {table, {&item, 1}, deadline}).status;
}

std::int64_t item_bytes() {
  return ChunkStore::new_bytes(make_item(1, 1.0).trajectory.view());
}

TEST(LocalService, RefusesAnEmptyListOfTablesAndEqualNames) {
  EXPECT_EQ(LocalService::open({}, {}).status().code(), StatusCode::kInvalidArgument);
  const Status status = LocalService::open({fifo("a"), fifo("a")}, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'a'"), std::string::npos);
  StoreOptions options;
  options.max_bytes = 0;
  EXPECT_EQ(LocalService::open({fifo("a")}, options).status().code(), StatusCode::kInvalidArgument);
}

TEST(LocalService, InsertsBeyondTheBudgetWaitForAnotherTablesDelete) {
  ManualClock clock;
  StoreOptions options;
  options.clock = &clock;
  options.max_bytes = 2 * item_bytes();
  const auto service = open({fifo("a"), fifo("b")}, options);
  ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0), clock.now()).ok());
  ASSERT_TRUE(insert(*service, "a", make_item(2, 1.0), clock.now()).ok());
  const Status refused = insert(*service, "b", make_item(3, 1.0), clock.now());
  EXPECT_EQ(refused.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(refused.message().find("max_bytes"), std::string::npos) << refused.message();

  bool is_in = false;
  Item item = make_item(4, 1.0);
  service->insert({"b", {&item, 1}, TimePoint::max()},
                  [&](InsertResult r) { is_in = r.status.ok(); });
  EXPECT_FALSE(is_in);
  const BlockedReport report = why_blocked_and_wait(*service, "b").value();
  EXPECT_NE(report.inserts.reason.find("over max_bytes"), std::string::npos)
      << report.inserts.reason;
  const ItemKey key = 1;
  MutateRequest request;
  request.table = "a";
  request.deletes = {&key, 1};
  mutate_and_wait(*service, request);
  EXPECT_TRUE(is_in) << "room in one table serves the other";
  EXPECT_EQ(service->used_bytes(), 2 * item_bytes());
}

TEST(LocalService, ResettingOneTableAdmitsWaitingInsertsOfAnother) {
  StoreOptions options;
  options.max_bytes = item_bytes();
  const auto service = open({fifo("a"), fifo("b")}, options);
  ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0), TimePoint{0}).ok());
  bool is_in = false;
  Item item = make_item(2, 1.0);
  service->insert({"b", {&item, 1}, TimePoint::max()},
                  [&](InsertResult r) { is_in = r.status.ok(); });
  EXPECT_FALSE(is_in);
  EXPECT_TRUE(reset_and_wait(*service, "a", {}).ok());
  EXPECT_TRUE(is_in);
}

TEST(LocalService, AReleasedBatchOfAResetTableAdmitsWaitingInserts) {
  std::atomic<bool> is_in{false};
  StoreOptions options;
  options.max_bytes = item_bytes();
  const auto service = open({fifo("a"), fifo("b")}, options);
  ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0), TimePoint{0}).ok());
  SampleRequest request;
  request.table = "a";
  SampleResult held = sample_and_wait(*service, std::move(request));
  ASSERT_TRUE(reset_and_wait(*service, "a", {}).ok());
  Item item = make_item(2, 1.0);
  service->insert({"b", {&item, 1}, TimePoint::max()},
                  [&](InsertResult r) { is_in = r.status.ok(); });
  EXPECT_FALSE(is_in) << "the batch keeps the items of the reset table";
  held.batch.clear();
  EXPECT_TRUE(test::eventually([&] { return is_in.load(); }));
}

TEST(LocalService, AFullTableAtTheBudgetKeepsAcceptingInserts) {
  StoreOptions options;
  options.max_bytes = 3 * item_bytes();
  const auto service = open({fifo("a", 3)}, options);
  for (ItemKey key = 1; key <= 50; ++key) {
    ASSERT_TRUE(insert(*service, "a", make_item(key, 1.0), TimePoint{0}).ok()) << key;
  }
  EXPECT_EQ(service->used_bytes(), 3 * item_bytes());
}

// Once the table is full, each item is larger than those that it replaces.
TEST(LocalService, AFullTableWhoseItemsGrowStaysWithinTheBudget) {
  constexpr std::int64_t kSize = 50;
  StoreOptions options;
  options.max_bytes = kSize * item_bytes();
  const auto service = open({fifo("a", kSize), fifo("b", 2)}, options);
  for (ItemKey key = 1; key <= 400; ++key) {
    const auto rows = static_cast<std::uint32_t>(key <= kSize ? 1 : key - kSize);
    ASSERT_TRUE(insert(*service, "a", make_item(key, 1.0, 0, rows), TimePoint{0}).ok()) << key;
    ASSERT_LE(service->used_bytes(), *options.max_bytes) << key;
  }
  EXPECT_EQ(insert(*service, "b", make_item(1, 1.0, 0, 400), TimePoint{0}).code(),
            StatusCode::kDeadlineExceeded)
      << "a table that has evicted nothing waits";
  const std::int64_t few = info_and_wait(*service).value()[0].current_size;
  EXPECT_LT(few, kSize);
  for (ItemKey key = 1001; key <= 1200; ++key) {
    ASSERT_TRUE(insert(*service, "a", make_item(key, 1.0), TimePoint{0}).ok()) << key;
    ASSERT_LE(service->used_bytes(), *options.max_bytes) << key;
  }
  EXPECT_EQ(info_and_wait(*service).value()[0].current_size, kSize) << "small items fit again";
}

// Room that another table takes is not this one's to make: it is never emptied for it.
TEST(LocalService, AFullTableAtTheBudgetOnlyMakesRoomForItsOwnItems) {
  StoreOptions options;
  options.max_bytes = 10 * item_bytes();
  const auto service = open({fifo("a", 3), fifo("b", 10)}, options);
  for (ItemKey key = 1; key <= 3; ++key) {
    ASSERT_TRUE(insert(*service, "a", make_item(key, 1.0), TimePoint{0}).ok());
  }
  for (ItemKey key = 1; key <= 7; ++key) {
    ASSERT_TRUE(insert(*service, "b", make_item(key, 1.0), TimePoint{0}).ok());
  }
  for (ItemKey key = 4; key <= 20; ++key) {
    ASSERT_TRUE(insert(*service, "a", make_item(key, 1.0), TimePoint{0}).ok());
  }
  EXPECT_EQ(info_and_wait(*service).value()[0].current_size, 3);
  EXPECT_EQ(service->used_bytes(), 10 * item_bytes());
}

TEST(LocalService, ATableFromWhichItemsWereDeletedWaitsForRoom) {
  StoreOptions options;
  options.max_bytes = 10 * item_bytes();
  const auto service = open({fifo("a", 1000)}, options);
  ItemKey key = 0;
  while (key < 10) ASSERT_TRUE(insert(*service, "a", make_item(++key, 1.0), TimePoint{0}).ok());
  MutateRequest erase;
  erase.table = "a";
  const ItemKey first = 1;
  erase.deletes = {&first, 1};
  ASSERT_EQ(mutate_and_wait(*service, erase).deleted, 1u);
  ASSERT_TRUE(insert(*service, "a", make_item(++key, 1.0), TimePoint{0}).ok());
  EXPECT_EQ(insert(*service, "a", make_item(++key, 1.0), TimePoint{0}).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(info_and_wait(*service).value()[0].current_size, 10);
}

// To evict them frees next to nothing.
TEST(LocalService, AFullTableDoesNotLoseItemsWhoseChunksAnotherOneHolds) {
  constexpr std::int64_t kSize = 20;
  StoreOptions options;
  options.max_bytes = kSize * (item_bytes() + 128);
  const auto service = open({fifo("a", kSize), fifo("b", 1000)}, options);
  for (ItemKey key = 1; key <= kSize; ++key) {
    const Ref<Chunk> chunk = testing::float_chunk(static_cast<float>(key), 1);
    for (const char* table : {"a", "b"}) {
      ASSERT_TRUE(
          insert(*service, table, testing::item_over(*chunk, key, 1.0, 0, 1), TimePoint{0}).ok());
    }
  }
  ASSERT_TRUE(insert(*service, "a", make_item(100, 1.0, 0, 50), TimePoint{0}).ok());
  EXPECT_GE(info_and_wait(*service).value()[0].current_size, kSize - 1);
}

TEST(LocalService, AnIdleTableFreesMemoryWithTheLastReference) {
  const auto service = open({fifo("a", 10)});
  const Ref<Chunk> chunk = testing::float_chunk(0, 16);
  ASSERT_TRUE(insert(*service, "a", testing::item_over(*chunk, 1, 1.0, 0, 1), TimePoint{0}).ok());
  EXPECT_EQ(chunk->ref_count(), 2u);
  {
    SampleRequest request;
    request.table = "a";
    const SampleResult held = sample_and_wait(*service, std::move(request));
    const ItemKey key = 1;
    MutateRequest erase;
    erase.table = "a";
    erase.deletes = {&key, 1};
    EXPECT_EQ(mutate_and_wait(*service, erase).deleted, 1u);
    EXPECT_EQ(chunk->ref_count(), 2u) << "a batch still reads it";
  }
  EXPECT_EQ(chunk->ref_count(), 1u) << "no further call was needed";
}

TEST(LocalService, ARetainedBatchHoldsOnlyItsOwnChunks) {
  const auto service = open({fifo("a", 10)});
  const Ref<Chunk> first = testing::float_chunk(1, 1);
  const Ref<Chunk> second = testing::float_chunk(2, 1);
  ASSERT_TRUE(insert(*service, "a", testing::item_over(*first, 1, 1.0, 0, 1), TimePoint{0}).ok());
  ASSERT_TRUE(insert(*service, "a", testing::item_over(*second, 2, 1.0, 0, 1), TimePoint{0}).ok());
  SampleRequest request;
  request.table = "a";
  SampleResult held = sample_and_wait(*service, std::move(request));
  held.batch.retain();
  EXPECT_TRUE(reset_and_wait(*service, "a", {}).ok());
  EXPECT_EQ(second->ref_count(), 1u);
  EXPECT_EQ(first->ref_count(), 2u);
  EXPECT_EQ(testing::value_of(held.batch.trajectories()[0]), 1);
}

TEST(LocalService, ABatchMayOutliveItsStore) {
  SampleResult held;
  {
    const auto service = open({fifo("a", 10)});
    ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0, 42), TimePoint{0}).ok());
    SampleRequest request;
    request.table = "a";
    held = sample_and_wait(*service, std::move(request));
  }
  EXPECT_EQ(testing::value_of(held.batch.trajectories()[0]), 42);
}

TEST(LocalService, AWaitCanBeInterrupted) {
  const auto service = open({fifo("a")});
  WaitOptions wait;
  wait.interrupted = [] { return true; };
  SampleRequest request;
  request.table = "a";
  const SampleResult result = sample_and_wait(*service, std::move(request), wait);
  EXPECT_EQ(result.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(info_and_wait(*service).value()[0].pending_samples, 0);
}

std::shared_ptr<LocalService> open_with(ManualClock& clock) {
  StoreOptions options;
  options.clock = &clock;
  return open({fifo("a")}, options);
}

void sample_for_a_second(LocalService& service, const Clock& clock,
                         ReplayService::Done<SampleResult> done) {
  SampleRequest request;
  request.table = "a";
  request.deadline = clock.now() + seconds(1);
  service.sample(std::move(request), std::move(done));
}

TEST(LocalService, ARequestWhoseDeadlineHasNoThreadIsRefused) {
  const auto service = open({fifo("a")});
  const auto sample = [&] {
    SampleRequest request;
    request.table = "a";
    request.deadline = Clock::system().now() + std::chrono::hours(1);
    return sample_and_wait(*service, std::move(request));
  };
  {
    const test::NoNewThreads none;
    expect_refused(sample().status, StatusCode::kResourceExhausted,
                   {"deadline", "table 'a'", "ulimit -u"});
  }
  ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0), TimePoint{0}).ok());
  EXPECT_TRUE(sample().status.ok()) << "nothing waits in front of it";
}

TEST(LocalService, ClosingWaitsForTheCompletionsOfADeadlineThatHasPassed) {
  ManualClock clock;
  std::promise<void> has_begun;
  std::promise<void> may_end;
  std::atomic<bool> has_ended{false};
  const auto service = open_with(clock);
  sample_for_a_second(*service, clock, [&](const SampleResult&) {
    has_begun.set_value();
    may_end.get_future().wait();
    has_ended = true;
  });
  clock.advance(seconds(1));
  has_begun.get_future().wait();
  auto closing = std::async(std::launch::async, [&] {
    service->close();
    return has_ended.load();
  });
  EXPECT_EQ(closing.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_end.set_value();
  EXPECT_TRUE(closing.get());
}

TEST(LocalService, TheCompletionOfADeadlineMayCloseItsStore) {
  ManualClock clock;
  std::promise<void> is_closed;
  const auto service = open_with(clock);
  sample_for_a_second(*service, clock, [&](const SampleResult&) {
    service->close();
    is_closed.set_value();
  });
  clock.advance(seconds(1));
  is_closed.get_future().wait();
  EXPECT_FALSE(service->check_open().ok());
}

TEST(LocalService, TheCompletionOfADeadlineMayDropTheLastReferenceToItsStore) {
  std::promise<std::thread::id> completed;
  std::promise<std::thread::id> ended;
  ManualClock clock;
  auto service = open_with(clock);
  service->set_checkpoints(std::make_unique<testing::EndingCheckpoints>(ended));
  sample_for_a_second(*service, clock, [&](const SampleResult&) {
    service.reset();
    completed.set_value(std::this_thread::get_id());
  });
  clock.advance(seconds(1));
  EXPECT_NE(ended.get_future().get(), completed.get_future().get()) << "it would wait for itself";
}

TEST(LocalService, AnotherThreadThatDropsTheLastReferenceEndsTheStoreItself) {
  std::promise<std::thread::id> ended;
  auto service = open({fifo("a")});
  service->set_checkpoints(std::make_unique<testing::EndingCheckpoints>(ended));
  service.reset();
  auto end = ended.get_future();
  ASSERT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(end.get(), std::this_thread::get_id());
}

TEST(LocalService, CallbacksReportAWaitAndNotACallServedAtOnce) {
  const auto service = open({fifo("a")});
  ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0), TimePoint::max()).ok());
  int begun = 0;
  int ended = 0;
  WaitOptions wait;
  wait.wait_begins = [&] { ++begun; };
  wait.wait_ends = [&] { ++ended; };
  wait.interrupted = [&] {
    EXPECT_EQ(begun, ended + 1) << "asked within a wait";
    return true;
  };
  SampleRequest request;
  request.table = "a";
  EXPECT_TRUE(sample_and_wait(*service, std::move(request), wait).status.ok());
  EXPECT_EQ(begun, 0);
  ASSERT_TRUE(reset_and_wait(*service, "a", wait).ok());
  EXPECT_EQ(begun, 0);
  request = {};
  request.table = "a";
  request.deadline = TimePoint::max();
  const SampleResult none = sample_and_wait(*service, std::move(request), wait);
  EXPECT_EQ(none.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(ended, 1);
}

TEST(LocalService, TheTimeSpentWaitingIsReported) {
  ManualClock clock;
  StoreOptions options;
  options.clock = &clock;
  const auto service = open({fifo("a")}, options);
  bool is_done = false;
  SampleRequest request;
  request.table = "a";
  service->sample(std::move(request), [&](SampleResult) { is_done = true; });
  clock.advance(seconds(3));
  EXPECT_NEAR(info_and_wait(*service).value()[0].sample_wait_s, 3.0, 1e-6) << "while it waits";
  ASSERT_TRUE(insert(*service, "a", make_item(1, 1.0), clock.now()).ok());
  ASSERT_TRUE(is_done);
  clock.advance(seconds(5));
  EXPECT_NEAR(info_and_wait(*service).value()[0].sample_wait_s, 3.0, 1e-6) << "and no longer";
}

TEST(LocalService, LargeBatchesAreServedInPortions) {
  const auto service = open({fifo("a", 100'000)});
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 5'000; ++key) items.push_back(make_item(key, 1.0));
  EXPECT_EQ(insert_and_wait(*service, {"a", items, TimePoint{0}}).applied, 5'000u);
  SampleRequest request;
  request.table = "a";
  request.count = request.min_count = 3'000;
  request.distinct = true;
  request.deadline = TimePoint{0};
  const SampleResult result = sample_and_wait(*service, std::move(request));
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  ASSERT_EQ(result.batch.size(), 3'000u);
  for (std::size_t i = 0; i < 3'000; ++i) ASSERT_EQ(result.batch.keys()[i], i + 1);
}

// Uniform, which counts how often its total weight is asked for.
class Asked final : public testing::ForwardingSelector<Uniform> {
 public:
  explicit Asked(int& count) : ForwardingSelector(1), count_(count) {}
  std::string_view name() const override { return "Asked"; }
  double mass() override {
    ++count_;
    return ForwardingSelector::mass();
  }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<Asked>(count_); }

 private:
  int& count_;
};

TEST(LocalService, OnlyATableWhoseWeightIsReadComputesItWithEachChange) {
  int count = 0;
  Registry registry;
  const auto make = [&](const Options&) -> Result<std::unique_ptr<Selector>> {
    return std::unique_ptr<Selector>(new Asked(count));
  };
  ASSERT_TRUE(registry.add_selector("Asked", make).ok());
  TableOptions options = fifo("a");
  options.sampler = {"Asked", {}};
  StoreOptions store;
  store.registry = &registry;
  const auto service = open({options}, store);
  for (ItemKey key = 1; key <= 9; ++key) {
    ASSERT_TRUE(insert(*service, "a", make_item(key, 1.0), TimePoint{0}).ok());
  }
  EXPECT_EQ(count, 0) << "the sums of a tree are not brought up to date for each insert";
  const std::atomic<double>* const mass = service->mass("a");
  ASSERT_NE(mass, nullptr);
  EXPECT_EQ(*mass, 9);
  ASSERT_TRUE(insert(*service, "a", make_item(10, 1.0), TimePoint{0}).ok());
  EXPECT_EQ(*mass, 10);
  ASSERT_TRUE(reset_and_wait(*service, "a", {}).ok());
  EXPECT_EQ(*mass, 0);
  EXPECT_EQ(service->mass("b"), nullptr);
}

TEST(LocalService, ExtensionsSeeEveryOperationOnce) {
  TableOptions options = fifo("a", 2);
  options.extensions = {{"Statistics", {}}};
  const auto service = open({options});
  for (ItemKey key = 1; key <= 4; ++key) {
    ASSERT_TRUE(insert(*service, "a", make_item(key, static_cast<double>(key)), TimePoint{0}).ok());
  }
  SampleRequest request;
  request.table = "a";
  request.count = 7;
  ASSERT_TRUE(sample_and_wait(*service, std::move(request)).status.ok());
  const auto summary = service->table("a").value()->extension_summary(0);
  EXPECT_EQ(summary.at("inserts"), 4);
  EXPECT_EQ(summary.at("deletes"), 2);
  EXPECT_EQ(summary.at("samples"), 7);
  EXPECT_EQ(summary.at("priority_max"), 4);
  EXPECT_EQ(summary.at("priority_mean"), 2.5);
  EXPECT_EQ(summary.at("deleted_never_sampled"), 2);
}

TEST(LocalService, PriorityDiffusionChangesOnlyNeighboursInTheEpisode) {
  TableOptions options = fifo("a", 100);
  options.extensions = {{"PriorityDiffusion", {{"radius", std::int64_t{2}}, {"decay", 0.5}}}};
  const auto service = open({options});
  const Ref<Chunk> episode = testing::float_chunk(0, 5, {1, 7, 0});
  const Ref<Chunk> other = testing::float_chunk(0, 1, {2, 8, 0});
  for (std::uint32_t step = 0; step < 5; ++step) {
    ASSERT_TRUE(
        insert(*service, "a", testing::item_over(*episode, step + 1, 1.0, step, 1), TimePoint{0})
            .ok());
  }
  ASSERT_TRUE(insert(*service, "a", testing::item_over(*other, 9, 1.0, 0, 1), TimePoint{0}).ok());
  const ItemKey key = 3;
  const double priority = 9.0;
  MutateRequest request;
  request.table = "a";
  request.keys = {&key, 1};
  request.key_priorities = {&priority, 1};
  ASSERT_EQ(mutate_and_wait(*service, request).updated, 1u);
  const std::vector<ItemKey> keys = {1, 2, 3, 4, 5, 9};
  EXPECT_EQ(lookup_and_wait(*service, {"a", keys}).priorities,
            (std::vector<double>{3, 5, 9, 5, 3, 1}));
}

SampleBatch distinct_batch(ReplayService& service, std::size_t count) {
  SampleRequest request;
  request.table = "a";
  request.count = request.min_count = count;
  request.distinct = request.wants_least = true;
  request.deadline = TimePoint{0};
  SampleResult result = sample_and_wait(service, std::move(request));
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  return std::move(result.batch);
}

TEST(LocalService, DistinctDrawsOfEqualItemsThatLeaveWithThemAreEquallyLikely) {
  for (const char* const sampler : {"Uniform", "Prioritized"}) {
    for (const std::size_t size : {4u, 1'000u}) {
      TableOptions options = table_options("a", sampler, "Fifo", 1'000, RateLimiter::min_size(1));
      options.max_times_sampled = 1;
      const auto service = open({options});
      std::vector<Item> items;
      for (ItemKey key = 1; key <= size; ++key) items.push_back(make_item(key, 1.0));
      ASSERT_EQ(insert_and_wait(*service, {"a", items, TimePoint{0}}).applied, size);
      const std::size_t count = size * 3 / 4;  // of 1000, in several portions
      const SampleBatch batch = distinct_batch(*service, count);
      ASSERT_EQ(batch.size(), count);
      const double probability = 1.0 / static_cast<double>(size);
      for (const double got : batch.probabilities()) {
        ASSERT_NEAR(got, probability, 1e-9) << sampler << ", " << size << " items";
      }
      EXPECT_NEAR(batch.least_probability(), probability, 1e-9) << sampler;
    }
  }
}

// 1 / q_i = P(S | i came first) / P(S), by enumeration; see distinct_probabilities.h.
TEST(LocalService, DistinctDrawsOfItemsThatLeaveWithThemHaveTheProbabilitiesOfAllOrders) {
  const std::vector<double> weights = {0.1, 0.2, 0.3, 0.4};
  for (int round = 0; round < 8; ++round) {
    TableOptions options = table_options("a", "Prioritized", "Fifo", 10, RateLimiter::min_size(1));
    options.max_times_sampled = 1;
    const auto service = open({options});
    std::vector<Item> items;
    for (ItemKey key = 1; key <= 4; ++key) items.push_back(make_item(key, weights[key - 1]));
    ASSERT_EQ(insert_and_wait(*service, {"a", items, TimePoint{0}}).applied, 4u);
    const SampleBatch batch = distinct_batch(*service, 3);
    ASSERT_EQ(batch.size(), 3u);
    std::vector<ItemKey> order(batch.keys().begin(), batch.keys().end());
    std::ranges::sort(order);
    double all = 0;
    std::vector<double> of_first(5);
    do {
      const double first = weights[order[0] - 1];
      const double second = weights[order[1] - 1];
      const double third = weights[order[2] - 1];
      const double chance = first * second / (1 - first) * third / (1 - first - second);
      all += chance;
      of_first[order[0]] += chance;
    } while (std::ranges::next_permutation(order).found);
    for (std::size_t i = 0; i < 3; ++i) {
      const ItemKey key = batch.keys()[i];
      const double q = all * weights[key - 1] / of_first[key];
      EXPECT_NEAR(batch.probabilities()[i], q / 3, 1e-5) << "item " << key;
    }
    EXPECT_LT(batch.least_probability(), 1.0 / 3) << "of the table before the draws";
  }
}

}  // namespace
}  // namespace reverie
