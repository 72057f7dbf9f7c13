#include "reverie/replay/table_core.h"

#include <algorithm>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/replay/local_service.h"
#include "reverie/selectors/list_selector.h"
#include "reverie/service/blocking.h"
#include "tests/support/forwarding_selector.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

using testing::item_over;
using testing::make_item;
using testing::table_options;
using testing::value_of;

constexpr TimePoint kNow{1'000};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

// The model keeps items in a vector, and scans it for every choice.
class NaiveTable {
 public:
  struct Entry {
    ItemKey key;
    double priority;
    std::int64_t times_sampled;
    std::uint64_t inserted;  // position in the order of inserts
    std::uint64_t renewed;   // position in the order of inserts and updates
    ChunkKey chunk;
  };

  explicit NaiveTable(const TableOptions& options) : options_(options) {}

  bool can_insert() const {
    const RateLimiterSpec& l = options_.rate_limiter;
    return inserts + 1 - deletes <= l.min_size_to_sample ||
           static_cast<double>(inserts + 1) * l.samples_per_insert -
                   static_cast<double>(samples + waived) <=
               l.max_diff;
  }
  bool can_sample() const {
    const RateLimiterSpec& l = options_.rate_limiter;
    return inserts - deletes >= l.min_size_to_sample &&
           static_cast<double>(inserts) * l.samples_per_insert -
                   static_cast<double>(samples + waived + 1) >=
               l.min_diff;
  }
  void insert(ItemKey key, double priority, ChunkKey chunk) {
    if (Entry* entry = find(key)) return update(*entry, priority);
    entries.push_back({key, priority, 0, ++clock_, clock_, chunk});
    ++inserts;
    if (entries.size() > static_cast<std::size_t>(options_.max_size)) evict();
    while (options_.max_bytes && bytes() > *options_.max_bytes) evict();
  }
  ItemKey sample() {
    Entry& entry = entries[pick(options_.sampler.name)];
    ++samples;
    ++entry.times_sampled;
    const ItemKey key = entry.key;
    if (options_.max_times_sampled > 0 && entry.times_sampled >= options_.max_times_sampled)
      erase(key);
    return key;
  }
  bool update(ItemKey key, double priority) {
    Entry* const entry = find(key);
    if (entry) update(*entry, priority);
    return entry != nullptr;
  }
  bool erase(ItemKey key) {
    Entry* const entry = find(key);
    if (!entry) return false;
    ++deletes;
    if (options_.max_times_sampled > 0 && options_.rate_limiter.min_diff == 0 &&
        options_.rate_limiter.min_size_to_sample == 1) {
      waived += options_.max_times_sampled - entry->times_sampled;
    }
    entries.erase(entries.begin() + (entry - entries.data()));
    return true;
  }
  void reset() {
    entries.clear();
    inserts = samples = deletes = waived = 0;
  }
  Entry* find(ItemKey key) {
    for (Entry& entry : entries) {
      if (entry.key == key) return &entry;
    }
    return nullptr;
  }
  std::int64_t bytes() const {
    std::map<ChunkKey, std::int64_t> chunks;
    for (const Entry& entry : entries) chunks[entry.chunk] = chunk_bytes;
    return static_cast<std::int64_t>(chunks.size()) * chunk_bytes +
           static_cast<std::int64_t>(entries.size()) * item_bytes;
  }

  std::vector<Entry> entries;
  std::int64_t inserts = 0, samples = 0, deletes = 0, waived = 0;
  std::int64_t chunk_bytes = 0;
  std::int64_t item_bytes = 0;

 private:
  void update(Entry& entry, double priority) {
    entry.priority = priority;
    entry.renewed = ++clock_;
  }
  void evict() { erase(entries[pick(options_.remover.name)].key); }
  std::size_t pick(const std::string& selector) const {
    const auto before = [&](const Entry& a, const Entry& b) {
      if (selector == "Fifo") return a.inserted < b.inserted;
      if (selector == "Lifo") return a.inserted > b.inserted;
      if (a.priority != b.priority) {
        return selector == "MinHeap" ? a.priority < b.priority : a.priority > b.priority;
      }
      return a.renewed < b.renewed;
    };
    return static_cast<std::size_t>(std::min_element(entries.begin(), entries.end(), before) -
                                    entries.begin());
  }

  TableOptions options_;
  std::uint64_t clock_ = 0;
};

struct Scenario {
  std::string sampler, remover;
  std::int64_t max_size;
  std::int64_t max_times_sampled;
  RateLimiterSpec limiter;
  bool has_max_bytes = false;
};

class TableCoreAgainstModel : public ::testing::TestWithParam<Scenario> {};

// All scenarios together make a million operations.
TEST_P(TableCoreAgainstModel, AgreesWithTheNaiveTable) {
  constexpr int kOperations = 84'000;
  const Scenario& scenario = GetParam();
  TableOptions options =
      table_options("t", scenario.sampler, scenario.remover, scenario.max_size, scenario.limiter);
  options.max_times_sampled = scenario.max_times_sampled;
  Ref<Chunk> chunk = testing::float_chunk(0, 4, {1, 1, 0});
  const auto chunk_bytes = static_cast<std::int64_t>(chunk->size_bytes());
  const std::int64_t item_bytes =
      ChunkStore::item_bytes(item_over(*chunk, 1, 1.0, 0, 1).trajectory.view());
  if (scenario.has_max_bytes) options.max_bytes = 5 * (chunk_bytes + item_bytes);
  ChunkStore chunk_store{std::nullopt};
  auto core = TableCore::make(options, registry(), chunk_store).value();
  NaiveTable model(options);
  model.chunk_bytes = chunk_bytes;
  model.item_bytes = item_bytes;
  Random random(std::uint64_t{2026});
  std::uint64_t next_key = 1;
  std::uint64_t next_chunk = 1;
  std::vector<ItemKey> keys;  // all keys that were ever used
  const auto some_key = [&] { return keys[random.below(keys.size())]; };

  for (int step = 0; step < kOperations; ++step) {
    SCOPED_TRACE(step);
    Aftermath after;
    const std::uint64_t dice = random.below(100);
    const auto priority = static_cast<double>(random.below(8));  // ties are frequent
    if (dice < 45) {
      ASSERT_EQ(core->can_insert(), model.can_insert());
      if (!core->can_insert()) continue;
      if (random.below(4) == 0)
        chunk = testing::float_chunk(0, 4, {++next_chunk, next_chunk / 3, 0});
      const bool is_known = !keys.empty() && random.below(10) == 0;
      const ItemKey key = is_known ? some_key() : next_key++;
      keys.push_back(key);
      if (keys.size() > 200) keys.erase(keys.begin(), keys.begin() + 100);
      EXPECT_TRUE(core->insert(item_over(*chunk, key, priority, 0, 4), kNow, after).ok());
      model.insert(key, priority, chunk->key());
    } else if (dice < 80) {
      const bool can = core->sample_allowance() > 0;
      ASSERT_EQ(can, model.can_sample());
      if (!can) continue;
      SampleBatch batch;
      const std::size_t drawn = core->sample(1 + random.below(3), false, kNow, batch, after);
      for (std::size_t i = 0; i < drawn; ++i) {
        ASSERT_TRUE(model.can_sample());
        ASSERT_EQ(batch.table_sizes()[i], static_cast<std::int64_t>(model.entries.size()));
        ASSERT_EQ(batch.keys()[i], model.sample());
      }
    } else if (dice < 92 && !keys.empty()) {
      const std::vector<ItemKey> some = {some_key(), some_key(), some_key()};
      const std::vector<double> priorities = {priority, priority + 1, priority - 1};
      std::size_t expected = 0;
      for (std::size_t i = 0; i < 3; ++i) expected += model.update(some[i], priorities[i]);
      ASSERT_EQ(core->update_by_key(some, priorities, kNow), expected);
    } else if (dice < 99 && !keys.empty()) {
      const ItemKey key = some_key();
      ASSERT_EQ(core->erase({&key, 1}, kNow, after), model.erase(key) ? 1u : 0u);
    } else if (random.below(20) == 0) {
      core->reset(after);
      model.reset();
    }
    after = {};  // the bytes of a reset are only released here
    ASSERT_EQ(core->size(), model.entries.size());
    ASSERT_EQ(core->limiter().inserts(), model.inserts);
    ASSERT_EQ(core->limiter().samples(), model.samples);
    ASSERT_EQ(core->limiter().deletes(), model.deletes);
    if (scenario.has_max_bytes) {
      ASSERT_EQ(core->info().size_bytes, model.bytes());
    }
    if (step % 100 == 0) {
      for (const NaiveTable::Entry& entry : model.entries) {
        const auto found = core->find(entry.key);
        ASSERT_TRUE(found.has_value());
        ASSERT_EQ(found->priority, entry.priority);
      }
      ASSERT_EQ(chunk_store.used_bytes(), model.bytes());
    }
  }
}

RateLimiterSpec unlimited() {
  return RateLimiter::min_size(1);
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, TableCoreAgainstModel,
    ::testing::Values(Scenario{"Fifo", "Fifo", 20, 0, unlimited()},
                      Scenario{"Fifo", "Fifo", 10, 1, RateLimiter::queue(10)},
                      Scenario{"Lifo", "Lifo", 10, 1, RateLimiter::queue(10)},
                      Scenario{"Lifo", "Fifo", 30, 3, RateLimiter::min_size(5)},
                      Scenario{"MaxHeap", "MinHeap", 25, 0, unlimited()},
                      Scenario{"MinHeap", "MaxHeap", 25, 2, unlimited()},
                      Scenario{"MaxHeap", "Fifo", 25, 0, {1.5, 4, -2.0, 12.0}},
                      Scenario{"Fifo", "MinHeap", 40, 4, {3.0, 10, 10.0, 60.0}},
                      Scenario{"Fifo", "Fifo", 1, 0, unlimited()},
                      Scenario{"Fifo", "Fifo", 1'000, 0, unlimited(), true},
                      Scenario{"MaxHeap", "MinHeap", 1'000, 0, unlimited(), true},
                      Scenario{"Fifo", "Lifo", 50, 2, {0.5, 3, -10.0, 10.0}, true}));

std::unique_ptr<TableCore> make_core(const TableOptions& options, ChunkStore& chunk_store) {
  return TableCore::make(options, registry(), chunk_store).value();
}

TEST(TableCore, AMinHeapRemoverKeepsTheBestItems) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("best", "MaxHeap", "MinHeap", 3, unlimited()), chunk_store);
  Aftermath after;
  for (const double priority : {5.0, 1.0, 9.0, 3.0, 7.0, 2.0}) {
    EXPECT_TRUE(
        core->insert(make_item(static_cast<ItemKey>(priority), priority), kNow, after).ok());
  }
  SampleBatch batch;
  ASSERT_EQ(core->sample(3, true, kNow, batch, after), 3u);
  EXPECT_EQ(std::vector<ItemKey>(batch.keys().begin(), batch.keys().end()),
            (std::vector<ItemKey>{9, 7, 5}));
}

TEST(TableCore, AnItemWithoutAPriorityGetsTheLargestSeen) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Prioritized", "Fifo", 10, unlimited()), chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, std::nullopt), kNow, after).ok());
  EXPECT_EQ(core->find(1)->priority, 1.0) << "1 before anything was seen";
  EXPECT_TRUE(core->insert(make_item(2, 7.5), kNow, after).ok());
  EXPECT_TRUE(core->insert(make_item(3, std::nullopt), kNow, after).ok());
  EXPECT_EQ(core->find(3)->priority, 7.5);
  EXPECT_EQ(core->max_priority(), 7.5);
}

