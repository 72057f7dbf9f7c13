// A replay buffer of several tables: what is drawn, replaced and updated is as in one table.
#include "reverie/transitions/replay_shards.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/format.h"
#include "reverie/base/random.h"
#include "reverie/replay/local_service.h"
#include "reverie/transitions/replay_buffer.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr std::size_t kDrawn = 32;

TableOptions whole_table(std::size_t capacity, double exponent = 1.0) {
  TransitionOptions options;
  options.capacity = capacity;
  TableOptions table = ReplayBuffer::table_options(options, "t");
  table.sampler = {"Prioritized", {{"priority_exponent", exponent}, {"seed", std::int64_t{1}}}};
  return table;
}

// Observations, and actions, are the number of their step; no step ends an episode.
class ShardedNumbers {
 public:
  ShardedNumbers(std::size_t capacity, std::size_t shards, std::uint32_t env_count = 1) {
    const auto tables = ReplayShards::split(whole_table(capacity), shards).value();
    TransitionOptions options;
    options.capacity = capacity;
    options.env_count = env_count;
    service = LocalService::open(tables, {}).value();
    buffer = ReplayBuffer::open(service, tables, options, {{"", DType::kFloat32, {1}}},
                                {{"", DType::kInt64, {}}}, 1)
                 .value();
    for (const TableOptions& table : tables) {
      tables_.push_back(service->table(table.name).value());
    }
  }

  // One step of each environment, numbered from `first`.
  void add(std::int64_t first) const {
    const std::size_t envs = buffer->plan().options().env_count;
    std::vector<float> before;
    std::vector<float> after;
    std::vector<std::int64_t> action;
    for (std::size_t env = 0; env < envs; ++env) {
      action.push_back(first + static_cast<std::int64_t>(env));
      before.push_back(static_cast<float>(action.back()));
      after.push_back(static_cast<float>(action.back() + static_cast<std::int64_t>(envs)));
    }
    const std::vector<float> reward(envs, 1.0f);
    const std::vector<std::uint8_t> over(envs, 0);
    const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(envs), 1};
    const TensorView obs{DType::kFloat32, shape, std::as_bytes(std::span(before))};
    const TensorView next{DType::kFloat32, shape, std::as_bytes(std::span(after))};
    const TensorView act{DType::kInt64, std::span(shape).first(1),
                         std::as_bytes(std::span(action))};
    const Status status =
        buffer->add({{&obs, 1}, {&act, 1}, {&next, 1}, reward, over, over, {}, true});
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  std::size_t size() const {
    std::size_t size = 0;
    for (Table* const table : tables_) size += table->size();
    return size;
  }
  const std::vector<Table*>& tables() const { return tables_; }

  std::shared_ptr<LocalService> service;
  std::unique_ptr<ReplayBuffer> buffer;

 private:
  std::vector<Table*> tables_;
};

struct DrawnNumbers {
  DrawnNumbers() {
    targets.transitions = {{&places[0], 1},   {&places[1], 1}, {&places[2], 1}, reward.data(),
                           terminated.data(), discount.data(), nullptr};
    targets.tickets = tickets.data();
    targets.weights = weights.data();
  }
  DrawnNumbers(const DrawnNumbers&) = delete;
  DrawnNumbers& operator=(const DrawnNumbers&) = delete;

  std::array<float, kDrawn> obs{};
  std::array<float, kDrawn> next_obs{};
  std::array<std::int64_t, kDrawn> action{};
  std::array<float, kDrawn> reward{};
  std::array<float, kDrawn> discount{};
  std::array<float, kDrawn> weights{};
  std::array<std::uint8_t, kDrawn> terminated{};
  std::array<std::uint64_t, kDrawn> tickets{};
  std::array<std::byte*, 3> places{reinterpret_cast<std::byte*>(obs.data()),
                                   reinterpret_cast<std::byte*>(action.data()),
                                   reinterpret_cast<std::byte*>(next_obs.data())};
  ReplayBufferTargets targets;
};

