// shards/sharded_service.h over stores in this process, some of which go away.
#include <array>
#include <atomic>
#include <cmath>
#include <future>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/client/trajectory_writer.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/plugin.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/rl/importance_weights.h"
#include "reverie/selectors/prioritized_selector.h"
#include "reverie/service/blocking.h"
#include "reverie/shards/sharded_service.h"
#include "tests/examples_dir.h"
#include "tests/support/eventually.h"
#include "tests/support/flaky_service.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

using testing::FlakyService;
using testing::make_item;
using Mode = FlakyService::Mode;
using Counts = std::vector<std::int64_t>;

TableOptions table_of(const std::string& sampler) {
  return testing::table_options("t", sampler, "Fifo", 100'000, RateLimiter::min_size(1));
}
TableOptions queue() {
  TableOptions options =
      testing::table_options("t", "Fifo", "Fifo", 1'000, RateLimiter::queue(1'000));
  options.max_times_sampled = 1;
  return options;
}

class ShardedStore : public ::testing::Test {
 protected:
  ShardedStore() {
    // Short, so that tests need not wait.
    options_.connections.probe_interval = std::chrono::milliseconds(2);
    options_.connections.probe_timeout = std::chrono::milliseconds(20);
    // No hedging, so that parts are exact; tests of late shards change this.
    options_.sampler.hedge_min = std::chrono::hours(1);
  }

  void open(const std::vector<TableOptions>& tables) {
    std::vector<Shard> shards;
    for (const TableOptions& table : tables) {
      stores_.push_back(LocalService::open({table}, store_).value());
      flaky_.push_back(std::make_shared<FlakyService>(stores_.back()));
      shards.push_back({"s" + std::to_string(shards.size()), flaky_.back(),
                        [probed = flaky_.back().get()](std::function<void(Status)> done) {
                          probed->probe(std::move(done));
                        }});
    }
    service_ = ShardedService::open(std::move(shards), options_).value();
  }
  void open(std::size_t count, const TableOptions& table) {
    open(std::vector<TableOptions>(count, table));
  }

  static TimePoint in(double s) { return Clock::system().now() + seconds(s); }
  // Inserts an item with an episode of its own.
  Status insert(ItemKey key, double priority = 1.0, TimePoint deadline = TimePoint::max()) {
    Item item = make_item(key, priority, 0, 1, {key, /*episode=*/key, 0});
    return insert_and_wait(*service_, {"t", {&item, 1}, deadline}).status;
  }
  SampleResult sample(std::size_t count, TimePoint deadline = TimePoint::max()) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = count;
    request.deadline = deadline;
    return sample_and_wait(*service_, std::move(request));
  }
  Counts sizes() {
    Counts sizes;
    for (const auto& store : stores_) {
      sizes.push_back(info_and_wait(*store).value().front().current_size);
    }
    return sizes;
  }
  Counts counts_of(const SampleBatch& batch) {
    Counts counts(stores_.size());
    for (const ShardIndex shard : batch.shards()) ++counts[shard];
    return counts;
  }
  // Waits until the service reports a shard as up, or as down.
  void wait_until(std::size_t shard, bool is_up) {
    EXPECT_TRUE(test::eventually([&] { return service_->shards()[shard].is_up == is_up; }));
  }

  static WaitOptions interrupted_at_once() {
    WaitOptions options;
    options.interrupted = [] { return true; };
    return options;
  }

  // A wait that ends at its first check.
  WaitOptions interrupted_ = interrupted_at_once();
  Registry registry_;
  StoreOptions store_;
  ShardedOptions options_;
  std::vector<std::shared_ptr<LocalService>> stores_;
  std::vector<std::shared_ptr<FlakyService>> flaky_;
  std::shared_ptr<ShardedService> service_;
};

TEST_F(ShardedStore, RefusesAnEmptyListOfShardsAndDuplicates) {
  EXPECT_EQ(ShardedService::open({}).status().code(), StatusCode::kInvalidArgument);
  const auto store = LocalService::open({queue()}, {}).value();
  const Status twice = ShardedService::open({{"a", store}, {"a", store}}).status();
  EXPECT_EQ(twice.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(twice.message().find("'a' is named twice"), std::string::npos) << twice.message();
}

TEST_F(ShardedStore, EpisodesRotateOverTheShardsAndKeepTheirItemsTogether) {
  open(3, table_of("Uniform"));
  const auto writer = TrajectoryWriter::open(service_, {}).value();
  const ColumnId column = writer->column("x");
  for (int episode = 0; episode < 6; ++episode) {
    for (int step = 0; step < 5; ++step) {
      const Value value = f32(static_cast<float>(episode));
      const ColumnValue cell{column, value.view()};
      ASSERT_TRUE(writer->append({&cell, 1}, false).ok());
      const StepRange range{writer->next_step() - 1, 1};
      const TrajectoryColumn picked{"x", column, {&range, 1}, false};
      ASSERT_TRUE(writer->create_item({"t", 1.0, {&picked, 1}, "\"*\""}, in(10), {}).ok());
    }
    const Counts counts = sizes();
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), 5 * (episode + 1));
    ASSERT_TRUE(writer->end_episode(true, in(10), {}).ok());
    if (episode == 2) {
      EXPECT_EQ(sizes(), (Counts{5, 5, 5}));
    }
  }
  EXPECT_EQ(sizes(), (Counts{10, 10, 10}));
}