TEST(TableCore, AStaleTicketUpdatesNothing) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Uniform", "Fifo", 1, unlimited()), chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, 1.0), kNow, after).ok());
  const std::uint64_t stale = core->find(1)->ticket.packed();
  // Evicts item 1, and may reuse its slot.
  EXPECT_TRUE(core->insert(make_item(2, 1.0), kNow, after).ok());
  const std::uint64_t fresh = core->find(2)->ticket.packed();
  ASSERT_NE(stale, fresh);
  const std::vector<std::uint64_t> tickets = {stale, 0, ~std::uint64_t{0}, fresh};
  const std::vector<double> priorities = {50, 51, 52, 53};
  EXPECT_EQ(core->update_by_ticket(tickets, priorities, kNow), 1u);
  EXPECT_EQ(core->find(2)->priority, 53);
}

TEST(TableCore, APriorityRefusedByASelectorLeavesTheTableUnchanged) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Prioritized", "Fifo", 10, unlimited()), chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, 2.0), kNow, after).ok());
  for (const double priority :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Status status = core->rules().check_item(make_item(2, priority));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << priority;
    EXPECT_NE(status.message().find("'t'"), std::string::npos) << status.message();
  }
  EXPECT_EQ(core->size(), 1u);
}

TEST(TableCore, APinKeepsTheRowsOfRemovedItemsReadable) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Fifo", "Fifo", 2, unlimited()), chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, 1.0, 10), kNow, after).ok());
  EXPECT_TRUE(core->insert(make_item(2, 1.0, 20), kNow, after).ok());
  const std::uint64_t pin = core->pin();
  SampleBatch batch;
  core->sample(1, false, kNow, batch, after);
  EXPECT_TRUE(core->insert(make_item(3, 1.0, 30), kNow, after).ok());
  EXPECT_TRUE(core->insert(make_item(4, 1.0, 40), kNow, after).ok());
  after = {};  // would free item 1 if the batch did not hold it
  EXPECT_EQ(value_of(batch.trajectories()[0]), 10) << "read after its item was evicted";
  core->reset(after);
  after = {};
  EXPECT_EQ(value_of(batch.trajectories()[0]), 10) << "and after a reset";
  core->unpin(pin, after);
}

