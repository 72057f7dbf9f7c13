// Replay buffers that are saved with their store and continue after a restart.
// python/reverie/replay_save_test.py tests what each kind of buffer gives afterwards; these tests
// cover several buffers over one table, and damaged states.
#include "reverie/transitions/replay_state.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/replay/local_service.h"
#include "reverie/sim/file_system.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 16;
constexpr std::int64_t kWidth = 40;  // few rows per chunk, so that an item spans two chunks

std::vector<std::span<Trajectory>> items_of(checkpoint::LoadedCheckpoint& from) {
  std::vector<std::span<Trajectory>> items;
  for (auto& table : from.tables) items.emplace_back(table.trajectories);
  return items;
}

// Two writers by turns, with two environments each; an observation is the number of its step.
struct Buffers {
  explicit Buffers(TransitionOptions options = {.capacity = 60, .env_count = 2, .n_step = 3},
                   std::size_t shards = 1) {
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Prioritized", {{"priority_exponent", 1.0}, {"seed", std::int64_t{1}}}};
    const auto tables = ReplayShards::split(table, shards).value();
    service = LocalService::open(tables, {}).value();
    first = ReplayBuffer::open(service, tables, options, {{"", DType::kFloat32, {kWidth}}},
                               {{"", DType::kInt64, {}}}, 1)
                .value();
    second = first->beside(2);
  }

  void add(int number) {
    const int step = number / 2;
    const std::vector<float> before(2 * kWidth, static_cast<float>(step));
    const std::vector<float> after(2 * kWidth, static_cast<float>(step + 1));
    const std::array<std::int64_t, 2> action{step, -step};
    const std::array<float, 2> reward{static_cast<float>(step), 0.5f};
    const std::array<std::uint8_t, 2> over{static_cast<std::uint8_t>(step % 17 == 0),
                                           static_cast<std::uint8_t>(step % 23 == 0)};
    const std::array<std::uint8_t, 2> none{};
    const std::array<std::int64_t, 2> shape{2, kWidth};
    const TensorView obs{DType::kFloat32, shape, std::as_bytes(std::span(before))};
    const TensorView next{DType::kFloat32, shape, std::as_bytes(std::span(after))};
    const TensorView act{DType::kInt64, std::span(shape).first(1),
                         std::as_bytes(std::span(action))};
    ReplayBuffer& buffer = number % 2 == 0 ? *second : *first;
    const StepArrays step_arrays{{&obs, 1}, {&act, 1}, {&next, 1}, reward, over, none, {}, true};
    ASSERT_TRUE(buffer.add(step_arrays).ok());
  }

  // Adds, draws and updates priorities; returns everything that was drawn.
  std::vector<float> go_on(int begin) {
    std::vector<float> given;
    for (int step = begin; step < begin + 50; ++step) {
      add(step);
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
      targets.transitions = {{&places[0], 1},   {&places[1], 1}, {&places[2], 1}, reward.data(),
                             terminated.data(), discount.data(), nullptr};
      targets.tickets = tickets.data();
      targets.weights = weights.data();
      if (step - begin < 10) continue;  // not enough items yet
      const double shard_choice = 0.61 * step - std::floor(0.61 * step);
      EXPECT_TRUE(
          first->sample({.count = kBatch, .beta = 0.5, .shard_choice = shard_choice}, targets, {})
              .ok());
      std::array<double, kBatch> priorities{};
      for (std::size_t i = 0; i < kBatch; ++i) {
        priorities[i] = 0.1 + static_cast<double>(obs[i * kWidth]);
        given.insert(given.end(), {obs[i * kWidth], next_obs[i * kWidth + kWidth - 1],
                                   static_cast<float>(action[i]), reward[i], discount[i],
                                   weights[i], static_cast<float>(terminated[i])});
      }
      EXPECT_TRUE(second->update(tickets, priorities, {}).ok());
    }
    return given;
  }

  std::array<ReplayBuffer*, 2> all() const { return {first.get(), second.get()}; }

  void save(checkpoint::Checkpointer& to) const {
    std::vector<std::byte> state;
    const Status status =
        write_replay_state(all(), state, [&] { return to.write(*service, state).status(); });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Status load(checkpoint::LoadedCheckpoint& from) const {
    ByteReader in(from.manifest.payload);
    REVERIE_ASSIGN_OR_RETURN(const ReplayPlan plan, read_replay_plan(in));
    EXPECT_EQ(plan, ReplayPlan::of(first->plan()));
    REVERIE_RETURN_IF_ERROR(restore_replay(all(), in, items_of(from)));
    return checkpoint::restore(*service, from, checkpoint::OnMismatch::kRefuse);
  }

  std::shared_ptr<LocalService> service;
  std::unique_ptr<ReplayBuffer> first;
  std::unique_ptr<ReplayBuffer> second;
};

class ReplayStateTest : public ::testing::Test {
 protected:
  ReplayStateTest() : to_(checkpoint::Checkpointer::open("/kept", {.files = &files_}).value()) {
    saved_.go_on(1);
    saved_.save(*to_);
  }
  checkpoint::LoadedCheckpoint loaded() { return std::move(*to_->load().value()); }