TEST(ReplayShards, TablesShareTheCapacityAndHaveSeedsOfTheirOwn) {
  const auto tables = ReplayShards::split(whole_table(103), 4).value();
  ASSERT_EQ(tables.size(), 4u);
  std::int64_t sum = 0;
  for (const TableOptions& table : tables) sum += table.max_size;
  EXPECT_EQ(sum, 103);
  EXPECT_EQ(tables[3].name, "t/3");
  EXPECT_NE(tables[0].sampler.options.at("seed"), tables[1].sampler.options.at("seed"));
  EXPECT_EQ(ReplayShards::split(whole_table(103), 1).value()[0].name, "t");
}

TEST(ReplayShards, ImpossibleNumbersOfShardsAreRefused) {
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  expect_refused(ReplayShards::split(whole_table(10), 0).status(), kInvalid, {"0 shards", "256"});
  expect_refused(ReplayShards::split(whole_table(1000), 257).status(), kInvalid, {"257", "256"});
  expect_refused(ReplayShards::split(whole_table(3), 4).status(), kInvalid, {"3 items", "fewer"});
  expect_refused(ReplayShards::split(whole_table(std::size_t{1} << 30), 4).status(), kInvalid,
                 {"4 shards", "more"});
}

TEST(ReplayShards, ATableThatIsNotThereIsRefused) {
  const auto service = LocalService::open({whole_table(10)}, {}).value();
  expect_refused(ReplayShards::open(*service, {"t", "u"}).status(), StatusCode::kUnimplemented,
                 {"'u'", "one shard"});
}

TEST(ReplayShards, AnEmptyBufferHasNothingToSample) {
  const ShardedNumbers numbers(100, 4);
  DrawnNumbers batch;
  EXPECT_EQ(
      numbers.buffer->sample({.count = 1, .deadline = TimePoint::max()}, batch.targets, {}).code(),
      StatusCode::kFailedPrecondition);
}