TEST_F(ShardedStore, ABatchHasAPartOfEachShardAndNamesTheShards) {
  open(3, table_of("Uniform"));
  for (ItemKey key = 1; key <= 30; ++key) ASSERT_TRUE(insert(key).ok());
  for (int i = 0; i < 10; ++i) {
    const SampleResult result = sample(64);
    ASSERT_TRUE(result.status.ok());
    for (const std::int64_t count : counts_of(result.batch)) {
      EXPECT_TRUE(count == 21 || count == 22) << count;
    }
    EXPECT_EQ(result.batch.table_size(), 30);
    for (std::size_t row = 0; row < 64; ++row) {
      // The service sent key k to shard (k - 1) % 3.
      ASSERT_EQ(result.batch.shards()[row], (result.batch.keys()[row] - 1) % 3);
    }
  }
}

TEST_F(ShardedStore, AgesStayAsTheyWereWhenSamplesOfAStoreWithAnotherClockAreAppended) {
  const auto draw = [](ShardIndex shard, std::int64_t drawn_at_ns, std::int64_t age_ns) {
    SampledItem item;
    item.inserted_at_ns = drawn_at_ns - age_ns;
    SampleBatch drawn;
    drawn.add(item);
    drawn.set_drawn_at(TimePoint{drawn_at_ns});
    SampleBatch batch;
    batch.take(drawn, 0, 1, shard);
    return batch;
  };
  SampleBatch batch = draw(/*shard=*/0, /*drawn_at_ns=*/1'000'000, /*age_ns=*/3);
  SampleBatch more = draw(/*shard=*/1, /*drawn_at_ns=*/20, /*age_ns=*/5);
  batch.append(more);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch.drawn_at_ns() - batch.inserted_at_ns()[0], 3);
  EXPECT_EQ(batch.drawn_at_ns() - batch.inserted_at_ns()[1], 5);
}

TEST_F(ShardedStore, EvenSamplingGivesProbabilitiesOverAllShards) {
  open(2, table_of("Prioritized"));
  double masses[2] = {0, 0};
  for (ItemKey key = 1; key <= 20; ++key) {
    const double priority = key % 2 ? 1.0 : static_cast<double>(key);
    masses[(key - 1) % 2] += priority;
    ASSERT_TRUE(insert(key, priority).ok());
  }
  for (int i = 0; i < 4; ++i) {
    const SampleResult result = sample(100);
    ASSERT_TRUE(result.status.ok());
    for (std::size_t row = 0; row < 100; ++row) {
      const double x = result.batch.priorities()[row];
      EXPECT_NEAR(result.batch.probabilities()[row], 0.5 * x / masses[result.batch.shards()[row]],
                  1e-12);
    }
  }
}

TEST_F(ShardedStore, MassSamplingDrawsAsFromOneTable) {
  options_.sampler.sampling = ShardSampling::kMass;
  TableOptions table = table_of("Prioritized");
  table.sampler.options["priority_exponent"] = 0.5;
  open(3, table);
  double mass = 0;
  for (ItemKey key = 1; key <= 60; ++key) {
    // Shard 0 has small priorities, shard 2 large ones.
    const double priority = static_cast<double>(key) * std::pow(16.0, (key - 1) % 3);
    mass += std::sqrt(priority);
    ASSERT_TRUE(insert(key, priority).ok());
  }
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(sample(256).status.ok());
  const SampleResult result = sample(256);
  ASSERT_TRUE(result.status.ok());
  for (std::size_t row = 0; row < 256; ++row) {
    const double p = std::sqrt(result.batch.priorities()[row]) / mass;
    ASSERT_NEAR(result.batch.probabilities()[row], p, 0.03 * p);
  }
}

