// A prioritised replay buffer with one, two, ... threads: the loop of a learner that also acts.
//
// A loop is: insert one transition, draw 64 with their weights, copy them out, give each a new
// priority. Transitions are those of a small control task, 76 bytes as peers store them. Items/s =
// loops/s of all threads together. The scaling is the rate of several threads over that of one;
// with one shard it is limited by the table's lock, which a thread holds while it draws and
// updates, but not while it copies.
//
// BM_Loop        Args: items; shards; threads.
// BM_SampleUpdate  The same without the insert. Args: batch, items. Items/s = batches/s.
// BM_InsertVector  64 environments in one call. Items/s = transitions/s.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/check.h"
#include "reverie/base/random.h"
#include "reverie/replay/local_service.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {
namespace {

constexpr std::size_t kObs = 8;

// A prioritised buffer and its store.
class Buffer {
 public:
  Buffer(std::size_t items, std::uint32_t env_count, std::size_t shards = 1) {
    TransitionOptions options;
    options.capacity = items;
    options.env_count = env_count;
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Prioritized", {{"priority_exponent", 0.6}, {"seed", std::int64_t{7}}}};
    const std::vector<TableOptions> tables = ReplayShards::split(table, shards).value();
    service_ = LocalService::open(tables, {}).value();
    buffer_ = ReplayBuffer::open(service_, tables, options, {{"obs", DType::kFloat32, {kObs}}},
                                 {{"action", DType::kInt32, {}}}, 7)
                  .value();
  }
  ReplayBuffer& operator*() { return *buffer_; }

 private:
  std::shared_ptr<LocalService> service_;
  std::unique_ptr<ReplayBuffer> buffer_;
};

// One thread's steps, and arrays for its batches. With `env` it only steps that environment.
class User {
 public:
  User(ReplayBuffer& buffer, std::size_t batch, int env = -1)
      : buffer_(buffer),
        env_count_(buffer.plan().options().env_count),
        obs_(env_count_ * kObs, 1.0f),
        action_(env_count_),
        reward_(env_count_),
        over_(env_count_),
        mask_(env_count_, static_cast<std::uint8_t>(env < 0)),
        batch_obs_(batch * kObs),
        batch_next_obs_(batch * kObs),
        batch_action_(batch),
        batch_reward_(batch),
        discount_(batch),
        weights_(batch),
        terminated_(batch),
        tickets_(batch),
        priorities_(batch),
        random_(static_cast<std::uint64_t>(env + 7)) {
    if (env >= 0) mask_[static_cast<std::size_t>(env)] = 1;
    for (double& priority : priorities_) priority = random_.uniform() + 0.01;
    draw_.count = batch;
    draw_.beta = 0.4;
    places_ = {reinterpret_cast<std::byte*>(batch_obs_.data()),
               reinterpret_cast<std::byte*>(batch_next_obs_.data()),
               reinterpret_cast<std::byte*>(batch_action_.data())};
    targets_.transitions = {
        {&places_[0], 1},   {&places_[2], 1}, {&places_[1], 1}, batch_reward_.data(),
        terminated_.data(), discount_.data(), nullptr};
    targets_.tickets = tickets_.data();
    targets_.weights = weights_.data();
  }

  void insert() {
    const std::array<std::int64_t, 2> obs_shape{static_cast<std::int64_t>(env_count_), kObs};
    const TensorView obs{DType::kFloat32, obs_shape, std::as_bytes(std::span(obs_))};
    const TensorView action{DType::kInt32, std::span(obs_shape).first(1),
                            std::as_bytes(std::span(action_))};
    REVERIE_CHECK(
        buffer_.add({{&obs, 1}, {&action, 1}, {&obs, 1}, reward_, over_, over_, mask_, true}).ok());
  }
  void sample() {
    draw_.shard_choice = random_.uniform();
    REVERIE_CHECK(buffer_.sample(draw_, targets_, {}).ok());
  }
  void update() { REVERIE_CHECK(buffer_.update(tickets_, priorities_, {}).ok()); }

 private:
  ReplayBuffer& buffer_;
  std::size_t env_count_;
  std::vector<float> obs_;
  std::vector<std::int32_t> action_;
  std::vector<float> reward_;
  std::vector<std::uint8_t> over_;
  std::vector<std::uint8_t> mask_;
  std::vector<float> batch_obs_;
  std::vector<float> batch_next_obs_;
  std::vector<std::int32_t> batch_action_;
  std::vector<float> batch_reward_;
  std::vector<float> discount_;
  std::vector<float> weights_;
  std::vector<std::uint8_t> terminated_;
  std::vector<std::uint64_t> tickets_;
  std::vector<double> priorities_;
  Random random_;
  std::array<std::byte*, 3> places_{};
  ReplayBufferDraw draw_;
  ReplayBufferTargets targets_;
};

void fill(Buffer& buffer, std::size_t items) {
  User user(*buffer, 1);
  const std::size_t env_count = (*buffer).plan().options().env_count;
  for (std::size_t i = 0; i < items; i += env_count) user.insert();
}

void BM_Loop(benchmark::State& state) {
  static std::unique_ptr<Buffer> buffer;  // shared by all threads; the first one makes it
  const auto items = static_cast<std::size_t>(state.range(0));
  if (state.thread_index() == 0) {
    buffer = std::make_unique<Buffer>(items, static_cast<std::uint32_t>(state.threads()),
                                      static_cast<std::size_t>(state.range(1)));
    fill(*buffer, items);
  }
  std::unique_ptr<User> user;
  for (auto _ : state) {
    if (!user) user = std::make_unique<User>(**buffer, 64, state.thread_index());
    user->insert();
    user->sample();
    user->update();
  }
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) buffer.reset();
}
BENCHMARK(BM_Loop)
    ->Args({100'000, 1})
    ->Args({100'000, 64})
    ->Args({1'000'000, 1})
    ->Args({1'000'000, 64})
    ->ThreadRange(1, static_cast<int>(std::max(2u, std::thread::hardware_concurrency())))
    ->UseRealTime();

void BM_SampleUpdate(benchmark::State& state) {
  const auto items = static_cast<std::size_t>(state.range(1));
  Buffer buffer(items, 64);
  fill(buffer, items);
  User user(*buffer, static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    user.sample();
    user.update();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_SampleUpdate)
    ->Args({64, 100'000})
    ->Args({256, 100'000})
    ->Args({64, 10'000'000})
    ->Args({256, 10'000'000});

void BM_InsertVector(benchmark::State& state) {
  Buffer buffer(100'000, 64);
  fill(buffer, 100'000);
  User user(*buffer, 1);
  for (auto _ : state) user.insert();
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(BM_InsertVector);

}  // namespace
}  // namespace reverie