TEST(TableCore, ATicketFromBeforeAResetIsStale) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Fifo", "Fifo", 10, unlimited()), chunk_store);
  Aftermath after;
  std::vector<std::uint64_t> tickets;
  for (int round = 0; round < 3; ++round) {
    for (ItemKey key = 1; key <= 3; ++key) {
      EXPECT_TRUE(core->insert(make_item(key, 1.0), kNow, after).ok());
    }
    EXPECT_EQ(core->update_by_ticket(tickets, std::vector<double>(tickets.size(), 2.0), kNow), 0u)
        << "the same slots have other items now";
    SampleBatch batch;
    core->sample(3, true, kNow, batch, after);
    tickets.insert(tickets.end(), batch.tickets().begin(), batch.tickets().end());
    core->reset(after);
  }
}

TEST(TableCore, WithoutKeysOnlyATicketFindsAnItem) {
  ChunkStore chunk_store{std::nullopt};
  TableOptions options = table_options("t", "Prioritized", "Fifo", 3, unlimited());
  options.is_keyed = false;
  auto core = make_core(options, chunk_store);
  Aftermath after;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(core->insert(make_item(7, 1.0, static_cast<float>(i)), kNow, after).ok());
  }
  EXPECT_EQ(core->size(), 3u) << "equal keys are items of their own, and two made room";
  EXPECT_FALSE(core->find(7).has_value());
  const ItemKey key = 7;
  EXPECT_EQ(core->erase({&key, 1}, kNow, after), 0u);
  SampleBatch batch;
  core->sample(3, true, kNow, batch, after);
  std::vector<float> values;
  for (const TrajectoryView& trajectory : batch.trajectories()) {
    values.push_back(value_of(trajectory));
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values, (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(core->update_by_ticket(batch.tickets(), std::vector<double>{1, 2, 3}, kNow), 3u);
  EXPECT_EQ(core->max_priority(), 3);
}

TEST(TableCore, ABriefBatchHasTheTicketsAndProbabilitiesALearnerNeeds) {
  ChunkStore chunk_store{std::nullopt};
  TableOptions options = table_options("t", "Prioritized", "Fifo", 10, unlimited());
  options.sampler.options["seed"] = std::int64_t{5};
  SampleBatch batches[2];
  for (SampleBatch& batch : batches) {
    auto core = make_core(options, chunk_store);
    Aftermath after;
    for (ItemKey key = 1; key <= 9; ++key) {
      EXPECT_TRUE(core->insert(make_item(key, static_cast<double>(key)), kNow, after).ok());
    }
    batch.reserve(20, /*is_brief=*/&batch == &batches[1]);
    core->sample(20, false, kNow, batch, after);
    batch.retain();
  }
  const auto& [full, brief] = batches;
  EXPECT_EQ(brief.size(), 20u);
  EXPECT_TRUE(std::ranges::equal(full.tickets(), brief.tickets()));
  EXPECT_TRUE(std::ranges::equal(full.probabilities(), brief.probabilities()));
  EXPECT_EQ(full.table_size(), 9);
  EXPECT_EQ(brief.table_size(), 9);
  EXPECT_TRUE(brief.keys().empty());
  EXPECT_EQ(full.keys().size(), 20u);
}

TEST(TableCore, DistinctDrawsNeverRepeatWithinABatchDrawnInPortions) {
  ChunkStore chunk_store{std::nullopt};
  TableOptions options = table_options("t", "Prioritized", "Fifo", 100, unlimited());
  options.sampler.options["seed"] = std::int64_t{5};
  auto core = make_core(options, chunk_store);
  Aftermath after;
  for (ItemKey key = 1; key <= 50; ++key) {
    EXPECT_TRUE(core->insert(make_item(key, static_cast<double>(key * key)), kNow, after).ok());
  }
  SampleBatch batch;
  EXPECT_EQ(core->sample(20, true, kNow, batch, after), 20u);
  EXPECT_EQ(core->sample(20, true, kNow, batch, after), 20u);
  EXPECT_EQ(core->sample(20, true, kNow, batch, after), 10u) << "only ten are left";
  std::vector<ItemKey> keys(batch.keys().begin(), batch.keys().end());
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
  EXPECT_EQ(keys.size(), 50u);
}

TEST(TableCore, EpisodesAreCountedWhileTheyHaveItems) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Fifo", "Fifo", 2, unlimited()), chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, 1.0, 0, 1, {1, 100, 0}), kNow, after).ok());
  EXPECT_TRUE(core->insert(make_item(2, 1.0, 0, 1, {2, 100, 1}), kNow, after).ok());
  EXPECT_EQ(core->info().num_episodes, 1);
  EXPECT_TRUE(core->insert(make_item(3, 1.0, 0, 1, {3, 200, 0}), kNow, after).ok());
  EXPECT_EQ(core->info().num_episodes, 2);
  EXPECT_TRUE(core->insert(make_item(4, 1.0, 0, 1, {4, 200, 1}), kNow, after).ok());
  EXPECT_EQ(core->info().num_episodes, 1);
  EXPECT_EQ(core->info().num_deleted_episodes, 1);
}

