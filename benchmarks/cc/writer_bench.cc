// The cost of a writer and of a batch without the store: items go to a service that only keeps the
// last few.
//
// Estimates. append of 400 B: one copy, about 20 ns, and 3 x 5 ns of checks. create_item over the
// last step: a look-up, two reference counts, the call of the service: about 60 ns. A batch of
// 256 x 76 B in 3 columns: 4 cache misses per item of about 90 ns, 10 at once: 9 us from memory, 3
// us from the last-level cache.
#include <array>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/random.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/gather/batch.h"

namespace reverie {
namespace {

// A service that admits everything and keeps the last `capacity` items.
class KeepingService final : public ReplayService {
 public:
  explicit KeepingService(std::size_t capacity) : items_(capacity) {}

  const Item& item(std::size_t i) const { return items_[i]; }

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    items_[next_] = std::move(request.items[0]);
    if (++next_ == items_.size()) next_ = 0;
    done({{}, 1});
    return 0;
  }
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    TableInfo info;
    info.options.name = "replay";
    done(std::vector<TableInfo>{info});
    return 0;
  }
  RequestId sample(SampleRequest, Done<SampleResult>) override { return 0; }
  RequestId mutate(const MutateRequest&, Done<MutateResult>) override { return 0; }
  RequestId lookup(const LookupRequest&, Done<LookupResult>) override { return 0; }
  RequestId reset(std::string_view, Done<Status>) override { return 0; }
  RequestId why_blocked(std::string_view, Done<Result<BlockedReport>>) override { return 0; }
  void cancel(RequestId) override {}
  void close() override {}

 private:
  std::vector<Item> items_;
  std::size_t next_ = 0;
};

// Steps of three columns: an observation of `obs_floats` float32, an int64 action, a float32
// reward.
class Steps {
 public:
  Steps(std::shared_ptr<ReplayService> service, std::int64_t obs_floats, ChunkOptions chunks)
      : obs_shape_{obs_floats}, obs_(static_cast<std::size_t>(obs_floats), 0.5f) {
    writer_ = TrajectoryWriter::open(std::move(service), {.chunks = chunks}).value();
    obs_id_ = writer_->column("obs");
    action_id_ = writer_->column("action");
    reward_id_ = writer_->column("reward");
  }

  void append() {
    const std::array<ColumnValue, 3> values = {
        ColumnValue{obs_id_, {DType::kFloat32, obs_shape_, std::as_bytes(std::span(obs_))}},
        ColumnValue{action_id_, {DType::kInt64, {}, std::as_bytes(std::span(&action_, 1))}},
        ColumnValue{reward_id_, {DType::kFloat32, {}, std::as_bytes(std::span(&reward_, 1))}}};
    REVERIE_CHECK(writer_->append(values, false).ok());
  }

  // Creates an item over the last `rows` steps.
  void create_item(std::uint32_t rows) {
    const StepRange range{writer_->next_step() - rows, rows};
    const std::span<const StepRange> ranges(&range, 1);
    const std::array<TrajectoryColumn, 3> columns = {
        TrajectoryColumn{"obs", obs_id_, ranges}, TrajectoryColumn{"action", action_id_, ranges},
        TrajectoryColumn{"reward", reward_id_, ranges}};
    const NewItem item{"replay", 1.0, columns, "{action,obs,reward}"};
    REVERIE_CHECK(writer_->create_item(item, TimePoint::max(), wait_).ok());
  }

  void end_episode() { REVERIE_CHECK(writer_->end_episode(true, TimePoint::max(), wait_).ok()); }

 private:
  Shape obs_shape_;
  std::vector<float> obs_;
  std::int64_t action_ = 1;
  float reward_ = 0.5f;
  WaitOptions wait_;
  std::unique_ptr<TrajectoryWriter> writer_;
  ColumnId obs_id_ = 0;
  ColumnId action_id_ = 0;
  ColumnId reward_id_ = 0;
};

// Appends one step of 400 B in three columns. Episodes have 1,000 steps.
void BM_Append(benchmark::State& state) {
  Steps steps(std::make_shared<KeepingService>(1), 97, {.num_keep_alive_refs = 8});
  int in_episode = 0;
  for (auto _ : state) {
    steps.append();
    if (++in_episode == 1000) {
      steps.end_episode();
      in_episode = 0;
    }
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Append);

// Appends one step of 400 B and creates an item over the last `rows`. The service keeps 1,000.
void BM_AppendAndCreateItem(benchmark::State& state) {
  const auto rows = static_cast<std::uint32_t>(state.range(0));
  Steps steps(std::make_shared<KeepingService>(1'000), 97, {.num_keep_alive_refs = 8});
  for (std::uint32_t i = 1; i < rows; ++i) steps.append();
  for (auto _ : state) {
    steps.append();
    steps.create_item(rows);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AppendAndCreateItem)->Arg(1)->Arg(5);

// A learner's batch: 256 random items of `rows` rows of 76 B, out of `items`. 2^10 items fit in the
// second-level cache, 100,000 (8 MB) do not. Items/s = items of a batch.
void BM_Assemble(benchmark::State& state) {
  constexpr std::size_t kBatch = 256;
  const auto item_count = static_cast<std::size_t>(state.range(0));
  const auto rows = static_cast<std::uint32_t>(state.range(1));
  const auto service = std::make_shared<KeepingService>(item_count);
  Steps steps(service, 16, {.num_keep_alive_refs = 8});
  for (std::uint32_t i = 1; i < rows; ++i) steps.append();
  for (std::size_t i = 0; i < item_count; ++i) {
    steps.append();
    steps.create_item(rows);
  }
  Random random(std::uint64_t{7});
  std::vector<SampleBatch> draws(64);
  for (SampleBatch& draw : draws) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      SampledItem item;
      item.trajectory = service->item(random.below(item_count)).trajectory.view();
      draw.add(item);
    }
  }
  Batch batch;
  std::size_t next = 0;
  for (auto _ : state) {
    const Status status = assemble_into(draws[next], {}, batch);
    REVERIE_CHECK(status.ok());
    next = (next + 1) % draws.size();
    benchmark::DoNotOptimize(batch.columns.front().bytes.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(BM_Assemble)
    ->ArgNames({"items", "rows"})
    ->Args({1 << 10, 1})
    ->Args({100'000, 1})
    ->Args({1'000'000, 1})
    ->Args({100'000, 4})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace reverie
