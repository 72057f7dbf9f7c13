// The cost of a table: an insert, a learner's batch, the longest hold of its lock, bytes per item.
//
// Estimates. Insert into a full Prioritized/Fifo table: key map 2 x 15 ns, tree 2 x 30 ns, the
// lines of the item and of the evicted one 2 x 20 ns, clock 25 ns: 170 ns. A batch of 256 drawn and
// updated by ticket: 256 x (12 search + 20 item line + 8 update) = 10 us. Longest hold: a breath of
// 512 draws with a cache miss each, 512 x 100 ns = 50 us, or a new segment of 128 KiB with page
// faults, 32 x 0.5 us.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include <benchmark/benchmark.h>
#include <malloc.h>
#include <time.h>

#include "reverie/base/random.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"
#include "tests/support/items.h"
#include "tests/support/resident.h"

namespace reverie {
namespace {

using testing::float_chunk;
using testing::item_over;
using testing::table_options;

TableOptions prioritized(std::int64_t max_size) {
  TableOptions options =
      table_options("t", "Prioritized", "Fifo", max_size, RateLimiter::min_size(1));
  options.sampler.options["seed"] = std::int64_t{7};
  return options;
}

// Fills the table; items share chunks of 64 rows.
void fill(LocalService& service, std::int64_t count) {
  Ref<Chunk> chunk;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % 64 == 0) chunk = float_chunk(0, 64, {static_cast<ChunkKey>(i), 1, 0});
    Item item = item_over(*chunk, static_cast<ItemKey>(i), 1.0 + static_cast<double>(i % 7),
                          static_cast<std::uint32_t>(i % 64), 1);
    REVERIE_CHECK(insert_and_wait(service, {"t", {&item, 1}, TimePoint{0}}).status.ok());
  }
}