TEST(TableCore, AnEpisodeWhoseItemIsHandedBackIsNotCountedAsDeleted) {
  ChunkStore chunk_store{std::nullopt};
  TableOptions options = table_options("t", "Fifo", "Fifo", 4, unlimited());
  options.max_times_sampled = 1;
  auto core = make_core(options, chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, 1.0, 0, 1, {1, 100, 0}), kNow, after).ok());
  EXPECT_TRUE(core->insert(make_item(2, 1.0, 0, 1, {2, 100, 1}), kNow, after).ok());
  SampleBatch batch;
  EXPECT_EQ(core->sample(2, false, kNow, batch, after), 2u);
  EXPECT_EQ(core->info().num_deleted_episodes, 1);
  EXPECT_EQ(core->take_back(batch, 0, 2, kNow, after), 2u);
  EXPECT_EQ(core->info().num_episodes, 1);
  EXPECT_EQ(core->info().num_deleted_episodes, 0);
  batch.clear();
  EXPECT_EQ(core->sample(1, false, kNow, batch, after), 1u);
  EXPECT_EQ(core->take_back(batch, 0, 1, kNow, after), 1u);
  EXPECT_EQ(core->info().num_deleted_episodes, 0) << "the episode had another item meanwhile";
}

TEST(TableCore, ACorruptItemWhoseDrawsAreUndoneIsNoUniqueSample) {
  ChunkStore chunk_store{std::nullopt};
  auto core = make_core(table_options("t", "Fifo", "Fifo", 4, unlimited()), chunk_store);
  Aftermath after;
  EXPECT_TRUE(core->insert(make_item(1, 1.0), kNow, after).ok());
  EXPECT_TRUE(core->insert(make_item(2, 1.0), kNow, after).ok());
  SampleBatch batch;
  EXPECT_EQ(core->sample(3, false, kNow, batch, after), 3u);  // each time the oldest
  EXPECT_EQ(core->info().num_unique_samples, 1);
  EXPECT_EQ(core->erase_corrupt(1, 3, kNow, after).size(), 1u);
  EXPECT_EQ(core->info().num_unique_samples, 0);
  EXPECT_EQ(core->info().samples, 0);
  EXPECT_EQ(core->sample(2, false, kNow, batch, after), 2u);
  EXPECT_EQ(core->erase_corrupt(2, 1, kNow, after).size(), 1u);
  EXPECT_EQ(core->info().num_unique_samples, 1) << "another reader drew it";
  EXPECT_EQ(core->info().corrupt_items, 2);
}

