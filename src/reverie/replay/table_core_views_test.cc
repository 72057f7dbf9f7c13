// Inserts of item views (TableCore::insert_views), compared with single inserts, and through the
// service.
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"
#include "tests/scale.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

using testing::float_chunk;
using testing::float_row;
using testing::make_item;
using testing::table_options;
using testing::value_of;

constexpr TimePoint kNow{1'000};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

TableOptions brief_options(std::string sampler, std::int64_t max_size) {
  TableOptions options =
      table_options("t", std::move(sampler), "Fifo", max_size, RateLimiter::min_size(1));
  options.is_keyed = false;
  return options;
}

// A stream of rows like a writer's: items over two rows each, of which the second may be in the
// next chunk. Row r holds the number r.
class Stream {
 public:
  static constexpr std::uint32_t kChunkRows = 4;

  // Views of the next items; valid until the next call.
  std::span<const TrajectoryView> next(std::size_t count) {
    // A writer only keeps the chunk that it is filling.
    while (chunks_.size() > 1 && (first_chunk_ + 1) * kChunkRows <= row_) {
      chunks_.pop_front();
      ++first_chunk_;
    }
    views_.clear();
    split_.clear();
    for (std::size_t i = 0; i < count; ++i, ++row_) {
      while ((first_chunk_ + chunks_.size()) * kChunkRows < row_ + 2) {
        const auto begin = static_cast<float>((first_chunk_ + chunks_.size()) * kChunkRows);
        chunks_.push_back(float_chunk(begin, kChunkRows));
      }
      const std::uint32_t offset = row_ % kChunkRows;
      const std::size_t first = row_ / kChunkRows - first_chunk_;
      TrajectoryView& view = views_.emplace_back();
      if (offset + 1 < kChunkRows) {
        view.layout = layout(1).get();
        view.one = {chunks_[first].get(), offset, 2};
      } else {
        const std::array<Piece, 2> pieces{Piece{chunks_[first].get(), offset, 1},
                                          Piece{chunks_[first + 1].get(), 0, 1}};
        view.layout = layout(2).get();
        view.many = split_.emplace_back(pieces).data();
      }
    }
    return views_;
  }

  static const Ref<const Layout>& layout(std::uint16_t pieces) {
    static const auto* const layouts = new std::array<Ref<const Layout>, 2>{
        make_ref<Layout>(std::vector<LayoutColumn>{{{"x", DType::kFloat32, {}}, 0, 0, 1, false}},
                         std::string()),
        make_ref<Layout>(std::vector<LayoutColumn>{{{"x", DType::kFloat32, {}}, 0, 0, 2, false}},
                         std::string())};
    return (*layouts)[pieces - 1];
  }

 private:
  std::size_t row_ = 0;
  std::size_t first_chunk_ = 0;
  std::deque<Ref<Chunk>> chunks_;
  std::vector<TrajectoryView> views_;
  std::deque<std::array<Piece, 2>> split_;
};

std::vector<Item> as_items(std::span<const TrajectoryView> views) {
  std::vector<Item> items;
  for (const TrajectoryView& view : views) {
    items.push_back({0, {}, Trajectory(Ref<const Layout>::share(view.layout), view.pieces()), 0});
  }
  return items;
}

struct Core {
  explicit Core(const TableOptions& options, Allocator* memory = nullptr)
      : core(TableCore::make(options, registry(), store, memory).value()) {}
  ~Core() { after = {}; }

  std::size_t insert(std::span<const TrajectoryView> views) {
    return core->insert_views(views, kNow, after);
  }
  // The first value of each item, oldest first.
  std::vector<float> values() const {
    SampleBatch batch;
    batch.reserve(core->size(), /*is_brief=*/true);
    core->read(0, core->size(), batch);
    std::vector<float> found;
    for (const TrajectoryView& item : batch.trajectories()) found.push_back(value_of(item));
    return found;
  }

  ChunkStore store{std::nullopt};
  Aftermath after;
  std::unique_ptr<TableCore> core;
};

TEST(TableCoreViews, AreInsertedLikeSingleItems) {
  Random random(std::uint64_t{3});
  for (const char* const sampler : {"Uniform", "Prioritized", "MaxHeap"}) {
    for (const std::int64_t max_size : {1, 2, 7, 40}) {
      Core by_items(brief_options(sampler, max_size));
      Core by_views(brief_options(sampler, max_size));
      Stream items;
      Stream views;
      ASSERT_TRUE(by_views.core->rules().takes_views());
      for (int step = 0; step < 60 && !::testing::Test::HasFailure(); ++step) {
        const std::size_t count = 1 + random.below(static_cast<std::uint64_t>(max_size));
        for (Item& item : as_items(items.next(count))) {
          ASSERT_TRUE(by_items.core->insert(std::move(item), kNow, by_items.after).ok());
        }
        ASSERT_EQ(by_views.insert(views.next(count)), count);
        EXPECT_EQ(by_items.values(), by_views.values());
        EXPECT_EQ(by_items.core->info().inserts, by_views.core->info().inserts);
        EXPECT_EQ(by_items.core->info().deletes, by_views.core->info().deletes);
        EXPECT_EQ(by_items.store.used_bytes(), by_views.store.used_bytes());
        by_items.after = {};
        by_views.after = {};
        if (step % 20 == 19) {
          by_items.core->reset(by_items.after);
          by_views.core->reset(by_views.after);
        }
      }
      by_items.core.reset();
      by_views.core.reset();
      by_items.after = {};
      by_views.after = {};
      EXPECT_EQ(by_items.store.used_bytes(), 0);
      EXPECT_EQ(by_views.store.used_bytes(), 0);
    }
  }
}

TEST(TableCoreViews, CoexistWithItemsOfTheSameChunks) {
  Core table(brief_options("Uniform", 5));
  Stream stream;
  Random random(std::uint64_t{5});
  float next = 0;
  for (int step = 0; step < 400; ++step) {
    const auto views = stream.next(1 + random.below(3));
    next += static_cast<float>(views.size());
    if (random.below(2) == 0) {
      ASSERT_EQ(table.insert(views), views.size());
    } else {
      for (Item& item : as_items(views)) {
        ASSERT_TRUE(table.core->insert(std::move(item), kNow, table.after).ok());
      }
    }
    table.after = {};
    std::vector<float> expected;
    for (float value = std::max(0.0f, next - 5); value < next; ++value) expected.push_back(value);
    ASSERT_EQ(table.values(), expected) << "step " << step;
  }
  table.core->reset(table.after);
  table.after = {};
  EXPECT_EQ(table.store.used_bytes(), 0);
}

TEST(TableCoreViews, AChunkMayBeInSeveralTablesAndOutliveAReset) {
  ChunkStore store{std::nullopt};
  const Ref<Chunk> chunk = float_chunk(0, 4);
  const auto bytes = static_cast<std::int64_t>(chunk->size_bytes());
  auto first = TableCore::make(brief_options("Uniform", 3), registry(), store).value();
  auto second = TableCore::make(brief_options("Uniform", 3), registry(), store).value();
  Aftermath after;
  TrajectoryView view;
  view.layout = Stream::layout(1).get();
  view.one = {chunk.get(), 1, 2};
  const std::vector<TrajectoryView> views(2, view);
  ASSERT_EQ(first->insert_views(views, kNow, after), 2u);
  ASSERT_EQ(second->insert_views(views, kNow, after), 2u);
  EXPECT_EQ(store.used_bytes(), bytes) << "counted once";
  // The reset items are freed after the inserts, so chunks have two owners for a while.
  first->reset(after);
  ASSERT_EQ(first->insert_views(views, kNow, after), 2u);
  after = {};
  EXPECT_EQ(store.used_bytes(), bytes);
  ASSERT_EQ(first->insert_views(views, kNow, after), 2u);
  first.reset();
  after = {};
  EXPECT_EQ(store.used_bytes(), bytes);
  EXPECT_EQ(chunk->ref_count(), 3u) << "each of the second table's, which came second";
  second.reset();
  after = {};
  EXPECT_EQ(store.used_bytes(), 0);
  EXPECT_EQ(chunk->ref_count(), 1u);
}

TEST(TableCoreViews, ATicketOfAReplacedItemIsStale) {
  Core table(brief_options("Prioritized", 8));
  Stream stream;
  table.insert(stream.next(8));
  SampleBatch batch;
  batch.reserve(8, /*is_brief=*/true);
  table.core->read(0, 8, batch);
  const std::vector<std::uint64_t> tickets(batch.tickets().begin(), batch.tickets().end());
  table.insert(stream.next(3));
  const std::vector<double> fives(8, 5.0);
  EXPECT_EQ(table.core->update_by_ticket(tickets, fives, kNow), 5u);
  SampleBatch drawn;
  drawn.reserve(2'000, /*is_brief=*/true);
  table.core->sample(2'000, false, kNow, drawn, table.after);
  // Five items have weight 5, three have weight 1.
  EXPECT_NEAR(*std::ranges::max_element(drawn.probabilities()), 5.0 / 28, 1e-6);
  EXPECT_NEAR(*std::ranges::min_element(drawn.probabilities()), 1.0 / 28, 1e-6);
  table.insert(stream.next(1));
  EXPECT_EQ(table.core->sampler_mass(), 4 * 5 + 3 + 5) << "a new one gets the largest so far";
}

TEST(TableCoreViews, PinnedRowsOutliveReplacedItems) {
  Core table(brief_options("Uniform", 12));
  Stream stream;
  table.insert(stream.next(12));
  const std::uint64_t pin = table.core->pin();
  SampleBatch batch;
  batch.reserve(12, /*is_brief=*/true);
  ASSERT_EQ(table.core->read(0, 12, batch), 12u);
  for (int i = 0; i < 4; ++i) {
    table.insert(stream.next(12));
    table.after = {};  // frees what is no longer held
  }
  table.core->reset(table.after);
  table.after = {};
  float expected = 0;
  for (const TrajectoryView& item : batch.trajectories()) {
    for (const Piece& piece : item.pieces()) {
      for (std::uint32_t i = 0; i < piece.length; ++i) {
        EXPECT_EQ(float_row(*piece.chunk, piece.offset + i), expected++);
      }
    }
    --expected;  // the next item begins with the last row of this one
  }
  batch.clear();
  table.core->unpin(pin, table.after);
  table.after = {};
  EXPECT_EQ(table.store.used_bytes(), 0);
}

TEST(TableCoreViews, AreRefusedTogetherIfTheLimiterBlocksOne) {
  TableOptions options = brief_options("Uniform", 100);
  options.rate_limiter = {1.0, 1, -100, 10};
  Core table(options);
  Stream stream;
  EXPECT_EQ(table.insert(stream.next(11)), 0u);
  EXPECT_EQ(table.insert(stream.next(10)), 10u);
  EXPECT_EQ(table.insert(stream.next(1)), 0u);
  EXPECT_EQ(table.core->info().inserts, 10);
  EXPECT_EQ(table.insert(stream.next(101)), 0u) << "more than max_size";
}

class ShortMemory final : public Allocator {
 public:
  Result<Buffer> allocate(std::size_t size_bytes) override {
    if (blocks_left == 0) return resource_exhausted("{} bytes could not be had", size_bytes);
    --blocks_left;
    return Allocator::heap().allocate(size_bytes);
  }
  int blocks_left = 1;
};

TEST(TableCoreViews, ChangeNothingWithoutMemory) {
  ShortMemory memory;
  Core table(brief_options("Prioritized", 10'000), &memory);
  Stream stream;
  constexpr std::size_t kIn = ItemSlots::kSegmentSlots - 3;
  ASSERT_EQ(table.insert(stream.next(kIn)), kIn);
  const std::vector<float> before = table.values();
  const std::int64_t bytes = table.store.used_bytes();
  EXPECT_EQ(table.insert(stream.next(8)), 0u);
  EXPECT_EQ(table.values(), before);
  EXPECT_EQ(table.core->info().inserts, static_cast<std::int64_t>(kIn));
  EXPECT_EQ(table.store.used_bytes(), bytes);
  EXPECT_EQ(table.core->sampler_mass(), static_cast<double>(kIn));
  EXPECT_EQ(table.insert(stream.next(3)), 3u) << "those have a place";
  memory.blocks_left = 1;
  EXPECT_EQ(table.insert(stream.next(8)), 8u);
}

// A selector that fails to replace items in one call.
class StubbornSelector final : public Selector {
 public:
  std::string_view name() const override { return "Stubborn"; }
  void insert(Slot, double) override { ++size_; }
  void update(std::span<const Slot>, std::span<const double>) override {}
  void erase(Slot) override { --size_; }
  void replace(std::span<const Slot> slots, double) override {
    if (!slots.empty()) throw std::bad_alloc();
  }
  std::size_t size() const override { return size_; }
  void draw(std::span<Slot>, std::span<double>) override {}
  std::size_t draw_distinct(std::span<Slot>, std::span<double>) override { return 0; }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<StubbornSelector>(); }
  std::size_t memory_bytes() const override { return sizeof(*this); }

 private:
  std::size_t size_ = 0;
};

TEST(TableCoreViews, ASelectorWithoutMemoryLeavesTheTableUnchanged) {
  Registry with_stubborn;
  ASSERT_TRUE(with_stubborn
                  .add_selector("Stubborn",
                                [](const Options&) -> Result<std::unique_ptr<Selector>> {
                                  return std::unique_ptr<Selector>(new StubbornSelector());
                                })
                  .ok());
  StoreOptions store;
  store.registry = &with_stubborn;
  const auto service = LocalService::open({brief_options("Stubborn", 10)}, store).value();
  Stream stream;
  ASSERT_EQ(service->insert_views("t", stream.next(8)), 8u);
  EXPECT_EQ(service->insert_views("t", stream.next(4)), 0u);
  EXPECT_EQ(info_and_wait(*service).value()[0].current_size, 8);
  // Single inserts still work, with erase() and insert().
  std::vector<Item> items = as_items(stream.next(4));
  EXPECT_TRUE(insert_and_wait(*service, {"t", items}).status.ok());
  EXPECT_EQ(info_and_wait(*service).value()[0].inserts, 12);
}

TEST(TableCoreViews, AreInsertedOnlyIntoTablesThatAcceptThem) {
  const TableOptions brief = brief_options("Uniform", 300);
  const Item item = make_item(1, 1.0);
  const std::vector<TrajectoryView> views(700, item.trajectory.view());
  const auto count = [&](std::vector<TableOptions> tables, StoreOptions options = {}) {
    return LocalService::open(std::move(tables), options).value()->insert_views("t", views);
  };
  EXPECT_EQ(count({brief}), 700u) << "in breaths";
  TableOptions other = brief;
  other.is_keyed = true;
  EXPECT_EQ(count({other}), 0u);
  other = brief;
  other.remover.name = "Lifo";
  EXPECT_EQ(count({other}), 0u);
  other = brief;
  other.max_bytes = 1 << 20;
  EXPECT_EQ(count({other}), 0u);
  StoreOptions bounded;
  bounded.max_bytes = 1 << 20;
  EXPECT_EQ(count({brief}, bounded), 0u);
  other = brief;
  other.max_times_sampled = 2;
  EXPECT_EQ(count({other}), 0u);
  other = brief;
  other.extensions = {{"Statistics", {}}};
  EXPECT_EQ(count({other}), 0u);
  other = brief;
  other.rate_limiter.max_diff = 10;
  EXPECT_EQ(count({other}), 0u) << "the limiter holds some of them back: insert() says which";
  const auto service = LocalService::open({brief}, {}).value();
  EXPECT_EQ(service->insert_views("none", views), 0u);
  service->close();
  EXPECT_EQ(service->insert_views("t", views), 0u);
}

std::vector<float> values_in(TableSnapshot& snapshot) {
  std::vector<float> values;
  for (auto records = snapshot.next().value(); !records.empty();
       records = snapshot.next().value()) {
    for (const SlotRecord& record : records) {
      if (record.trajectory.layout != nullptr) values.push_back(value_of(record.trajectory));
    }
  }
  return values;
}

TEST(TableCoreViews, LeaveAHeldSnapshotUnchanged) {
  for (const bool is_reset : {false, true}) {
    const auto service = LocalService::open({brief_options("Prioritized", 1'500)}, {}).value();
    Stream stream;
    for (int i = 0; i < 20; ++i) ASSERT_EQ(service->insert_views("t", stream.next(100)), 100u);
    auto snapshots = service->freeze().value();
    std::vector<std::byte> weights;
    ByteWriter weights_out(weights);
    // Half of the items are evicted while the snapshot is held and has not been read.
    for (int i = 0; i < 8; ++i) ASSERT_EQ(service->insert_views("t", stream.next(100)), 100u);
    if (is_reset) {
      service->reset("t", [](const Status&) {});
      ASSERT_EQ(service->insert_views("t", stream.next(100)), 100u);
    }
    RestoredTable table;
    table.image = snapshots[0]->image();
    for (auto more = snapshots[0]->next().value(); !more.empty();
         more = snapshots[0]->next().value()) {
      table.records.insert(table.records.end(), more.begin(), more.end());
    }
    std::set<float> values;
    for (const SlotRecord& record : table.records) {
      const TrajectoryView& view = record.trajectory;
      ASSERT_NE(view.layout, nullptr);
      values.insert(value_of(view));
      table.trajectories.emplace_back(Ref<const Layout>::share(view.layout), view.pieces());
    }
    EXPECT_EQ(values.size(), 1'500u);
    EXPECT_EQ(*values.begin(), 500.0f);
    EXPECT_EQ(*values.rbegin(), 1'999.0f);
    std::vector<std::byte> order;
    ByteWriter order_out(order);
    ASSERT_TRUE(snapshots[0]->write_remover(order_out).value());
    table.remover = order;
    ASSERT_TRUE(snapshots[0]->write_sampler(weights_out).value());
    table.sampler = weights;
    snapshots.clear();
    service->reset("t", [](const Status&) {});
    EXPECT_EQ(service->used_bytes(), 0);

    // The restored table works: its oldest items make room for views.
    const auto second = LocalService::open({brief_options("Prioritized", 1'500)}, {}).value();
    ASSERT_TRUE(second->table("t").value()->restore(table).ok());
    Stream other;
    ASSERT_EQ(second->insert_views("t", other.next(1'400)), 1'400u);
    auto now = second->freeze().value();
    std::vector<float> left = values_in(*now[0]);
    std::ranges::sort(left);
    EXPECT_EQ(left.back(), 1'999.0f);
    EXPECT_EQ(std::ranges::count_if(left, [](float v) { return v >= 1'900; }), 100);
    EXPECT_EQ(left.front(), 0.0f);
    now.clear();
    second->reset("t", [](const Status&) {});
    EXPECT_EQ(second->used_bytes(), 0);
  }
}

TEST(TableCoreViews, MayBeReadFrozenAndResetByOtherThreads) {
  const auto service = LocalService::open({brief_options("Prioritized", 700)}, {}).value();
  std::atomic<bool> is_over{false};
  std::atomic<std::int64_t> read_count{0};
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    while (!is_over) {
      SampleRequest request;
      request.table = "t";
      request.count = 64;
      request.brief = true;
      request.deadline = TimePoint{0};
      const SampleResult result = sample_and_wait(*service, std::move(request));
      if (result.batch.empty()) continue;
      const std::vector<double> priorities(result.batch.size(), 2.0);
      for (const TrajectoryView& item : result.batch.trajectories()) {
        const Piece& last = item.pieces().back();
        EXPECT_EQ(value_of(item) + 1, float_row(*last.chunk, last.offset + last.length - 1));
        ++read_count;
      }
      MutateRequest update;
      update.table = "t";
      update.tickets = result.batch.tickets();
      update.ticket_priorities = priorities;
      EXPECT_TRUE(mutate_and_wait(*service, update).status.ok());
    }
  });
  threads.emplace_back([&] {
    while (!is_over) {
      auto snapshots = service->freeze().value();
      const std::vector<float> values = values_in(*snapshots[0]);
      // All items are of one moment: none is missing between the oldest and the newest.
      if (!values.empty()) {
        EXPECT_EQ(*std::ranges::max_element(values) - *std::ranges::min_element(values) + 1,
                  static_cast<float>(values.size()));
      }
    }
  });
  threads.emplace_back([&] {
    while (!is_over) {
      service->reset("t", [](const Status&) {});
      for (int i = 0; i < 200 && !is_over; ++i) std::this_thread::yield();
    }
  });
  Stream stream;
  for (std::int64_t i = 0; i < scaled(3'000, 60'000) || read_count == 0; ++i) {
    const auto views = stream.next(64);
    ASSERT_EQ(service->insert_views("t", views), views.size());
  }
  is_over = true;
  threads.clear();
  service->reset("t", [](const Status&) {});
  EXPECT_EQ(service->used_bytes(), 0);
}

}  // namespace
}  // namespace reverie
