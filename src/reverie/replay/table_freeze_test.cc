#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/replay/chunk_store.h"
#include "reverie/replay/item_slots.h"
#include "reverie/replay/local_service.h"
#include "reverie/selectors/list_selector.h"
#include "reverie/service/blocking.h"
#include "tests/support/eventually.h"
#include "tests/support/forwarding_selector.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::make_item;
using testing::table_options;
using testing::value_of;

// A store that gets random requests from a seed, and records its answers.
struct Worked {
  Worked(std::vector<TableOptions> tables, Clock& clock) {
    StoreOptions options;
    options.clock = &clock;
    service = LocalService::open(std::move(tables), options).value();
  }

  // Makes `steps` requests of all kinds on table "t".
  std::vector<std::uint64_t> work(std::uint64_t seed, int steps) {
    Random random(seed);
    std::vector<std::uint64_t> told;
    for (int step = 0; step < steps; ++step) {
      const std::uint64_t kind = random.below(10);
      if (kind < 4) {
        Item item = make_item(random.below(20'000), 1.0 + static_cast<double>(random.below(50)),
                              static_cast<float>(random.below(1000)));
        told.push_back(insert_and_wait(*service, {"t", {&item, 1}, TimePoint{0}}).applied);
      } else if (kind < 7) {
        SampleRequest request;
        request.table = "t";
        request.count = 1 + random.below(8);
        request.distinct = random.below(3) == 0;
        request.deadline = TimePoint{0};
        SampleResult result = sample_and_wait(*service, std::move(request));
        const SampleBatch& batch = result.batch;
        for (std::size_t i = 0; i < batch.size(); ++i) {
          told.push_back(batch.keys()[i]);
          told.push_back(batch.tickets()[i]);
          told.push_back(std::bit_cast<std::uint64_t>(batch.probabilities()[i]));
          told.push_back(static_cast<std::uint64_t>(batch.times_sampled()[i]));
          told.push_back(std::bit_cast<std::uint64_t>(batch.priorities()[i]));
          told.push_back(static_cast<std::uint64_t>(batch.inserted_at_ns()[i]));
          told.push_back(static_cast<std::uint64_t>(value_of(batch.trajectories()[i])));
          tickets.push_back(batch.tickets()[i]);
        }
        if (random.below(4) == 0) told.push_back(service->hand_back("t", result.batch).value());
      } else {
        std::vector<ItemKey> keys(1 + random.below(kind == 9 ? 4 : 30));
        for (ItemKey& key : keys) key = random.below(20'000);
        std::vector<double> priorities(keys.size());
        for (double& priority : priorities) priority = static_cast<double>(random.below(60));
        MutateRequest request;
        request.table = "t";
        if (kind == 9) {
          request.deletes = keys;
        } else if (kind == 8 || tickets.empty()) {
          request.keys = keys;
          request.key_priorities = priorities;
        } else {
          for (std::size_t i = 0; i < keys.size(); ++i) {
            keys[i] = tickets[random.below(tickets.size())];
          }
          request.tickets = keys;
          request.ticket_priorities = priorities;
        }
        const MutateResult result = mutate_and_wait(*service, request);
        told.push_back(result.updated * 1000 + result.deleted * 100 + result.missing);
      }
    }
    const TableInfo info = info_and_wait(*service).value()[0];
    for (const std::int64_t count :
         {info.current_size, info.inserts, info.samples, info.deletes, info.num_episodes,
          info.num_deleted_episodes, info.num_unique_samples, info.missing_updates}) {
      told.push_back(static_cast<std::uint64_t>(count));
    }
    told.push_back(std::bit_cast<std::uint64_t>(info.max_priority));
    return told;
  }

  std::shared_ptr<LocalService> service;
  std::vector<std::uint64_t> tickets;  // from all answers
};

std::optional<std::vector<std::byte>> state_of(const TableSnapshot& snapshot, bool is_sampler) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  const auto has_state = is_sampler ? snapshot.write_sampler(out) : snapshot.write_remover(out);
  return has_state.value() ? std::optional(bytes) : std::nullopt;
}

// The table as a checkpoint would restore it, over the same chunks.
RestoredTable restored_from(TableSnapshot& snapshot, std::vector<SlotRecord> begun = {}) {
  RestoredTable table;
  table.image = snapshot.image();
  table.records = std::move(begun);
  for (auto more = snapshot.next().value(); !more.empty(); more = snapshot.next().value()) {
    table.records.insert(table.records.end(), more.begin(), more.end());
  }
  for (const SlotRecord& record : table.records) {
    const TrajectoryView& view = record.trajectory;
    if (view.layout == nullptr) {
      table.trajectories.emplace_back();
    } else {
      table.trajectories.emplace_back(Ref<const Layout>::share(view.layout), view.pieces());
    }
  }
  table.sampler = state_of(snapshot, true);
  table.remover = state_of(snapshot, false);
  return table;
}

TableOptions seeded(std::string sampler, std::string remover) {
  TableOptions options =
      table_options("t", std::move(sampler), std::move(remover), 6'000, RateLimiter::min_size(1));
  for (ComponentSpec* const spec : {&options.sampler, &options.remover}) {
    if (spec->name == "Uniform") spec->options["seed"] = std::int64_t{3};
    if (spec->name == "Prioritized") {
      spec->options["seed"] = std::int64_t{4};
      spec->options["priority_exponent"] = 0.7;
    }
  }
  return options;
}

class TableFreeze : public ::testing::TestWithParam<TableOptions> {};

TEST_P(TableFreeze, ARestoredTableContinuesLikeTheFrozenOne) {
  ManualClock clock;
  clock.advance(std::chrono::seconds(5));
  Worked first({GetParam()}, clock);
  first.work(1, 14'000);  // enough for several segments of each array
  const std::vector<std::uint64_t> tickets = first.tickets;
  auto snapshots = first.service->freeze().value();
  EXPECT_EQ(first.service->freeze().status().code(), StatusCode::kFailedPrecondition);
  // Records are copied before, while and after the table changes.
  std::vector<SlotRecord> begun = snapshots[0]->next().value();
  const std::vector<std::uint64_t> told = first.work(2, 3'000);
  RestoredTable table = restored_from(*snapshots[0], std::move(begun));
  snapshots.clear();
  EXPECT_TRUE(first.service->freeze().ok());

  Worked second({GetParam()}, clock);
  ASSERT_TRUE(second.service->table("t").value()->restore(table).ok());
  second.tickets = tickets;
  EXPECT_EQ(second.work(2, 3'000), told);
  EXPECT_EQ(second.work(3, 500), first.work(3, 500));
}

INSTANTIATE_TEST_SUITE_P(Selectors, TableFreeze,
                         ::testing::Values(
                             seeded("Fifo", "Fifo"), seeded("Lifo", "Uniform"),
                             seeded("Uniform", "Fifo"), seeded("MinHeap", "MaxHeap"),
                             seeded("MaxHeap", "Lifo"), seeded("Prioritized", "Fifo"),
                             seeded("Prioritized", "MinHeap"),
                             [] {
                               TableOptions queue = seeded("Fifo", "Fifo");
                               queue.max_times_sampled = 1;
                               queue.rate_limiter = RateLimiter::queue(6'000);
                               return queue;
                             }(),
                             [] {
                               TableOptions counted = seeded("Uniform", "Fifo");
                               counted.extensions = {{"Statistics", {}}, {"PriorityDiffusion", {}}};
                               return counted;
                             }()),
                         [](const auto& about) {
                           return about.param.sampler.name + about.param.remover.name +
                                  (about.param.max_times_sampled > 0 ? "Queue" : "") +
                                  (about.param.extensions.empty() ? "" : "Extensions");
                         });

TEST(TableFreezing, AResetMeanwhileLeavesTheSnapshotUnchanged) {
  ManualClock clock;
  Worked store({seeded("Prioritized", "Fifo")}, clock);
  store.work(1, 2'000);
  const std::int64_t size = info_and_wait(*store.service).value()[0].current_size;
  auto snapshots = store.service->freeze().value();
  bool is_reset = false;
  store.service->reset("t", [&](const Status& status) { is_reset = status.ok(); });
  ASSERT_TRUE(is_reset);
  store.work(2, 100);
  RestoredTable table = restored_from(*snapshots[0]);
  EXPECT_EQ(std::count_if(table.trajectories.begin(), table.trajectories.end(),
                          [](const Trajectory& t) { return !t.empty(); }),
            size);
  snapshots.clear();
  table = {};
  store.service->reset("t", [](const Status&) {});
  EXPECT_EQ(store.service->used_bytes(), 0);
}

// A first-in-first-out selector for which there is no memory, first to begin a checkpoint and then
// to keep what it was.
class PoorSelector final : public testing::ForwardingSelector<Fifo> {
 public:
  std::string_view name() const override { return "Poor"; }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<PoorSelector>(); }
  std::unique_ptr<SelectorState> freeze() override {
    if (num_frozen_++ == 0) throw std::bad_alloc();
    return std::make_unique<State>();
  }

 private:
  struct State final : SelectorState {
    bool write(ByteWriter&) const override { return false; }
  };

  int num_frozen_ = 0;
};

TEST(TableFreezing, WithoutMemoryTheCheckpointFailsAndTheTableGoesOn) {
  Registry with_poor;
  ASSERT_TRUE(with_poor
                  .add_selector("Poor",
                                [](const Options&) -> Result<std::unique_ptr<Selector>> {
                                  return std::unique_ptr<Selector>(new PoorSelector());
                                })
                  .ok());
  StoreOptions options;
  options.registry = &with_poor;
  const auto service =
      LocalService::open({table_options("t", "Poor", "Fifo", 100, RateLimiter::min_size(1))},
                         options)
          .value();
  const auto insert = [&](ItemKey key) {
    Item item = make_item(key, 1.0);
    return insert_and_wait(*service, {"t", {&item, 1}}).status;
  };
  ASSERT_TRUE(insert(1).ok());
  EXPECT_EQ(service->freeze().status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(insert(2).ok());

  auto snapshots = service->freeze().value();
  EXPECT_TRUE(insert(3).ok());
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  expect_refused(snapshots[0]->write_sampler(out).status(), StatusCode::kResourceExhausted,
                 {"table 't'", "memory"});
  EXPECT_TRUE(snapshots[0]->write_remover(out).value()) << "which is kept";
  EXPECT_EQ(snapshots[0]->next().value().size(), 2u);
  snapshots.clear();
  EXPECT_EQ(info_and_wait(*service).value()[0].current_size, 3);
  EXPECT_TRUE(service->freeze().ok());
}

TEST(TableFreezing, SlotsWhoseCopiesWereGivenUpChangeAndAreFrozenAgain) {
  ItemSlots slots(/*is_keyed=*/true);
  for (std::size_t i = 0; i < ItemSlots::kSegmentSlots + 10; ++i) slots.take();
  slots.freeze();
  EXPECT_EQ(slots.next_frozen().size(), ItemSlots::kSegmentSlots);
  EXPECT_FALSE(slots.has_given_up());
  slots.give_up_frozen();
  EXPECT_TRUE(slots.has_given_up());
  slots.will_change(0);
  slots.will_change(ItemSlots::kSegmentSlots);
  EXPECT_TRUE(slots.next_frozen().empty());
  slots.thaw();
  slots.freeze();
  EXPECT_EQ(slots.next_frozen().size(), ItemSlots::kSegmentSlots);
  EXPECT_EQ(slots.next_frozen().size(), 10u);
  EXPECT_TRUE(slots.next_frozen().empty());
  EXPECT_FALSE(slots.has_given_up());
}

TEST(TableFreezing, GenerationsThatHaveWrappedDifferAgainAfterAReset) {
  constexpr std::uint32_t kAlmost = std::numeric_limits<std::uint32_t>::max() - 1;
  ItemSlots aged(/*is_keyed=*/true);
  ItemSlots::Numbers numbers;
  numbers.used = 1;
  numbers.first_free = 0;
  numbers.newest_generation = kAlmost;
  ASSERT_TRUE(aged.restore(numbers));
  SlotRecord record;
  record.times_sampled = static_cast<std::int32_t>(kNoSlot);
  record.generation = kAlmost;
  aged.restore_slot(0, record, {});
  const auto next = [](ItemSlots& slots) {
    const Slot slot = slots.take();
    const std::uint32_t generation = slots[slot].generation;
    slots.give_back(slot);
    return generation;
  };
  EXPECT_EQ(next(aged), kAlmost + 1);
  EXPECT_EQ(next(aged), 1u) << "it wraps, and 0 is none";
  ItemSlots later(/*is_keyed=*/true);
  later.continue_generations(aged);
  std::uint32_t before = 0;
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t generation = next(later);
    EXPECT_GT(generation, before);
    EXPECT_FALSE(later.predates_reset({0, generation}));
    before = generation;
  }
}

TEST(TableFreezing, ItsEndAdmitsInsertsThatWaitForTheBytesOfATableResetMeanwhile) {
  std::atomic<bool> is_in{false};
  std::vector<Item> items;
  for (const ItemKey key : {1u, 2u}) items.push_back(make_item(key, 1.0));
  StoreOptions options;
  options.max_bytes = ChunkStore::new_bytes(items[0].trajectory.view());
  const auto service = LocalService::open({seeded("Fifo", "Fifo")}, options).value();
  ASSERT_TRUE(insert_and_wait(*service, {"t", {&items[0], 1}, TimePoint{0}}).status.ok());
  auto snapshots = service->freeze().value();
  ASSERT_TRUE(reset_and_wait(*service, "t").ok());
  service->insert({"t", {&items[1], 1}, TimePoint::max()},
                  [&](InsertResult r) { is_in = r.status.ok(); });
  EXPECT_FALSE(is_in) << "the snapshot keeps the first item";
  snapshots.clear();
  EXPECT_TRUE(test::eventually([&] { return is_in.load(); }));
}

TEST(TableFreezing, ItemsOfALargerTableTakeUpdatesByTicketInASmallerOne) {
  ManualClock clock;
  Worked large({seeded("Prioritized", "Fifo")}, clock);
  for (ItemKey key = 0; key < 3'000; ++key) {
    Item item = make_item(key, 1.0);
    ASSERT_TRUE(insert_and_wait(*large.service, {"t", {&item, 1}, TimePoint{0}}).status.ok());
  }
  auto snapshots = large.service->freeze().value();
  RestoredTable table = restored_from(*snapshots[0]);
  TableOptions options = seeded("Prioritized", "Fifo");
  options.max_size = 10;
  Worked small({options}, clock);
  ASSERT_TRUE(small.service->table("t").value()->restore(table).ok());
  SampleRequest request;
  request.table = "t";
  request.count = 4;
  request.deadline = TimePoint{0};
  const SampleResult drawn = sample_and_wait(*small.service, std::move(request));
  const std::vector<double> priorities(drawn.batch.size(), 2.0);
  MutateRequest update;
  update.table = "t";
  update.tickets = drawn.batch.tickets();
  update.ticket_priorities = priorities;
  const MutateResult result = mutate_and_wait(*small.service, update);
  EXPECT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(result.updated, 4u);
}

TEST(TableFreezing, TheHighestPriorityOfARestoredTableIsOneThatItsSelectorsHold) {
  ManualClock clock;
  Worked first({seeded("Prioritized", "Fifo")}, clock);
  Item item = make_item(1, 1e30);
  ASSERT_TRUE(insert_and_wait(*first.service, {"t", {&item, 1}, TimePoint{0}}).status.ok());
  const std::vector<ItemKey> keys = {1};
  const std::vector<double> priorities = {2.0};
  MutateRequest update;
  update.table = "t";
  update.keys = keys;
  update.key_priorities = priorities;
  ASSERT_EQ(mutate_and_wait(*first.service, update).updated, 1u);
  auto snapshots = first.service->freeze().value();
  RestoredTable table = restored_from(*snapshots[0]);
  table.sampler.reset();  // as for a sampler with other options
  TableOptions options = seeded("Prioritized", "Fifo");
  options.sampler.options["priority_exponent"] = 2.0;  // holds priorities up to 1.8e19

  Worked second({options}, clock);
  ASSERT_TRUE(second.service->table("t").value()->restore(table).ok());
  EXPECT_EQ(info_and_wait(*second.service).value()[0].max_priority, 2.0);
  Item next = make_item(2, std::nullopt);
  ASSERT_TRUE(insert_and_wait(*second.service, {"t", {&next, 1}, TimePoint{0}}).status.ok());
  auto later = second.service->freeze().value();
  RestoredTable again = restored_from(*later[0]);
  Worked third({options}, clock);
  const Status status = third.service->table("t").value()->restore(again);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(TableFreezing, AnItemThatOnlyTheNewTableRefusesIsNotDamaged) {
  ManualClock clock;
  Worked stored({seeded("Prioritized", "Fifo")}, clock);
  Item item = make_item(1, 1e30);
  ASSERT_TRUE(insert_and_wait(*stored.service, {"t", {&item, 1}, TimePoint{0}}).status.ok());
  const auto restored_in = [&](const TableOptions& options, auto change) {
    auto snapshots = stored.service->freeze().value();
    RestoredTable table = restored_from(*snapshots[0]);
    if (options.sampler.options != table.image.options.sampler.options) table.sampler.reset();
    change(table.image.options);
    Worked other({options}, clock);
    return other.service->table("t").value()->restore(table);
  };
  const auto as_it_was = [](TableOptions&) {};
  TableOptions typed = seeded("Prioritized", "Fifo");
  typed.signature = Signature{{{"x", DType::kInt64, {1}}}, ""};
  expect_refused(restored_in(typed, as_it_was), StatusCode::kFailedPrecondition,
                 {"item 1 of table 't'", "float32", "int64", "not damaged", "on_mismatch"});
  TableOptions steep = seeded("Prioritized", "Fifo");
  steep.sampler.options["priority_exponent"] = 2.0;  // holds priorities up to 1.8e19
  expect_refused(restored_in(steep, as_it_was), StatusCode::kFailedPrecondition,
                 {"item 1 of table 't'", "1e+30", "not damaged", "on_mismatch"});
  // A stored table that checked its items cannot have taken this one.
  const auto typed_too = [&](TableOptions& theirs) { theirs.signature = typed.signature; };
  EXPECT_EQ(restored_in(typed, typed_too).code(), StatusCode::kDataLoss);
  const auto typed_unchecked = [&](TableOptions& theirs) {
    theirs.signature = typed.signature;
    theirs.checks_items = false;
  };
  EXPECT_EQ(restored_in(typed, typed_unchecked).code(), StatusCode::kFailedPrecondition);
}

TEST(TableFreezing, AUsedTableRefusesACheckpoint) {
  ManualClock clock;
  Worked store({seeded("Fifo", "Fifo")}, clock);
  store.work(1, 100);
  auto snapshots = store.service->freeze().value();
  RestoredTable table = restored_from(*snapshots[0]);
  const Status status = store.service->table("t").value()->restore(table);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

TEST(TableFreezing, InvalidTableStatesAreRefused) {
  ManualClock clock;
  Worked store({seeded("MinHeap", "Prioritized")}, clock);
  store.work(1, 300);
  auto snapshots = store.service->freeze().value();
  const auto table_of = [&] {
    snapshots.clear();
    snapshots = store.service->freeze().value();
    return restored_from(*snapshots[0]);
  };
  const auto refused = [&](auto damage) {
    RestoredTable table = table_of();
    damage(table);
    Worked other({seeded("MinHeap", "Prioritized")}, clock);
    return other.service->table("t").value()->restore(table).code();
  };
  EXPECT_EQ(refused([](RestoredTable&) {}), StatusCode::kOk);
  const auto in_at = [](const RestoredTable& table) {
    std::size_t slot = 0;
    while (table.trajectories[slot].empty()) ++slot;
    return slot;
  };
  EXPECT_EQ(refused([&](RestoredTable& t) { t.trajectories[in_at(t)] = {}; }),
            StatusCode::kDataLoss);
  EXPECT_EQ(refused([&](RestoredTable& t) { t.records[in_at(t)].generation = 0; }),
            StatusCode::kDataLoss);
  EXPECT_EQ(refused([&](RestoredTable& t) { t.records[in_at(t)].priority = -1; }),
            StatusCode::kDataLoss);
  EXPECT_EQ(refused([&](RestoredTable& t) { ++t.image.limiter.inserts; }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([&](RestoredTable& t) { t.image.slots.first_free = kNoSlot - 1; }),
            StatusCode::kDataLoss);
  EXPECT_EQ(refused([&](RestoredTable& t) { t.sampler->pop_back(); }), StatusCode::kDataLoss);
  EXPECT_EQ(refused([&](RestoredTable& t) { t.remover->push_back(std::byte{0}); }),
            StatusCode::kDataLoss);
  // The slot of the heap's first entry, which follows its clock and its number of entries.
  EXPECT_EQ(refused([&](RestoredTable& t) { (*t.sampler)[18] = std::byte{0xff}; }),
            StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reverie