TEST(TableCore, DataInSeveralTablesIsChargedOnce) {
  ChunkStore chunk_store{std::nullopt};
  auto a = make_core(table_options("a", "Fifo", "Fifo", 10, unlimited()), chunk_store);
  auto b = make_core(table_options("b", "Fifo", "Fifo", 10, unlimited()), chunk_store);
  const Ref<Chunk> chunk = testing::float_chunk(0, 8);
  Aftermath after;
  const auto chunk_bytes = static_cast<std::int64_t>(chunk->size_bytes());
  const std::int64_t item_bytes =
      ChunkStore::item_bytes(item_over(*chunk, 1, 1.0, 0, 4).trajectory.view());
  EXPECT_TRUE(a->insert(item_over(*chunk, 1, 1.0, 0, 4), kNow, after).ok());
  EXPECT_TRUE(b->insert(item_over(*chunk, 2, 1.0, 2, 4), kNow, after).ok());
  EXPECT_EQ(chunk_store.used_bytes(), chunk_bytes + 2 * item_bytes) << "items are each table's own";
  const ItemKey one = 1, two = 2;
  a->erase({&one, 1}, kNow, after);
  EXPECT_EQ(chunk_store.used_bytes(), chunk_bytes + item_bytes);
  b->erase({&two, 1}, kNow, after);
  EXPECT_EQ(chunk_store.used_bytes(), 0);
  after = {};
  EXPECT_EQ(chunk->ref_count(), 1u) << "an idle table holds nothing back";
}