  sim::FileSystem files_{1};
  std::unique_ptr<checkpoint::Checkpointer> to_;
  Buffers saved_;
};

TEST_F(ReplayStateTest, RestoredBuffersContinueLikeTheSavedOnes) {
  Buffers restored;
  checkpoint::LoadedCheckpoint from = loaded();
  const Status status = restored.load(from);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(restored.go_on(51), saved_.go_on(51));
  EXPECT_EQ(restored.first->counts().steps, saved_.first->counts().steps);
  EXPECT_EQ(restored.second->counts().episodes, saved_.second->counts().episodes);
}

TEST_F(ReplayStateTest, RestoredStateIsSavedAsTheSameBytes) {
  Buffers restored;
  checkpoint::LoadedCheckpoint from = loaded();
  ASSERT_TRUE(restored.load(from).ok());
  const std::vector<std::byte> before = from.manifest.payload;
  restored.save(*to_);
  EXPECT_EQ(loaded().manifest.payload, before);
}

// Its newest items refer to rows that get their actions later.
TEST_F(ReplayStateTest, ACheckpointThatDoesNotHoldTheStreamsIsRefusedWithTheRemedy) {
  saved_.go_on(51);
  expect_refused(to_->write(*saved_.service, {}).status(), StatusCode::kFailedPrecondition,
                 {"table 't'", "write_replay_state()"});
  saved_.save(*to_);
  Buffers restored;
  checkpoint::LoadedCheckpoint from = loaded();
  const Status status = restored.load(from);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(restored.go_on(101), saved_.go_on(101));
}

// The last row of a chunk counts as there when only its observation is.
TEST_F(ReplayStateTest, ARowThatGetsItsActionAfterACheckpointHasItInTheNextOne) {
  const TransitionOptions options{.capacity = 400, .env_count = 2, .n_step = 3};
  const Buffers any(options);
  const auto rows = static_cast<int>(any.first->plan().chunk_rows());
  ASSERT_GE(any.first->plan().chunk_rows() * any.first->plan().schema()->step_bytes(),
            checkpoint::StoredChunks::kMarkedBytesMin);
  for (int steps = 1; steps <= 2 * rows; ++steps) {
    const std::string path = format("/after-{}", steps);
    const auto to = checkpoint::Checkpointer::open(path, {.files = &files_}).value();
    Buffers saved(options);
    int number = 1;
    while (number <= 2 * steps) saved.add(number++);
    saved.save(*to);
    saved.add(number++);
    saved.add(number++);
    saved.save(*to);
    Buffers restored(options);
    checkpoint::LoadedCheckpoint from = std::move(*to->load().value());
    const Status status = restored.load(from);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(restored.go_on(number), saved.go_on(number)) << steps << " steps";
  }
}

TEST_F(ReplayStateTest, SeveralTablesContinueLikeTheSavedOnes) {
  const TransitionOptions options{.capacity = 60, .env_count = 2, .n_step = 3};
  const auto to = checkpoint::Checkpointer::open("/shards", {.files = &files_}).value();
  Buffers saved(options, 3);
  saved.go_on(1);
  saved.save(*to);
  Buffers restored(options, 3);
  checkpoint::LoadedCheckpoint from = std::move(*to->load().value());
  const Status status = restored.load(from);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(restored.go_on(51), saved.go_on(51));
}

TEST_F(ReplayStateTest, RowsAlreadyOnDiskAreNotWrittenAgain) {
  std::vector<std::byte> state;
  std::uint64_t first_bytes = 0;
  const auto write = [&](std::uint64_t& bytes) {
    return write_replay_state(saved_.all(), state, [&]() -> Status {
      REVERIE_ASSIGN_OR_RETURN(const checkpoint::Written written,
                               to_->write(*saved_.service, state));
      bytes = written.new_bytes;
      return {};
    });
  };
  ASSERT_TRUE(write(first_bytes).ok());
  // Only its `tables`, without 160 bytes of observation for each of the 60 items.
  EXPECT_LT(first_bytes, 60 * kWidth * sizeof(float));
}

TEST_F(ReplayStateTest, ADifferentNumberOfWritersIsRefused) {
  Buffers restored;
  checkpoint::LoadedCheckpoint from = loaded();
  ByteReader in(from.manifest.payload);
  ASSERT_TRUE(read_replay_plan(in).ok());
  ReplayBuffer* const only = restored.first.get();
  expect_refused(restore_replay({&only, 1}, in, items_of(from)), StatusCode::kInvalidArgument,
                 {"2 writers", "1"});
}

TEST_F(ReplayStateTest, FurtherBuffersBeginWithoutRows) {
  Buffers restored;
  const std::unique_ptr<ReplayBuffer> third = restored.first->beside(3);
  const std::array<ReplayBuffer*, 3> all{restored.first.get(), restored.second.get(), third.get()};
  checkpoint::LoadedCheckpoint from = loaded();
  ByteReader in(from.manifest.payload);
  const ReplayPlan plan = read_replay_plan(in).value();
  EXPECT_EQ(saved_buffer_count(in, plan.options), 2u);
  ASSERT_TRUE(restore_replay(all, in, items_of(from)).ok());
  ASSERT_TRUE(checkpoint::restore(*restored.service, from, checkpoint::OnMismatch::kRefuse).ok());
  EXPECT_EQ(third->counts().steps, 0);
  EXPECT_EQ(restored.go_on(51), saved_.go_on(51));
}

// So that no more buffers are made than the bytes can be of.
TEST_F(ReplayStateTest, ADamagedNumberOfWritersIsNone) {
  checkpoint::LoadedCheckpoint from = loaded();
  ByteReader in(from.manifest.payload);
  const ReplayPlan plan = read_replay_plan(in).value();
  const std::size_t at = from.manifest.payload.size() - in.left();
  from.manifest.payload[at + 2] = std::byte{1};
  ByteReader damaged(std::span(from.manifest.payload).subspan(at));
  EXPECT_EQ(saved_buffer_count(damaged, plan.options), 0u);
}

TEST_F(ReplayStateTest, EveryTruncatedPrefixIsRefused) {
  const checkpoint::LoadedCheckpoint from = loaded();
  const std::span<const std::byte> whole = from.manifest.payload;
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 50) {
    Buffers restored;
    ByteReader in(whole.first(size));
    Status status = read_replay_plan(in).status();
    if (status.ok()) status = restore_replay(restored.all(), in, {});
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size << ": " << status.to_string();
  }
}

