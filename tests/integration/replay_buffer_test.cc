// A replay buffer over a real store. python/reverie/replay_buffer_test.py compares what it holds
// with a model; these tests cover threads, and what only C++ callers can do.
#include "reverie/transitions/replay_buffer.h"

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/replay/local_service.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 32;
constexpr std::int64_t kWidth = 130;  // wide enough to get a separate column

// A buffer whose observations are `kWidth` equal numbers, and whose actions are one number.
class NumberBuffer {
 public:
  explicit NumberBuffer(TransitionOptions options) : options_(options) {
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Prioritized", {{"priority_exponent", 1.0}, {"seed", std::int64_t{1}}}};
    service = LocalService::open({table}, {}).value();
    buffer = ReplayBuffer::open(service, "t", options, {{"", DType::kFloat32, {kWidth}}},
                                {{"", DType::kInt64, {}}}, 1)
                 .value();
  }

  Status add(float obs, float next_obs, bool is_over = false, std::size_t env = 0) {
    const std::size_t envs = options_.env_count;
    const std::vector<float> before(envs * kWidth, obs);
    const std::vector<float> after(envs * kWidth, next_obs);
    const std::vector<std::int64_t> action(envs, static_cast<std::int64_t>(obs));
    const std::vector<float> reward(envs, 1.0f);
    const std::vector<std::uint8_t> over(envs, static_cast<std::uint8_t>(is_over));
    std::vector<std::uint8_t> mask(envs, 0);
    mask[env] = 1;
    const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(envs), kWidth};
    const TensorView obs_view{DType::kFloat32, shape, std::as_bytes(std::span(before))};
    const TensorView next_view{DType::kFloat32, shape, std::as_bytes(std::span(after))};
    const TensorView action_view{DType::kInt64, std::span(shape).first(1),
                                 std::as_bytes(std::span(action))};
    return buffer->add(
        {{&obs_view, 1}, {&action_view, 1}, {&next_view, 1}, reward, over, over, mask, true});
  }

  std::shared_ptr<LocalService> service;
  std::unique_ptr<ReplayBuffer> buffer;

 private:
  TransitionOptions options_;
};

// The arrays of one batch of transitions.
struct NumberBatch {
  NumberBatch() {
    targets.transitions = {{&places[0], 1},   {&places[1], 1}, {&places[2], 1}, reward.data(),
                           terminated.data(), discount.data(), nullptr};
    targets.tickets = tickets.data();
    targets.weights = weights.data();
  }
  NumberBatch(const NumberBatch&) = delete;
  NumberBatch& operator=(const NumberBatch&) = delete;

  std::array<float, kBatch * kWidth> obs{};
  std::array<float, kBatch * kWidth> next_obs{};
  std::array<std::int64_t, kBatch> action{};
  std::array<float, kBatch> reward{};
  std::array<float, kBatch> discount{};
  std::array<float, kBatch> weights{};
  std::array<std::uint8_t, kBatch> terminated{};
  std::array<std::uint64_t, kBatch> tickets{};
  std::array<std::byte*, 3> places{reinterpret_cast<std::byte*>(obs.data()),
                                   reinterpret_cast<std::byte*>(action.data()),
                                   reinterpret_cast<std::byte*>(next_obs.data())};
  ReplayBufferTargets targets;
};

class ReplayBufferCodec : public ::testing::TestWithParam<CodecChoice> {};
INSTANTIATE_TEST_SUITE_P(EachCodec, ReplayBufferCodec,
                         ::testing::Values(CodecChoice::kRaw, CodecChoice::kLz4,
                                           CodecChoice::kZstd),
                         [](const auto& codec) {
                           return std::string(codec_choice_name(codec.param));
                         });

TEST_P(ReplayBufferCodec, ThreadsThatAddSampleAndUpdateSeeWholeTransitions) {
  constexpr int kAdders = 2;
  constexpr int kSteps = 3'000;
  NumberBuffer numbers(
      {.capacity = 100, .env_count = kAdders, .n_step = 2, .gamma = 1.0, .codec = GetParam()});
  // Even steps belong to one environment, odd steps to the other.
  ASSERT_TRUE(numbers.add(0, 2, true).ok());
  std::atomic<int> adding{kAdders};
  std::vector<std::thread> threads;
  threads.reserve(kAdders + 2);
  for (int adder = 0; adder < kAdders; ++adder) {
    threads.emplace_back([&, adder] {
      for (int step = 1; step < kSteps; ++step) {
        const auto at = static_cast<float>(2 * step + adder);
        EXPECT_TRUE(numbers.add(at, at + 2, step % 10 == 0, static_cast<std::size_t>(adder)).ok());
      }
      --adding;
    });
  }
  for (int learner = 0; learner < 2; ++learner) {
    threads.emplace_back([&] {
      NumberBatch batch;
      std::array<double, kBatch> priorities;
      while (adding > 0) {
        ASSERT_TRUE(numbers.buffer
                        ->sample({.count = kBatch, .beta = 0.5, .deadline = TimePoint::max()},
                                 batch.targets, {})
                        .ok());
        for (std::size_t i = 0; i < kBatch; ++i) {
          const float obs = batch.obs[i * kWidth];
          EXPECT_EQ(batch.obs[i * kWidth + kWidth - 1], obs);
          EXPECT_EQ(static_cast<float>(batch.action[i]), obs);
          EXPECT_EQ(batch.next_obs[i * kWidth], obs + 2 * batch.reward[i]) << "two steps, or one";
          EXPECT_GT(batch.weights[i], 0);
          EXPECT_LE(batch.weights[i], 1);
          priorities[i] = 1.0 + static_cast<double>(i);
        }
        EXPECT_TRUE(numbers.buffer->update(batch.tickets, priorities, {}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ReplayBuffer, ItemsOfAnotherBufferInTheSameTableAreDetected) {
  NumberBuffer numbers({.capacity = 100});
  ASSERT_TRUE(numbers.add(0, 1, true).ok());
  const auto other =
      ReplayBuffer::open(numbers.service, "t", {.capacity = 100}, {{"", DType::kFloat32, {kWidth}}},
                         {{"", DType::kInt64, {}}}, 1)
          .value();
  NumberBatch batch;
  EXPECT_EQ(other->sample({.count = 1}, batch.targets, {}).code(), StatusCode::kDataLoss);
}

TEST(ReplayBuffer, RowsOfAStreamAreStoredOnce) {
  constexpr std::int64_t kSteps = 10'000;
  NumberBuffer numbers({.capacity = kSteps, .frame_stack = 4, .n_step = 3});
  for (std::int64_t i = 0; i < kSteps + 100; ++i) {
    ASSERT_TRUE(numbers.add(static_cast<float>(i), static_cast<float>(i + 1)).ok());
  }
  const std::int64_t row_bytes = kWidth * 4 + 8 + 4 + 1;
  EXPECT_LT(numbers.service->used_bytes(), kSteps * row_bytes * 11 / 10)
      << "whatever stacks, sums and next observations refer to them";
}

TEST(ReplayBuffer, AWaitForTheFirstItemCanBeInterrupted) {
  NumberBuffer numbers({.capacity = 100});
  NumberBatch batch;
  WaitOptions wait;
  wait.interrupted = [] { return true; };
  EXPECT_EQ(numbers.buffer->sample({.count = 1, .deadline = TimePoint::max()}, batch.targets, wait)
                .code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace reverie