TEST(TableCore, RefusesInvalidOptions) {
  ChunkStore chunk_store{std::nullopt};
  const auto refusal = [&](auto change) {
    TableOptions options = table_options("t", "Fifo", "Fifo", 10, unlimited());
    change(options);
    auto core = TableCore::make(options, registry(), chunk_store);
    return core.ok() ? std::string("accepted") : core.status().to_string();
  };
  EXPECT_NE(refusal([](auto& o) { o.name = ""; }).find("name"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.max_size = 0; }).find("max_size of table 't' is 0"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.max_bytes = -5; }).find("max_bytes of table 't' is -5"),
            std::string::npos);
  EXPECT_NE(
      refusal([](auto& o) { o.rate_limiter.min_size_to_sample = 11; }).find("can never be met"),
      std::string::npos);
  const std::string unknown = refusal([](auto& o) { o.sampler.name = "Fifi"; });
  EXPECT_NE(unknown.find("NOT_FOUND"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("Fifo, Lifo"), std::string::npos) << unknown;
  EXPECT_NE(refusal([](auto& o) {
              o.sampler = {"Prioritized", {{"priority_exponent", -1.0}}};
            }).find("exponent"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.remover.options["sed"] = std::int64_t{1}; }).find("'sed'"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) {
              o.extensions.push_back({"PriorityDiffusion", {{"radius", std::int64_t{0}}}});
            }).find("radius is 0"),
            std::string::npos);
}

TEST(TableCore, AnItemLargerThanTheBudgetIsRefused) {
  ChunkStore chunk_store{std::nullopt};
  TableOptions options = table_options("t", "Fifo", "Fifo", 10, unlimited());
  options.max_bytes = 200;
  auto core = make_core(options, chunk_store);
  const Status status = core->rules().check_item(make_item(1, 1.0, 0, 1000));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("max_bytes 200"), std::string::npos) << status.message();
}

TEST(TableCore, ASignatureIsCheckedOnInsert) {
  ChunkStore chunk_store{std::nullopt};
  TableOptions options = table_options("t", "Fifo", "Fifo", 10, unlimited());
  options.signature = Signature{{{"x", DType::kFloat32, {2}}}, ""};
  auto core = make_core(options, chunk_store);
  EXPECT_TRUE(core->rules().check_item(make_item(1, 1.0, 0, 2)).ok());
  const Status status = core->rules().check_item(make_item(1, 1.0, 0, 3));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("x: float32 (3,)"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("x: float32 (2,)"), std::string::npos) << status.message();
}