TEST_F(ReplayStateTest, ItemsOfADifferentPlanAreRefused) {
  checkpoint::LoadedCheckpoint from = loaded();
  Buffers other({.capacity = 60, .env_count = 2, .n_step = 2});
  ByteReader in(from.manifest.payload);
  ASSERT_TRUE(read_replay_plan(in).ok());
  EXPECT_EQ(restore_replay(other.all(), in, items_of(from)).code(), StatusCode::kDataLoss);
}

// A buffer with goals, of one environment: what it achieved is its step number; episodes have 25.
struct Goals {
  static constexpr std::size_t kCount = 64;

  Goals() {
    const TransitionOptions options{.capacity = 90, .hindsight = HindsightOptions{}};
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Uniform", {{"seed", std::int64_t{1}}}};
    service = LocalService::open({table}, {}).value();
    buffer = ReplayBuffer::open(service, "t", options,
                                {{"achieved_goal", DType::kFloat32, {kWidth}},
                                 {"desired_goal", DType::kFloat32, {kWidth}}},
                                {{"", DType::kInt64, {}}}, 1)
                 .value();
  }

  void add(int begin, int end) const {
    for (int step = begin; step < end; ++step) {
      const std::array<std::vector<float>, 3> numbers{
          std::vector<float>(kWidth, static_cast<float>(step)),
          std::vector<float>(kWidth, static_cast<float>(step + 1)),
          std::vector<float>(kWidth, -1.0f)};
      const std::int64_t action = step;
      const float reward = 0.0f;
      const std::uint8_t over = step % 25 == 24 ? 1 : 0;
      const std::uint8_t none = 0;
      const std::array<std::int64_t, 1> shape{kWidth};
      const auto view = [&](int which) {
        return TensorView{DType::kFloat32, shape, std::as_bytes(std::span(numbers[which]))};
      };
      const std::array<TensorView, 2> obs{view(0), view(2)};
      const std::array<TensorView, 2> next{view(1), view(2)};
      const TensorView act{DType::kInt64, {}, std::as_bytes(std::span(&action, 1))};
      ASSERT_TRUE(
          buffer->add({obs, {&act, 1}, next, {&reward, 1}, {&none, 1}, {&over, 1}, {}, false})
              .ok());
    }
  }