// Inserts one item into a full table, which evicts one. Arg: items.
void BM_InsertIntoFullTable(benchmark::State& state) {
  const auto service = LocalService::open({prioritized(state.range(0))}, {}).value();
  fill(*service, state.range(0));
  const Ref<Chunk> chunk = float_chunk(0, 64);
  ItemKey key = 1u << 30;
  for (auto _ : state) {
    ++key;
    Item item = item_over(*chunk, key, 1.0, static_cast<std::uint32_t>(key % 64), 1);
    benchmark::DoNotOptimize(insert_and_wait(*service, {"t", {&item, 1}, TimePoint{0}}));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_InsertIntoFullTable)->Arg(1 << 10)->Arg(1'000'000);

// A learner's round: draws 256, updates 256 by ticket; copies no rows. Arg: items.
void BM_DrawAndUpdateBatch(benchmark::State& state) {
  constexpr std::size_t kBatch = 256;
  const auto service = LocalService::open({prioritized(state.range(0))}, {}).value();
  fill(*service, state.range(0));
  Random random(std::uint64_t{1});
  std::vector<double> priorities(kBatch);
  SampleBatch batch;
  for (auto _ : state) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = kBatch;
    request.batch = std::move(batch);
    SampleResult result = sample_and_wait(*service, std::move(request));
    batch = std::move(result.batch);
    for (double& priority : priorities) priority = random.uniform();
    MutateRequest update;
    update.table = "t";
    update.tickets = batch.tickets();
    update.ticket_priorities = priorities;
    benchmark::DoNotOptimize(mutate_and_wait(*service, update));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(BM_DrawAndUpdateBatch)->Arg(1 << 10)->Arg(100'000)->Arg(1'000'000);

// CPU time of this thread: the time of the operation itself with its page faults, without the time
// in which the machine ran other programs.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// The longest of one kind of operation over runs that do the same. Each operation counts with its
// shortest time, so the result is long in every run: an interrupt, or a page fault that takes long,
// affects a different operation each time.
class Longest {
 public:
  void begin_run() { next_ = 0; }
  template <typename Operation>
  void time(Operation operation) {
    const double begin = cpu_us();
    operation();
    const auto taken = static_cast<float>(cpu_us() - begin);
    if (next_ == shortest_.size()) {
      shortest_.push_back(taken);
    } else {
      shortest_[next_] = std::min(shortest_[next_], taken);
    }
    ++next_;
    once_ = std::max(once_, taken);
  }
  double in_every_run_us() const { return *std::max_element(shortest_.begin(), shortest_.end()); }
  double in_one_run_us() const { return once_; }

 private:
  std::vector<float> shortest_;
  std::size_t next_ = 0;
  float once_ = 0;
};

// The longest hold of a table's lock: Table holds it for each operation of TableCore, and batches
// are split into breaths of Table::kBreath. Counters: the longest of each operation in us of CPU
// time, while a table grows to 10 million items, and at that size, in every one of three runs; and
// the longest insert of any one run, which includes what the machine did meanwhile.
void BM_LongestHold(benchmark::State& state) {
  constexpr std::size_t kBreath = Table::kBreath;
  constexpr int kRuns = 3;
  const std::int64_t count = state.range(0);
  enum Kind {
    kInsert,
    kSample,
    kUpdate,
    kUpdateByKey,
    kErase,
    kFreeze,
    kNext,
    kThaw,
    kFrozenSample,
    kFrozenUpdate,
    kReset,
    kKinds
  };
  for (auto _ : state) {
    std::array<Longest, kKinds> longest;
    for (int run = 0; run < kRuns; ++run) {
      for (Longest& each : longest) each.begin_run();
      malloc_trim(0);  // so that pages fault in as in the first run
      const Registry registry;
      ChunkStore chunk_store{std::nullopt};
      auto core = TableCore::make(prioritized(count), registry, chunk_store).value();
      Random random(std::uint64_t{3});
      Ref<Chunk> chunk;
      for (std::int64_t i = 0; i < count; ++i) {
        if (i % 64 == 0) chunk = float_chunk(0, 64, {static_cast<ChunkKey>(i), 1, 0});
        Item item = item_over(*chunk, static_cast<ItemKey>(i), 1.0 + random.uniform(),
                              static_cast<std::uint32_t>(i % 64), 1);
        Aftermath after;
        longest[kInsert].time(
            [&] { REVERIE_CHECK(core->insert(std::move(item), TimePoint{i}, after).ok()); });
        if (after.growing) after.growing->populate_ahead();  // as Table does, without the lock
      }
      std::vector<double> priorities(kBreath);
      std::vector<ItemKey> keys(kBreath);
      for (int round = 0; round < 2'000; ++round) {
        Aftermath after;
        SampleBatch batch;
        batch.reserve(kBreath);
        for (double& priority : priorities) priority = random.uniform();
        for (ItemKey& key : keys) key = random.below(static_cast<std::uint64_t>(count));
        const std::uint64_t pin = core->pin();
        longest[kSample].time([&] { core->sample(kBreath, false, TimePoint{1}, batch, after); });
        longest[kUpdate].time(
            [&] { core->update_by_ticket(batch.tickets(), priorities, TimePoint{1}); });
        longest[kUpdateByKey].time([&] { core->update_by_key(keys, priorities, TimePoint{1}); });
        if (round % 10 == 0) {
          longest[kErase].time([&] { core->erase(keys, TimePoint{1}, after); });
        }
        core->unpin(pin, after);
      }
      // A checkpoint: the moment itself, a segment that is read, the end, and a learner's breaths
      // meanwhile, whose first change of a segment keeps the old one.
      {
        std::optional<TableCore::Frozen> frozen;
        longest[kFreeze].time([&] { frozen.emplace(core->freeze(0).value()); });
        Aftermath freed;
        for (int round = 0;; ++round) {
          bool is_over = false;
          longest[kNext].time([&] { is_over = TableCore::next_frozen(*frozen).value().empty(); });
          if (is_over) break;
          if (round % 10 > 0) continue;
          Aftermath after;
          SampleBatch batch;
          batch.reserve(kBreath);
          for (double& priority : priorities) priority = random.uniform();
          const std::uint64_t pin = core->pin();
          longest[kFrozenSample].time(
              [&] { core->sample(kBreath, false, TimePoint{1}, batch, after); });
          longest[kFrozenUpdate].time(
              [&] { core->update_by_ticket(batch.tickets(), priorities, TimePoint{1}); });
          core->unpin(pin, after);
        }
        longest[kThaw].time([&] { core->thaw(*frozen, freed); });
      }
      Aftermath after;
      longest[kReset].time([&] { core->reset(after); });
    }
    const auto us = [&](Kind kind) { return longest[kind].in_every_run_us(); };
    state.counters = {{"freeze_us", us(kFreeze)},
                      {"freeze_segment_us", us(kNext)},
                      {"thaw_us", us(kThaw)},
                      {"sample_breath_frozen_us", us(kFrozenSample)},
                      {"update_breath_frozen_us", us(kFrozenUpdate)},
                      {"insert_us", us(kInsert)},
                      {"insert_in_one_run_us", longest[kInsert].in_one_run_us()},
                      {"sample_breath_us", us(kSample)},
                      {"update_breath_us", us(kUpdate)},
                      {"update_by_key_breath_us", us(kUpdateByKey)},
                      {"erase_breath_us", us(kErase)},
                      {"reset_us", us(kReset)}};
  }
}
BENCHMARK(BM_LongestHold)->Arg(100'000)->Arg(10'000'000)->Iterations(1)->Unit(benchmark::kSecond);

// Resident bytes per stored item of one step of 400 B (3 columns), beyond those 400.
// Arg: chunk_length; with 0 the writer chooses it, and steps share chunks.
void BM_BytesBeyondData(benchmark::State& state) {
  constexpr std::int64_t kItems = 500'000;
  constexpr std::size_t kDataBytes = 400;
  for (auto _ : state) {
    const double before = static_cast<double>(testing::resident_bytes());
    const auto service = LocalService::open({prioritized(kItems)}, {}).value();
    TrajectoryWriterOptions options;
    if (state.range(0) > 0)
      options.chunks.chunk_length = static_cast<std::uint32_t>(state.range(0));
    auto writer = TrajectoryWriter::open(service, options).value();
    const std::vector<float> obs(97);
    const std::int64_t action = 1;
    const float reward = 1;
    const Shape obs_shape = {97};
    const ColumnId ids[] = {writer->column("obs"), writer->column("action"),
                            writer->column("reward")};
    for (std::int64_t i = 0; i < kItems; ++i) {
      const ColumnValue values[] = {
          {ids[0], {DType::kFloat32, obs_shape, std::as_bytes(std::span(obs))}},
          {ids[1], {DType::kInt64, {}, std::as_bytes(std::span(&action, 1))}},
          {ids[2], {DType::kFloat32, {}, std::as_bytes(std::span(&reward, 1))}}};
      REVERIE_CHECK(writer->append(values, false).ok());
      const StepRange last[] = {{writer->next_step() - 1, 1}};
      const TrajectoryColumn columns[] = {{"obs", ids[0], last, false},
                                          {"action", ids[1], last, false},
                                          {"reward", ids[2], last, false}};
      const NewItem item{.table = "t", .priority = 1.0, .columns = columns, .structure = "s"};
      REVERIE_CHECK(writer->create_item(item, TimePoint::max(), {}).ok());
    }
    REVERIE_CHECK(writer->end_episode(true, TimePoint::max(), {}).ok());
    const double bytes = static_cast<double>(testing::resident_bytes()) - before;
    state.counters["bytes_beyond_data"] = bytes / kItems - static_cast<double>(kDataBytes);
  }
}
BENCHMARK(BM_BytesBeyondData)->ArgName("chunk_length")->Arg(0)->Arg(1)->Iterations(1);

}  // namespace
}  // namespace reverie