// Memory for a given number of blocks, and then none.
class ShortMemory final : public Allocator {
 public:
  Result<Buffer> allocate(std::size_t size_bytes) override {
    if (blocks_left == 0) return resource_exhausted("{} bytes could not be had", size_bytes);
    --blocks_left;
    return Allocator::heap().allocate(size_bytes);
  }
  int blocks_left = 1;
};

TEST(TableCore, AnInsertWithoutMemoryIsRefusedAndChangesNothing) {
  for (const bool is_keyed : {true, false}) {
    ShortMemory memory;
    ChunkStore chunk_store{std::nullopt};
    TableOptions options = table_options("t", "Prioritized", "Fifo", 10'000, unlimited());
    options.is_keyed = is_keyed;
    auto core = TableCore::make(options, registry(), chunk_store, &memory).value();
    Aftermath after;
    for (ItemKey key = 1; key <= ItemSlots::kSegmentSlots; ++key) {
      ASSERT_TRUE(core->insert(make_item(key, 1.0), kNow, after).ok());
    }
    const TableInfo before = core->info();
    const std::int64_t bytes = chunk_store.used_bytes();
    Item item = make_item(1'000, 2.0);
    const Status refused = core->insert(std::move(item), kNow, after);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(refused.message().find("one more item of table 't', which holds 512"),
              std::string::npos)
        << refused.message();
    EXPECT_FALSE(item.trajectory.empty()) << "it is the caller's still";
    const TableInfo now = core->info();
    EXPECT_EQ(now.current_size, before.current_size);
    EXPECT_EQ(now.inserts, before.inserts);
    EXPECT_EQ(now.max_priority, before.max_priority);
    EXPECT_EQ(now.num_episodes, before.num_episodes);
    EXPECT_EQ(chunk_store.used_bytes(), bytes);
    SampleBatch batch;
    EXPECT_EQ(core->sample(64, false, kNow, batch, after), 64u);
    if (is_keyed) {
      EXPECT_FALSE(core->find(1'000));
      // An evicted item leaves room for another, and an update needs no memory.
      const ItemKey oldest = 1;
      EXPECT_EQ(core->erase({&oldest, 1}, kNow, after), 1u);
      EXPECT_TRUE(core->insert(make_item(2, 3.0), kNow, after).ok());
      EXPECT_TRUE(core->insert(std::move(item), kNow, after).ok());
      item = make_item(1'001, 2.0);
    }
    memory.blocks_left = 1;
    EXPECT_TRUE(core->insert(std::move(item), kNow, after).ok());
  }
}

// A selector that gets no more memory after its first hundreds of slots.
class ShortSelector final : public testing::ForwardingSelector<Fifo> {
 public:
  std::string_view name() const override { return "Short"; }
  void reserve(Slot reach) override {
    if (reach > ItemSlots::kSegmentSlots) throw std::bad_alloc();
  }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<ShortSelector>(); }
};

TEST(TableCore, ASelectorWithoutMemoryEndsTheRequestAfterTheItemsInserted) {
  Registry with_short;
  ASSERT_TRUE(with_short
                  .add_selector("Short",
                                [](const Options&) -> Result<std::unique_ptr<Selector>> {
                                  return std::unique_ptr<Selector>(new ShortSelector());
                                })
                  .ok());
  StoreOptions store;
  store.registry = &with_short;
  const auto service =
      LocalService::open({table_options("t", "Short", "Fifo", 10'000, unlimited())}, store).value();
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 600; ++key) items.push_back(make_item(key, 1.0));
  const InsertResult result = insert_and_wait(*service, {"t", items});
  EXPECT_EQ(result.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(result.applied, ItemSlots::kSegmentSlots);
  Item next = make_item(1'000, 1.0);
  EXPECT_EQ(insert_and_wait(*service, {"t", {&next, 1}}).status.code(),
            StatusCode::kResourceExhausted);
  EXPECT_FALSE(next.trajectory.empty()) << "a request that is refused as a whole keeps its items";
  EXPECT_EQ(info_and_wait(*service).value().front().current_size, 512);
}

}  // namespace
}  // namespace reverie