  // What was achieved, and the goal, for each drawn transition.
  std::vector<float> draw() const {
    std::array<std::vector<float>, 4> rows;
    rows.fill(std::vector<float>(kCount * kWidth));
    std::array<std::byte*, 4> obs{};
    for (std::size_t i = 0; i < 4; ++i) obs[i] = reinterpret_cast<std::byte*>(rows[i].data());
    std::array<std::int64_t, kCount> action{};
    std::byte* const actions = reinterpret_cast<std::byte*>(action.data());
    std::array<float, kCount> reward{};
    std::array<float, kCount> discount{};
    std::array<float, kCount> weights{};
    std::array<std::uint8_t, kCount> terminated{};
    std::array<std::uint8_t, kCount> hindsight{};
    std::array<std::uint64_t, kCount> tickets{};
    ReplayBufferTargets targets;
    targets.transitions = {std::span(obs).first(2),
                           {&actions, 1},
                           std::span(obs).last(2),
                           reward.data(),
                           terminated.data(),
                           discount.data(),
                           nullptr,
                           hindsight.data()};
    targets.tickets = tickets.data();
    targets.weights = weights.data();
    EXPECT_TRUE(buffer->sample({.count = kCount}, targets, {}).ok());
    std::vector<float> given;
    for (std::size_t i = 0; i < kCount; ++i) {
      given.insert(given.end(), {rows[0][i * kWidth], rows[1][i * kWidth + kWidth - 1]});
    }
    return given;
  }

  std::shared_ptr<LocalService> service;
  std::unique_ptr<ReplayBuffer> buffer;
};

class GoalsStateTest : public ::testing::Test {
 protected:
  GoalsStateTest() : to_(checkpoint::Checkpointer::open("/kept", {.files = &files_}).value()) {
    saved_.add(0, 190);  // the last episode is not over
    saved_.draw();
    ReplayBuffer* const only = saved_.buffer.get();
    std::vector<std::byte> state;
    const Status status = write_replay_state(
        {&only, 1}, state, [&] { return to_->write(*saved_.service, state).status(); });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  checkpoint::LoadedCheckpoint loaded() { return std::move(*to_->load().value()); }
  Status restore(const Goals& to, std::span<const std::byte> state) {
    checkpoint::LoadedCheckpoint from = loaded();
    ByteReader in(state);
    REVERIE_RETURN_IF_ERROR(read_replay_plan(in).status());
    ReplayBuffer* const only = to.buffer.get();
    REVERIE_RETURN_IF_ERROR(restore_replay({&only, 1}, in, items_of(from)));
    return checkpoint::restore(*to.service, from, checkpoint::OnMismatch::kRefuse);
  }

  sim::FileSystem files_{1};
  std::unique_ptr<checkpoint::Checkpointer> to_;
  Goals saved_;
};

TEST_F(GoalsStateTest, GoalsAreDrawnAsByTheSavedBuffer) {
  const Goals restored;
  const Status status = restore(restored, loaded().manifest.payload);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (int begin = 190; begin < 290; begin += 20) {
    EXPECT_EQ(restored.draw(), saved_.draw());
    restored.add(begin, begin + 20);
    saved_.add(begin, begin + 20);
  }
}

// Damaged bytes are refused, or restored to a buffer that can be drawn from.
TEST_F(GoalsStateTest, DamagedGoalsAreRefusedOrUsable) {
  const std::vector<std::byte> whole = loaded().manifest.payload;
  const std::size_t goals_bytes = 7 * 8 + 3 * 8 + 8 * 16;  // about; the streams come before
  std::size_t refused = 0;
  for (std::size_t place = whole.size() - goals_bytes; place < whole.size(); ++place) {
    for (const int change : {1, 128}) {
      std::vector<std::byte> damaged = whole;
      damaged[place] ^= static_cast<std::byte>(change);
      const Goals restored;
      const Status status = restore(restored, damaged);
      if (status.ok()) {
        restored.draw();
        restored.add(190, 240);
        restored.draw();
        continue;
      }
      ++refused;
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << place << ": " << status.to_string();
    }
  }
  EXPECT_GT(refused, goals_bytes);  // half of the attempts
  for (std::size_t size = whole.size() - goals_bytes; size < whole.size(); ++size) {
    ASSERT_EQ(restore(Goals(), std::span(whole).first(size)).code(), StatusCode::kDataLoss) << size;
  }
}

}  // namespace
}  // namespace reverie