// A selector as a plugin might bring it: weights are the squares of priorities.
class Squared final : public Selector {
 public:
  explicit Squared(std::unique_ptr<Selector> inner) : inner_(std::move(inner)) {}
  static Result<std::unique_ptr<Selector>> make(const Options&) {
    REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<Selector> inner, Prioritized::make(2.0, 7));
    return std::unique_ptr<Selector>(new Squared(std::move(inner)));
  }
  std::string_view name() const override { return "Squared"; }
  void insert(Slot slot, double priority) override { inner_->insert(slot, priority); }
  void update(std::span<const Slot> slots, std::span<const double> priorities) override {
    inner_->update(slots, priorities);
  }
  void erase(Slot slot) override { inner_->erase(slot); }
  std::size_t size() const override { return inner_->size(); }
  void draw(std::span<Slot> slots, std::span<double> probabilities) override {
    inner_->draw(slots, probabilities);
  }
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) override {
    return inner_->draw_distinct(slots, probabilities);
  }
  double mass() override { return inner_->mass(); }
  std::unique_ptr<Selector> make_empty() override {
    return std::make_unique<Squared>(inner_->make_empty());
  }
  std::size_t memory_bytes() const override { return inner_->memory_bytes(); }

 private:
  const std::unique_ptr<Selector> inner_;
};

TEST_F(ShardedStore, MassSamplingDrawsAsFromOneTableWithACustomSelector) {
  ASSERT_TRUE(registry_.add_selector("Squared", Squared::make).ok());
  store_.registry = &registry_;
  options_.sampler.sampling = ShardSampling::kMass;
  open(3, table_of("Squared"));
  double mass = 0;
  for (ItemKey key = 1; key <= 60; ++key) {
    const double priority = static_cast<double>(key) * std::pow(2.0, (key - 1) % 3);
    mass += priority * priority;
    ASSERT_TRUE(insert(key, priority).ok());
  }
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(sample(256).status.ok());
  const SampleResult result = sample(256);
  ASSERT_TRUE(result.status.ok());
  for (std::size_t row = 0; row < 256; ++row) {
    const double p = std::pow(result.batch.priorities()[row], 2.0) / mass;
    ASSERT_NEAR(result.batch.probabilities()[row], p, 0.03 * p);
  }
}

TEST_F(ShardedStore, MassSamplingCountsItemsIfASelectorHasNoWeights) {
  PluginHost host;
  host.offer<ComponentRegistry>(registry_);
  ASSERT_TRUE(load_plugin(std::string(REVERIE_EXAMPLES_DIR) + "/plugin_selector.so", host).ok());
  store_.registry = &registry_;
  options_.sampler.sampling = ShardSampling::kMass;
  TableOptions table = table_of("Combined");
  table.sampler.options["newest_share"] = 0.0;
  open(2, table);
  for (ItemKey key = 1; key <= 100; ++key) {
    Item item = make_item(key, 1.0);
    const auto& store = stores_[key <= 80 ? 0 : 1];
    ASSERT_TRUE(insert_and_wait(*store, {"t", {&item, 1}, in(10)}).status.ok());
  }
  ASSERT_TRUE(sample(20).status.ok());
  EXPECT_EQ(counts_of(sample(100).batch), (Counts{80, 20}));
}

// Estimates the mean of a loss over all items from draws with the weights (1 / (N p)) ** 1.
TEST_F(ShardedStore, WeightsKeepTheMeanUnbiasedIfShardsDiffer) {
  for (const ShardSampling sampling : {ShardSampling::kEven, ShardSampling::kMass}) {
    stores_.clear();
    flaky_.clear();
    options_.sampler.sampling = sampling;
    open(3, table_of("Prioritized"));
    double truth = 0;
    for (ItemKey key = 1; key <= 300; ++key) {
      const double priority = 1.0 + static_cast<double>((key * 7919) % 97 * (key % 3 + 1));
      truth += std::sqrt(priority) / 300;
      ASSERT_TRUE(insert(key, priority).ok());
    }
    double sum = 0;
    std::size_t draws = 0;
    for (int i = 0; i < 1'000; ++i) {
      const SampleResult result = sample(96);
      ASSERT_TRUE(result.status.ok());
      if (i < 100) continue;
      std::vector<float> weights(96);
      ASSERT_TRUE(importance_weights(result.batch.probabilities(),
                                     static_cast<std::size_t>(result.batch.table_size()), 1.0,
                                     WeightScale::kNone, weights)
                      .ok());
      for (std::size_t row = 0; row < 96; ++row) {
        sum += weights[row] * std::sqrt(result.batch.priorities()[row]);
        ++draws;
      }
    }
    EXPECT_NEAR(sum / static_cast<double>(draws), truth, 0.02 * truth);
  }
}

TEST_F(ShardedStore, ASilentShardDoesNotDelaySamples) {
  options_.sampler.hedge_min = std::chrono::milliseconds(5);
  options_.connections.probe_timeout = std::chrono::hours(1);
  open(3, table_of("Uniform"));
  for (ItemKey key = 1; key <= 30; ++key) ASSERT_TRUE(insert(key).ok());
  flaky_[1]->set(Mode::kSilent);
  for (int i = 0; i < 5; ++i) {
    const SampleResult result = sample(60, in(60));
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(counts_of(result.batch)[1], 0);
  }
  EXPECT_LE(flaky_[1]->sample_requests(), 2) << "it was not asked again before it had answered";
}