TEST(ReplayShards, EveryTableHasAPartOfEveryEpisodeAndAllTheCapacity) {
  constexpr std::size_t kCapacity = 8'000;
  const ShardedNumbers numbers(kCapacity, 8, /*env_count=*/4);
  for (std::int64_t step = 0; step < 20'000; step += 4) numbers.add(step);
  EXPECT_EQ(numbers.size(), kCapacity);
  for (Table* const table : numbers.tables()) EXPECT_EQ(table->size(), kCapacity / 8);
  // What is left is the newest part, as far as the tables' shares of the steps are equal.
  DrawnNumbers batch;
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(numbers.buffer
                    ->sample({.count = kDrawn, .shard_choice = random.uniform()}, batch.targets, {})
                    .ok());
    for (std::size_t at = 0; at < kDrawn; ++at) {
      EXPECT_GE(batch.action[at], 20'000 - static_cast<std::int64_t>(kCapacity) * 5 / 4);
      EXPECT_EQ(batch.obs[at], static_cast<float>(batch.action[at]));
      EXPECT_EQ(batch.next_obs[at], batch.obs[at] + 4);
    }
  }
}

// Chi-square of the counts of single items, each drawn with probability priority / sum.
TEST(ReplayShards, ItemsAreDrawnInProportionToTheirPriorities) {
  constexpr std::int64_t kItems = 60;
  const ShardedNumbers numbers(1'000, 4);
  // The last step is an item too, since its next observation is known.
  for (std::int64_t step = 0; step < kItems; ++step) numbers.add(step);
  ASSERT_EQ(numbers.size(), static_cast<std::size_t>(kItems));
  DrawnNumbers batch;
  Random random(7);
  const auto draw = [&](std::size_t count) {
    const Status status = numbers.buffer->sample(
        {.count = count, .beta = 1.0, .shard_choice = random.uniform()}, batch.targets, {});
    ASSERT_TRUE(status.ok()) << status.to_string();
  };
  const auto wanted = [](std::int64_t item) { return 1.0 + static_cast<double>(item % 7); };
  for (int i = 0; i < 400; ++i) {
    draw(kDrawn);
    std::array<double, kDrawn> priorities{};
    for (std::size_t at = 0; at < kDrawn; ++at) priorities[at] = wanted(batch.action[at]);
    EXPECT_EQ(numbers.buffer->update(batch.tickets, priorities, {}).value(), kDrawn);
  }
  double sum = 0;
  for (std::int64_t item = 0; item < kItems; ++item) sum += wanted(item);
  double mass = 0;
  for (Table* const table : numbers.tables()) mass += table->mass();
  ASSERT_NEAR(mass, sum, 1e-4) << "an item was never drawn, so it still has its first priority";

  // One item of each batch: those of one batch are in one table.
  constexpr int kDraws = 60'000;
  std::array<double, kItems> counts{};
  for (int i = 0; i < kDraws; ++i) {
    draw(1);
    ++counts[static_cast<std::size_t>(batch.action[0])];
  }
  double chi_square = 0;
  for (std::int64_t item = 0; item < kItems; ++item) {
    const double expected = kDraws * wanted(item) / sum;
    const double off = counts[static_cast<std::size_t>(item)] - expected;
    chi_square += off * off / expected;
  }
  EXPECT_LT(chi_square, 110) << "59 degrees of freedom: 0.9999 of all are below";

  draw(kDrawn);
  double least = wanted(batch.action[0]);
  for (const std::int64_t item : batch.action) least = std::min(least, wanted(item));
  for (std::size_t at = 0; at < kDrawn; ++at) {
    EXPECT_NEAR(batch.weights[at], least / wanted(batch.action[at]), 1e-5);
  }
}

// As in one table, which draws such an item only if all are alike.
TEST(ReplayShards, ItemsOfPriorityZeroAreDrawnIfThereAreNoOthers) {
  const ShardedNumbers numbers(1'000, 8);
  DrawnNumbers batch;
  for (std::int64_t step = 0; step < 3; ++step) {
    // One item more, and its priority: some tables stay empty.
    numbers.add(step);
    ASSERT_TRUE(numbers.buffer->sample({.count = 1}, batch.targets, {}).ok());
    ASSERT_EQ(batch.action[0], step) << "the only one with a weight";
    const std::span<const std::uint64_t> tickets = std::span(batch.tickets).first(1);
    ASSERT_EQ(numbers.buffer->update(tickets, std::vector<double>(1, 0.0), {}).value(), 1u);
  }
  std::array<int, 3> counts{};
  for (int i = 0; i < 80; ++i) {
    const Status status = numbers.buffer->sample(
        {.count = kDrawn, .beta = 1.0, .shard_choice = i / 80.0}, batch.targets, {});
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const std::int64_t item : batch.action) ++counts[static_cast<std::size_t>(item)];
    for (const float weight : batch.weights) EXPECT_EQ(weight, 1.0f);
  }
  for (const int count : counts) EXPECT_GT(count, 0);
}

TEST(ReplayShards, TicketsOfSeveralBatchesMayBeUpdatedTogether) {
  const ShardedNumbers numbers(1'000, 16);
  for (std::int64_t step = 0; step < 600; ++step) numbers.add(step);
  Random random(3);
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 20; ++i) {
    DrawnNumbers batch;
    ASSERT_TRUE(
        numbers.buffer->sample({.count = 3, .shard_choice = random.uniform()}, batch.targets, {})
            .ok());
    tickets.insert(tickets.end(), batch.tickets.begin(), batch.tickets.begin() + 3);
  }
  EXPECT_EQ(numbers.buffer->update(tickets, std::vector<double>(tickets.size(), 0.5), {}).value(),
            tickets.size());
  EXPECT_EQ(numbers.buffer->update(tickets, std::vector<double>(1, 0.5), {}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(numbers.buffer->update(tickets, std::vector<double>(tickets.size(), -1.0), {})
                .status()
                .code(),
            StatusCode::kInvalidArgument);

  ASSERT_TRUE(numbers.buffer->clear({}).ok());
  EXPECT_EQ(numbers.size(), 0u);
  EXPECT_EQ(numbers.buffer->update(tickets, std::vector<double>(tickets.size(), 0.5), {}).value(),
            0u);
}

TEST(ReplayShards, ARefusedUpdateChangesNoTable) {
  const ShardedNumbers numbers(1'000, 4);
  for (std::int64_t step = 0; step < 100; ++step) numbers.add(step);
  std::array<std::uint64_t, 2> tickets{};
  for (std::size_t i = 0; i < 2; ++i) {  // of the first shard, and of the last one
    DrawnNumbers batch;
    ASSERT_TRUE(numbers.buffer
                    ->sample({.count = 1, .shard_choice = i == 0 ? 0.0 : 0.999}, batch.targets, {})
                    .ok());
    tickets[i] = batch.tickets[0];
  }
  ASSERT_NE(numbers.buffer->shards().shard_of(tickets[0]),
            numbers.buffer->shards().shard_of(tickets[1]));
  const auto masses = [&] {
    std::vector<double> all;
    for (Table* const table : numbers.tables()) all.push_back(table->mass());
    return all;
  };
  const std::vector<double> before = masses();
  const auto update = [&](std::vector<std::uint64_t> of, std::vector<double> priorities) {
    return numbers.buffer->update(of, priorities, {}).status();
  };
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  const std::uint64_t of_another_buffer = tickets[0] | std::uint64_t{0xFF} << 24;
  expect_refused(update({of_another_buffer}, {9.0}), kInvalid, {"shard 255", "there are 4"});
  expect_refused(update({tickets[0], tickets[1], of_another_buffer}, {9.0, 9.0, 9.0}), kInvalid,
                 {format("{}", of_another_buffer), "place 2 of 3"});
  constexpr std::uint64_t kIndex = 5;  // no ticket, which has a generation above its lowest 32 bits
  expect_refused(update({tickets[1], kIndex}, {9.0, 9.0}), kInvalid, {"tickets holds 5"});
  expect_refused(update({tickets[0], tickets[1]}, {9.0, -1.0}), kInvalid, {"-1"});
  EXPECT_EQ(masses(), before);
  EXPECT_TRUE(update({tickets[0], tickets[1]}, {9.0, 9.0}).ok());
  EXPECT_NE(masses(), before);
}

TEST(ReplayShards, ThreadsThatAddSampleAndUpdateSeeWholeTransitions) {
  constexpr std::int64_t kSteps = 20'000;
  const ShardedNumbers numbers(500, 4);
  numbers.add(0);
  std::atomic<bool> is_adding{true};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (std::int64_t step = 1; step < kSteps; ++step) numbers.add(step);
    is_adding = false;
  });
  for (std::uint64_t learner = 0; learner < 3; ++learner) {
    threads.emplace_back([&, learner] {
      Random random(learner);
      DrawnNumbers batch;
      std::array<double, kDrawn> priorities{};
      while (is_adding) {
        ASSERT_TRUE(
            numbers.buffer
                ->sample({.count = kDrawn, .shard_choice = random.uniform()}, batch.targets, {})
                .ok());
        for (std::size_t i = 0; i < kDrawn; ++i) {
          EXPECT_EQ(static_cast<float>(batch.action[i]), batch.obs[i]);
          EXPECT_EQ(batch.next_obs[i], batch.obs[i] + 1);
          priorities[i] = 0.1 + random.uniform();
        }
        EXPECT_TRUE(numbers.buffer->update(batch.tickets, priorities, {}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(numbers.size(), 500u);
}

}  // namespace
}  // namespace reverie