TEST_F(ShardedStore, SamplesOfALateShardAreHandedOutNext) {
  options_.sampler.hedge_min = std::chrono::milliseconds(5);
  open(2, queue());
  for (ItemKey key = 1; key <= 40; ++key) ASSERT_TRUE(insert(key).ok());
  flaky_[1]->set(Mode::kLate);
  std::set<ItemKey> seen;
  const auto take = [&](std::size_t count) {
    const SampleResult result = sample(count, in(60));
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    for (const ItemKey key : result.batch.keys()) EXPECT_TRUE(seen.insert(key).second) << key;
  };
  take(10);
  EXPECT_EQ(sizes(), (Counts{10, 15})) << "5 were drawn and are on their way";
  take(5);
  flaky_[1]->set(Mode::kUp);
  take(25);
  EXPECT_EQ(seen.size(), 40u) << "each once, none lost";
  EXPECT_EQ(sizes(), (Counts{0, 0}));
}

TEST_F(ShardedStore, SamplesDoNotWaitForAShardBlockedByItsLimiter) {
  options_.sampler.hedge_min = std::chrono::milliseconds(5);
  TableOptions strict = table_of("Uniform");
  strict.rate_limiter = RateLimiter::min_size(1'000);
  open({table_of("Uniform"), strict, table_of("Uniform")});
  for (ItemKey key = 1; key <= 30; ++key) ASSERT_TRUE(insert(key).ok());
  for (int i = 0; i < 3; ++i) {
    const SampleResult result = sample(32, in(60));
    ASSERT_TRUE(result.status.ok());
    EXPECT_EQ(counts_of(result.batch)[1], 0);
    EXPECT_EQ(result.batch.table_size(), 20);
  }
  EXPECT_TRUE(service_->shards()[1].is_up) << "it answers, only not with samples";
}

TEST_F(ShardedStore, ATimedOutSampleHasTheItemsReceived) {
  options_.sampler.hedge_min = std::chrono::milliseconds(5);
  open(3, queue());
  for (ItemKey key = 1; key <= 7; ++key) ASSERT_TRUE(insert(key).ok());
  const SampleResult result = sample(12, in(0.05));
  EXPECT_EQ(result.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(result.batch.size(), 7u);
  EXPECT_NE(result.status.message().find("7 of 12"), std::string::npos) << result.status.message();
}

TEST_F(ShardedStore, UpdatesGoToTheShardThatGaveTheItem) {
  open(3, table_of("Uniform"));
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(key).ok());
  const std::vector<double> priorities(1, 7.0);
  MutateRequest request;
  request.table = "t";
  request.key_priorities = priorities;
  const ItemKey unknown = 2;
  request.keys = {&unknown, 1};
  EXPECT_EQ(mutate_and_wait(*service_, request).updated, 1u);
  for (const auto& shard : flaky_)
    EXPECT_EQ(shard->mutations(), 1) << "no shard was known to have it";
  const SampleResult drawn = sample(3);
  ASSERT_TRUE(drawn.status.ok());
  for (std::size_t row = 0; row < 3; ++row) {
    MutateRequest update;
    update.table = "t";
    update.tickets = drawn.batch.tickets().subspan(row, 1);
    update.ticket_priorities = priorities;
    const MutateResult result = mutate_and_wait(*service_, update);
    EXPECT_EQ(result.updated, 1u);
    EXPECT_EQ(result.missing, 0u);
  }
  for (const auto& shard : flaky_) EXPECT_EQ(shard->mutations(), 2) << "one each";
  const std::vector<ItemKey> keys = {1, 2, 3, 99};
  const LookupResult found = lookup_and_wait(*service_, {"t", keys});
  EXPECT_EQ(found.priorities[0], 7.0);
  EXPECT_EQ(found.priorities[2], 7.0);
  EXPECT_TRUE(std::isnan(found.priorities[3]));
  MutateRequest deletion;
  deletion.table = "t";
  deletion.deletes = keys;
  const MutateResult deleted = mutate_and_wait(*service_, deletion);
  EXPECT_EQ(deleted.deleted, 3u);
  EXPECT_EQ(deleted.missing, 1u);
  EXPECT_EQ(sizes(), (Counts{0, 0, 0}));
}

TEST_F(ShardedStore, InfoCoversAllShardsAndResetEmptiesThem) {
  open(3, table_of("Uniform"));
  for (ItemKey key = 1; key <= 7; ++key)
    ASSERT_TRUE(insert(key, 1.0 + static_cast<double>(key)).ok());
  ASSERT_TRUE(sample(9).status.ok());
  const TableInfo info = info_and_wait(*service_).value().front();
  EXPECT_EQ(info.current_size, 7);
  EXPECT_EQ(info.inserts, 7);
  EXPECT_EQ(info.samples, 9);
  EXPECT_EQ(info.max_priority, 8.0);
  EXPECT_EQ(info.options.max_size, 300'000);
  EXPECT_TRUE(reset_and_wait(*service_, "t").ok());
  EXPECT_EQ(sizes(), (Counts{0, 0, 0}));
}

TEST_F(ShardedStore, AnErrorNamesItsShard) {
  open({table_of("Uniform"),
        testing::table_options("other", "Uniform", "Fifo", 10, RateLimiter::min_size(1))});
  ASSERT_TRUE(insert(1).ok());
  const Status status = insert(2);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("shard 1 of 2 (s1)"), std::string::npos) << status.message();
}

TEST_F(ShardedStore, AMissingShardIsLeftOutAndUsedAgainWhenItReturns) {
  open(3, table_of("Uniform"));
  for (ItemKey key = 1; key <= 30; ++key) ASSERT_TRUE(insert(key).ok());
  const SampleResult before = sample(30);
  flaky_[2]->set(Mode::kGone);
  // A writer notices it as well: its insert waits, and the service probes the shard.
  for (ItemKey key = 31; key <= 40; ++key) ASSERT_TRUE(insert(key).ok());
  EXPECT_FALSE(service_->shards()[2].is_up);
  EXPECT_EQ(sizes(), (Counts{15, 15, 10}));
  const SampleResult during = sample(30);
  ASSERT_TRUE(during.status.ok());
  EXPECT_EQ(counts_of(during.batch), (Counts{15, 15, 0}));
  EXPECT_EQ(during.batch.table_size(), 30);

  // Priorities of its items are not updated; other requests for them report the shard.
  const std::vector<double> priorities(30, 2.0);
  MutateRequest update;
  update.table = "t";
  update.tickets = before.batch.tickets();
  update.ticket_priorities = priorities;
  const MutateResult updated = mutate_and_wait(*service_, update);
  EXPECT_TRUE(updated.status.ok()) << updated.status.message();
  EXPECT_EQ(updated.updated, 20u);
  EXPECT_EQ(updated.missing, 10u);
  MutateRequest deletion;
  deletion.table = "t";
  deletion.deletes = before.batch.keys();
  const MutateResult deleted = mutate_and_wait(*service_, deletion);
  EXPECT_EQ(deleted.status.code(), StatusCode::kUnavailable);
  EXPECT_NE(deleted.status.message().find("shard 2 of 3 (s2)"), std::string::npos)
      << deleted.status.message();
  EXPECT_GT(deleted.deleted, 0u);
  const Status reset = reset_and_wait(*service_, "t");
  EXPECT_EQ(reset.code(), StatusCode::kUnavailable);
  EXPECT_NE(reset.message().find("the others were reset"), std::string::npos) << reset.message();
  EXPECT_EQ(sizes(), (Counts{0, 0, 10}));
  EXPECT_EQ(info_and_wait(*service_).value().front().current_size, 0);

  flaky_[2]->set(Mode::kUp);
  wait_until(2, true);
  for (ItemKey key = 41; key <= 46; ++key) ASSERT_TRUE(insert(key).ok());
  EXPECT_EQ(sizes(), (Counts{2, 2, 12}));
  EXPECT_EQ(counts_of(sample(30).batch)[2], 10);
}

TEST_F(ShardedStore, ADeletionThatOnlyConcernsALostShardNamesThatShard) {
  open(2, table_of("Uniform"));
  for (ItemKey key = 1; key <= 10; ++key) ASSERT_TRUE(insert(key).ok());
  const SampleResult drawn = sample(30);
  std::vector<ItemKey> keys;
  for (std::size_t i = 0; i < drawn.batch.size(); ++i) {
    if (drawn.batch.shards()[i] == 1) keys.push_back(drawn.batch.keys()[i]);
  }
  ASSERT_FALSE(keys.empty());
  MutateRequest deletion;
  deletion.table = "t";
  deletion.deletes = keys;
  flaky_[1]->set(Mode::kGone);
  ASSERT_TRUE(sample(30).status.ok());
  wait_until(1, false);
  const Status one = mutate_and_wait(*service_, deletion).status;
  expect_refused(one, StatusCode::kUnavailable, {"shard 1 of 2 (s1)"});
  EXPECT_EQ(one.message().find("no shard answers"), std::string::npos) << one.message();
  flaky_[0]->set(Mode::kGone);
  EXPECT_FALSE(sample(30, in(0)).status.ok());
  wait_until(0, false);
  const Status all = mutate_and_wait(*service_, deletion).status;
  expect_refused(all, StatusCode::kUnavailable, {"no shard answers", "(s0)", "(s1)"});
}

TEST_F(ShardedStore, IsUnreachableOnlyWhileNoShardAnswers) {
  open(2, table_of("Uniform"));
  for (ItemKey key = 1; key <= 10; ++key) ASSERT_TRUE(insert(key).ok());
  flaky_[1]->set(Mode::kGone);
  ASSERT_TRUE(sample(30).status.ok());
  wait_until(1, false);
  EXPECT_TRUE(service_->why_unreachable().ok());
  flaky_[0]->set(Mode::kGone);
  EXPECT_FALSE(sample(30, in(0)).status.ok());
  wait_until(0, false);
  expect_refused(service_->why_unreachable(), StatusCode::kUnavailable, {"(s0)", "(s1)"});
}

TEST_F(ShardedStore, AnInsertHeldByASilentShardGoesToAnother) {
  open(2, table_of("Uniform"));
  flaky_[0]->set(Mode::kSilent);
  for (ItemKey key = 1; key <= 4; ++key) ASSERT_TRUE(insert(key).ok());
  EXPECT_EQ(sizes(), (Counts{0, 4}));
  const ShardState state = service_->shards()[0];
  EXPECT_FALSE(state.is_up);
  EXPECT_NE(state.why.message().find("no answer within 0.02 s"), std::string::npos)
      << state.why.message();
  EXPECT_EQ(flaky_[0]->held(), 1u) << "the probe alone still waits";
}

TEST_F(ShardedStore, AThawedShardGivesUpItemsInsertedElsewhere) {
  open(2, table_of("Uniform"));
  for (int freeze = 0; freeze < 5; ++freeze) {
    const auto first = static_cast<ItemKey>(10 * freeze + 1);
    flaky_[0]->set(Mode::kFrozen);
    for (ItemKey key = first; key < first + 4; ++key) ASSERT_TRUE(insert(key).ok());
    wait_until(0, false);
    flaky_[0]->set(Mode::kUp);
    wait_until(0, true);
    const Counts counts = sizes();
    EXPECT_EQ(counts[0], 0) << "it read the first item after all";
    EXPECT_EQ(counts[1], 4 * (freeze + 1));
  }
}

TEST_F(ShardedStore, AShardLostWhileReturningGivesUpItsItemsTheNextTime) {
  open(2, table_of("Uniform"));
  flaky_[0]->set(Mode::kFrozen);
  ASSERT_TRUE(insert(1).ok());
  // The deletion fails once: the shard is lost again after it received the request.
  flaky_[0]->lose_next_mutation();
  flaky_[0]->set(Mode::kUp);
  wait_until(0, true);
  EXPECT_EQ(sizes(), (Counts{0, 1}));
  EXPECT_EQ(flaky_[0]->mutations(), 2);
}

TEST_F(ShardedStore, AWriterLearnsSignaturesFromWhicheverShardAnswers) {
  options_.connections.probe_timeout = std::chrono::hours(1);
  open(2, table_of("Uniform"));
  flaky_[0]->set(Mode::kSilent);
  const auto writer = TrajectoryWriter::open(service_, {}).value();
  const ColumnId column = writer->column("x");
  const Value value = f32(1.0f);
  const ColumnValue cell{column, value.view()};
  ASSERT_TRUE(writer->append({&cell, 1}, false).ok());
  const StepRange range{0, 1};
  const TrajectoryColumn picked{"x", column, {&range, 1}, false};
  EXPECT_TRUE(writer->may_wait("t"));
  EXPECT_TRUE(writer->create_item({"t", 1.0, {&picked, 1}, "\"*\""}, in(10), {}).ok());
  EXPECT_FALSE(writer->may_wait("t"));
  EXPECT_EQ(writer->create_item({"nope", 1.0, {&picked, 1}, "\"*\""}, in(10), interrupted_).code(),
            StatusCode::kCancelled)
      << "the silent shard may have that one";
  writer->close();
}

TEST_F(ShardedStore, TheTableSizeFollowsAShardThatReturnsEmpty) {
  open(2, table_of("Uniform"));
  for (ItemKey key = 1; key <= 100; ++key) {
    Item item = make_item(key, 1.0);
    const auto& store = stores_[key <= 90 ? 0 : 1];
    ASSERT_TRUE(insert_and_wait(*store, {"t", {&item, 1}, in(10)}).status.ok());
  }
  EXPECT_EQ(sample(20).batch.table_size(), 100);
  flaky_[0]->set(Mode::kGone);
  EXPECT_EQ(sample(20).batch.table_size(), 10);
  ASSERT_TRUE(reset_and_wait(*stores_[0], "t").ok());
  flaky_[0]->set(Mode::kUp);
  wait_until(0, true);
  EXPECT_EQ(sample(20).batch.table_size(), 10);
}

TEST_F(ShardedStore, TheTableSizeFollowsAShardThatIsEmptied) {
  options_.sampler.size_interval = std::chrono::milliseconds(1);
  options_.sampler.query_timeout = std::chrono::milliseconds(5);
  open(2, table_of("Uniform"));
  for (ItemKey key = 1; key <= 40; ++key) ASSERT_TRUE(insert(key).ok());
  EXPECT_EQ(sample(20).batch.table_size(), 40);
  ASSERT_TRUE(reset_and_wait(*stores_[0], "t").ok());
  EXPECT_TRUE(test::eventually([&] { return sample(20).batch.table_size() == 20; }));
}

TEST_F(ShardedStore, RequestsWaitWhenNoShardAnswers) {
  open(2, table_of("Uniform"));
  for (const auto& shard : flaky_) shard->set(Mode::kGone);
  const SampleResult none = sample(1, in(0.02));
  EXPECT_EQ(none.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(none.status.message().find("shard 1 of 2 (s1): no connection"), std::string::npos)
      << none.status.message();
  EXPECT_EQ(insert(1, 1.0, in(0.02)).code(), StatusCode::kDeadlineExceeded);
  MutateRequest update;
  update.table = "t";
  const ItemKey key = 1;
  const double priority = 2.0;
  update.keys = {&key, 1};
  update.key_priorities = {&priority, 1};
  EXPECT_EQ(mutate_and_wait(*service_, update).missing, 1u);
  update.deletes = {&key, 1};
  EXPECT_EQ(mutate_and_wait(*service_, update).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(reset_and_wait(*service_, "t").code(), StatusCode::kUnavailable);

  std::promise<Status> drawn;
  SampleRequest wanted;
  wanted.table = "t";
  service_->sample(std::move(wanted),
                   [&](const SampleResult& result) { drawn.set_value(result.status); });
  std::promise<Status> inserted;
  std::promise<Status> told;
  Item item = make_item(2, 1.0);
  service_->insert({"t", {&item, 1}, TimePoint::max()},
                   [&](const InsertResult& result) { inserted.set_value(result.status); });
  const RequestId asked = service_->info(
      [&](const Result<std::vector<TableInfo>>& infos) { told.set_value(infos.status()); });
  std::promise<Status> dropped;
  const RequestId to_drop = service_->info(
      [&](const Result<std::vector<TableInfo>>& infos) { dropped.set_value(infos.status()); });
  EXPECT_NE(asked, 0u);
  service_->cancel(to_drop);
  EXPECT_EQ(dropped.get_future().get().code(), StatusCode::kCancelled);
  flaky_[1]->set(Mode::kUp);
  EXPECT_TRUE(inserted.get_future().get().ok());
  EXPECT_TRUE(told.get_future().get().ok());
  EXPECT_TRUE(drawn.get_future().get().ok());
  EXPECT_EQ(sizes(), (Counts{0, 1}));
}

// The first shard is lost before the call to it returns; the insert waits for room in the second.
TEST_F(ShardedStore, AnInsertThatWentOnToAnotherShardIsCancelledThere) {
  TableOptions full = queue();
  full.rate_limiter = RateLimiter::queue(1);
  open({queue(), full});
  Item before = make_item(1, 1.0);
  ASSERT_TRUE(insert_and_wait(*stores_[1], {"t", {&before, 1}}).status.ok());
  flaky_[0]->lose_next_insert();
  Item item = make_item(2, 1.0);
  std::optional<StatusCode> ended;
  const RequestId id =
      service_->insert({"t", {&item, 1}, TimePoint::max()},
                       [&](const InsertResult& result) { ended = result.status.code(); });
  ASSERT_NE(id, 0u);
  ASSERT_TRUE(flaky_[0]->has_lost_insert());
  EXPECT_FALSE(ended);
  service_->cancel(id);
  EXPECT_EQ(ended, StatusCode::kCancelled);
}

TEST_F(ShardedStore, ARequestCancelledWhileItIsWokenDoesNotWaitForAShardAgain) {
  open(1, table_of("Uniform"));
  flaky_[0]->set(Mode::kGone);
  EXPECT_FALSE(sample(1, in(0.01)).status.ok());  // it is down now
  std::vector<RequestId> to_cancel;
  // Woken first: it cancels the others and loses the shard, before these have their turn.
  service_->info([&](const Result<std::vector<TableInfo>>&) {
    for (const RequestId request : to_cancel) service_->cancel(request);
    flaky_[0]->set(Mode::kGone);
    SampleRequest losing;
    losing.table = "t";
    service_->sample(std::move(losing), [](const SampleResult&) {});
  });
  std::atomic<int> cancelled_count{0};
  const auto note = [&](const Status& status) {
    if (status.code() == StatusCode::kCancelled) ++cancelled_count;
  };
  to_cancel.push_back(
      service_->info([&](const Result<std::vector<TableInfo>>& infos) { note(infos.status()); }));
  Item item = make_item(1, 1.0);
  to_cancel.push_back(service_->insert({"t", {&item, 1}, TimePoint::max()},
                                       [&](const InsertResult& result) { note(result.status); }));
  flaky_[0]->set(Mode::kUp);
  EXPECT_TRUE(test::eventually([&] { return cancelled_count == 2; }));
  service_->close();
}

TEST_F(ShardedStore, RequestsGiveUpAfterTheRetryTimeWhenNoShardAnswers) {
  options_.retry_time = std::chrono::milliseconds(30);
  open(2, table_of("Uniform"));
  for (const auto& shard : flaky_) shard->set(Mode::kGone);
  EXPECT_EQ(sample(1).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(insert(1).code(), StatusCode::kUnavailable);
  EXPECT_EQ(info_and_wait(*service_).status().code(), StatusCode::kUnavailable);
}

TEST_F(ShardedStore, ClosingEndsRequestsThatWaitForAnyShard) {
  open(2, table_of("Uniform"));
  for (const auto& shard : flaky_) shard->set(Mode::kGone);
  EXPECT_FALSE(sample(1, in(0.01)).status.ok());
  Status status;
  Item item = make_item(1, 1.0);
  service_->insert({"t", {&item, 1}, TimePoint::max()},
                   [&](const InsertResult& result) { status = result.status; });
  service_->close();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

TEST_F(ShardedStore, EveryCallOnAClosedClientSaysThatItIsClosed) {
  open(2, table_of("Uniform"));
  service_->close();
  const ItemKey key = 1;
  const std::string_view closed = "the client is closed";
  EXPECT_EQ(info_and_wait(*service_).status().message(), closed);
  EXPECT_EQ(describe_and_wait(*service_).status().message(), closed);
  EXPECT_EQ(why_blocked_and_wait(*service_, "t").status().message(), closed);
  EXPECT_EQ(lookup_and_wait(*service_, {"t", {&key, 1}}).status.message(), closed);
  EXPECT_EQ(reset_and_wait(*service_, "t").message(), closed);
  EXPECT_EQ(mutate_and_wait(*service_, {"t", {&key, 1}}).status.message(), closed);
  EXPECT_EQ(insert(1).message(), closed);
  EXPECT_EQ(sample(1).status.message(), closed);
}

TEST_F(ShardedStore, DistinctSamplesAreRefusedHoweverManyShardsThereAre) {
  for (const std::size_t count : {1, 2}) {
    open(count, table_of("Uniform"));
    ASSERT_TRUE(insert(1).ok());
    SampleRequest request;
    request.table = "t";
    request.distinct = true;
    expect_refused(sample_and_wait(*service_, std::move(request)).status,
                   StatusCode::kUnimplemented,
                   {format("here of {}", count), "sample with replacement"});
  }
}

// While shards come and go, each confirmed item is in some shard, and no caller waits for ever.
TEST_F(ShardedStore, WritersAndReadersContinueWhileShardsComeAndGo) {
  options_.sampler.hedge_min = std::chrono::milliseconds(5);
  constexpr int kBreaks = 60;
  constexpr ItemKey kItemsMax = 20'000;  // per writer
  open(3, table_of("Uniform"));
  for (ItemKey key = 1; key <= 3; ++key) ASSERT_TRUE(insert(key).ok());
  std::atomic<bool> is_over{false};
  ItemKey written[3] = {};
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < std::size(written); ++w) {
    threads.emplace_back([&, w] {
      while (!is_over && written[w] < kItemsMax) {
        ASSERT_TRUE(insert(10 + w * kItemsMax + written[w]).ok());
        ++written[w];
      }
    });
  }
  std::thread reader([&] {
    while (!is_over) {
      const SampleResult result = sample(16);
      ASSERT_TRUE(result.status.ok()) << result.status.message();
      ASSERT_EQ(result.batch.size(), 16u);
      const std::vector<double> priorities(16, 2.0);
      MutateRequest update;
      update.table = "t";
      update.tickets = result.batch.tickets();
      update.ticket_priorities = priorities;
      ASSERT_TRUE(mutate_and_wait(*service_, update).status.ok());
    }
  });
  // Shard 0 stays up, so that one shard always answers.
  for (std::size_t i = 0; i < kBreaks; ++i) {
    const std::size_t shard = 1 + i % 2;
    const Mode mode = std::array{Mode::kSilent, Mode::kGone, Mode::kLate}[i % 3];
    flaky_[shard]->set(mode);
    EXPECT_TRUE(info_and_wait(*service_).ok());
    if (i % 4 == 0 && mode != Mode::kLate) wait_until(shard, false);
    flaky_[shard]->set(Mode::kUp);
    wait_until(shard, true);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  reader.join();
  std::vector<ItemKey> keys;
  for (std::size_t w = 0; w < std::size(written); ++w) {
    for (ItemKey i = 0; i < written[w]; ++i) keys.push_back(10 + w * kItemsMax + i);
  }
  EXPECT_GT(keys.size(), 1'000u);
  const LookupResult found = lookup_and_wait(*service_, {"t", keys});
  ASSERT_TRUE(found.status.ok());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_FALSE(std::isnan(found.priorities[i])) << "item " << keys[i];
  }
}

}  // namespace
}  // namespace reverie
