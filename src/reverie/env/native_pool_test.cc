#include "reverie/env/native_pool.h"

#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/env/native/classic_control.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

// Holds back steps with action 1 until it is opened, so that a test decides how long a step takes.
class Gate {
 public:
  void pass() {
    MutexLock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    while (!is_open_) changed_.wait(mutex_);
    --waiting_;
  }
  void open() {
    MutexLock lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void close() {
    MutexLock lock(mutex_);
    is_open_ = false;
  }
  // Waits until `count` steps are held back.
  void await(int count) {
    MutexLock lock(mutex_);
    while (waiting_ < count) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_open_ REVERIE_GUARDED_BY(mutex_) = false;
  int waiting_ REVERIE_GUARDED_BY(mutex_) = 0;
};

Gate& gate() {
  static Gate instance;
  return instance;
}

// Counts its steps and records which thread made them; ends after three.
struct Counter {
  struct Config {};
  using Observation = float;
  using Action = std::int64_t;
  static constexpr NativeCost kCost = NativeCost::kThreads;

  static Result<Config> read(OptionReader&) { return Config{}; }
  static NativeSpec spec(const Config&) {
    NativeSpec spec;
    spec.observation = {"", DType::kFloat32, {2}};
    spec.action_count = 2;
    spec.max_episode_steps = 5;
    return spec;
  }
  explicit Counter(const Config&) {}
  void reset(Random& random) {
    steps = 0;
    start = static_cast<float>(random.below(1'000'000));
  }
  NativeStep step(std::int64_t action, Random&) {
    if (action == 1) gate().pass();
    return {++steps == 3 ? 1.0f : 0.5f, steps == 3};
  }
  void observe(std::span<float> out) const {
    out[0] = start;
    out[1] = static_cast<float>(steps);
  }
  int steps = 0;
  float start = 0;
};

const NativeRegistry& registry() {
  static const NativeRegistry* const made = [] {
    auto* registry = new NativeRegistry;
    EXPECT_TRUE(registry->add("Counter-v0", native_factory<Counter>()).ok());
    EXPECT_TRUE(add_classic_control(*registry).ok());
    return registry;
  }();
  return *made;
}

std::unique_ptr<NativePool> open_pool(const NativePoolOptions& options,
                                      std::string_view id = "Counter-v0") {
  auto pool = NativePool::open(registry(), id, {}, options);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return std::move(pool).value();
}

Status step(NativePool& pool, std::int64_t action, std::size_t batch = 0) {
  const std::vector<std::int64_t> actions(pool.env_count(), action);
  return pool.step(batch, std::as_bytes(std::span(actions)));
}

Status take(NativePool& pool, std::size_t batch = 0) {
  return pool.wait(batch, TimePoint::max());
}

void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.to_string();
}

float count_of(const NativePool& pool, std::size_t env, std::size_t batch = 0) {
  return reinterpret_cast<const float*>(pool.arrays(batch)->rows.observation)[2 * env + 1];
}

class GatedPool : public ::testing::Test {
 protected:
  GatedPool() { gate().close(); }
  ~GatedPool() override { gate().open(); }
};

TEST(NativePool, AnEndedEpisodeRestartsAndKeepsItsFinalObservation) {
  for (const std::size_t threads : {0, 1, 3}) {
    const auto pool = open_pool({.env_count = 5, .thread_count = threads});
    const NativeRows& rows = pool->arrays(0)->rows;
    expect_ok(pool->reset(0, std::nullopt));
    expect_ok(take(*pool));
    for (int i = 1; i <= 7; ++i) {
      expect_ok(step(*pool, 0));
      expect_ok(take(*pool));
      for (std::size_t env = 0; env < 5; ++env) {
        EXPECT_EQ(count_of(*pool, env), static_cast<float>(i % 3));
        EXPECT_EQ(rows.terminated[env], i % 3 == 0);
        EXPECT_FALSE(rows.truncated[env]);
        EXPECT_EQ(rows.reward[env], i % 3 == 0 ? 1.0f : 0.5f);
        if (i < 3) continue;
        EXPECT_EQ(reinterpret_cast<const float*>(rows.final_observation)[2 * env + 1], 3.0f);
      }
    }
  }
}

TEST(NativePool, EveryEnvironmentOfEveryBatchHasItsOwnSeed) {
  const auto pool = open_pool({.env_count = 3, .batch_count = 2, .thread_count = 0, .seed = 10});
  const auto all = open_pool({.env_count = 6, .thread_count = 2, .seed = 10});
  for (const std::size_t batch : {0, 1}) expect_ok(pool->reset(batch, std::nullopt));
  expect_ok(all->reset(0, std::nullopt));
  expect_ok(take(*all));
  const auto* expected = reinterpret_cast<const float*>(all->arrays(0)->rows.observation);
  for (const std::size_t batch : {0, 1}) {
    const auto* given = reinterpret_cast<const float*>(pool->arrays(batch)->rows.observation);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(given[2 * i], expected[2 * (3 * batch + i)]);
  }
}

TEST(NativePool, TheThreadCountFollowsTheStepCostUnlessGiven) {
  EXPECT_EQ(open_pool({.env_count = 64}, "CartPole-v1")->thread_count(), 0u);
  EXPECT_GE(open_pool({.env_count = 64})->thread_count(), 1u);
  EXPECT_EQ(open_pool({.env_count = 1})->thread_count(), 0u);  // one environment needs no thread
  EXPECT_EQ(open_pool({.env_count = 64, .thread_count = 0})->thread_count(), 0u);
  EXPECT_EQ(open_pool({.env_count = 64, .thread_count = 2}, "CartPole-v1")->thread_count(), 2u);
}

TEST(NativePool, CountsOutsideTheirBoundsAreRefused) {
  const auto status = [](const NativePoolOptions& options) {
    return NativePool::open(registry(), "Counter-v0", {}, options).status();
  };
  expect_refused(status({.env_count = 0}), StatusCode::kInvalidArgument, {"num_envs is 0"});
  expect_refused(status({.env_count = NativePool::kEnvCountMax + 1}), StatusCode::kInvalidArgument,
                 {"num_envs", "1048576"});
  expect_refused(status({.batch_count = 0}), StatusCode::kInvalidArgument, {"num_batches is 0"});
  expect_refused(status({.thread_count = 100'000}), StatusCode::kInvalidArgument, {"num_threads"});
}

TEST(NativePool, WrongActionsAreRefusedAndNothingIsStepped) {
  const auto pool = open_pool({.env_count = 3, .thread_count = 0});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  for (const std::int64_t wrong :
       {std::int64_t{2}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    const std::array<std::int64_t, 3> actions = {0, wrong, 0};
    expect_refused(pool->step(0, std::as_bytes(std::span(actions))), StatusCode::kInvalidArgument,
                   {"environment 1", std::to_string(wrong), "0 to 1"});
  }
  EXPECT_EQ(count_of(*pool, 0), 0);
  expect_ok(step(*pool, 0));
}

TEST(NativePool, ContinuousActionsMustBeFinite) {
  const auto pool = open_pool({.env_count = 2}, "Pendulum-v1");
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const std::array<float, 2> actions = {0, wrong};
    expect_refused(pool->step(0, std::as_bytes(std::span(actions))), StatusCode::kInvalidArgument,
                   {"environment 1", "finite"});
  }
}

TEST(NativePool, AStepRequiresAResetAndThatTheLastResultWasTaken) {
  for (const std::size_t threads : {0, 2}) {
    const auto pool = open_pool({.env_count = 3, .batch_count = 2, .thread_count = threads});
    expect_refused(step(*pool, 0), StatusCode::kFailedPrecondition, {"reset()"});
    expect_refused(take(*pool), StatusCode::kFailedPrecondition, {"reset()"});
    expect_refused(pool->get_state(0, 0).status(), StatusCode::kFailedPrecondition, {"reset()"});
    expect_ok(pool->reset(0, std::nullopt));
    EXPECT_EQ(step(*pool, 0).code(), StatusCode::kFailedPrecondition);
    expect_ok(take(*pool));
    expect_ok(take(*pool));  // a result can be taken again
    expect_ok(step(*pool, 0));
    expect_ok(take(*pool));
    expect_refused(step(*pool, 0, 1), StatusCode::kFailedPrecondition, {"reset()"});
    expect_refused(step(*pool, 0, 2), StatusCode::kOutOfRange, {"batch is 2", "0 to 1"});
  }
}

TEST(NativePool, TheFirstStepResetsIfRequested) {
  const auto pool = open_pool({.env_count = 3, .thread_count = 0, .first_step_resets = true});
  const NativeRows& rows = pool->arrays(0)->rows;
  for (int i = 0; i < 3; ++i) {
    expect_ok(step(*pool, 0));
    expect_ok(take(*pool));
    EXPECT_EQ(count_of(*pool, 2), static_cast<float>(i));
    EXPECT_EQ(rows.reward[2], i == 0 ? 0.0f : 0.5f);
  }
}

TEST(NativePool, AResetMayReplaceAnUntakenResult) {
  const auto pool = open_pool({.env_count = 3, .thread_count = 0});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 0));
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  EXPECT_EQ(count_of(*pool, 0), 0);
}

TEST_F(GatedPool, AnotherBatchCanStepWhileOneIsInProgress) {
  const auto pool = open_pool({.env_count = 1, .batch_count = 2, .thread_count = 2});
  for (const std::size_t batch : {0, 1}) {
    expect_ok(pool->reset(batch, std::nullopt));
    expect_ok(take(*pool, batch));
  }
  expect_ok(step(*pool, 1, 0));
  gate().await(1);
  EXPECT_FALSE(pool->done(0));
  expect_ok(step(*pool, 0, 1));
  expect_ok(take(*pool, 1));  // this thread does the work, since the pool's thread is held back
  EXPECT_EQ(count_of(*pool, 0, 1), 1);
  EXPECT_FALSE(pool->done(0));
  gate().open();
  expect_ok(take(*pool, 0));
  EXPECT_EQ(count_of(*pool, 0, 0), 1);
}

TEST_F(GatedPool, ABatchInProgressAcceptsNothingElse) {
  const auto pool = open_pool({.env_count = 2, .thread_count = 1});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  gate().await(1);
  expect_refused(step(*pool, 0), StatusCode::kFailedPrecondition, {"under way"});
  expect_refused(pool->reset(0, 1, Clock::system().now()), StatusCode::kDeadlineExceeded,
                 {"of 2 environments"});
  expect_refused(pool->get_state(0, 0).status(), StatusCode::kFailedPrecondition, {"under way"});
  gate().open();
  expect_ok(take(*pool));
}

TEST_F(GatedPool, AResetWaitsForTheStepInProgress) {
  const auto pool = open_pool({.env_count = 2, .thread_count = 1});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  gate().await(1);
  std::thread opening([] { gate().open(); });
  expect_ok(pool->reset(0, std::nullopt));
  opening.join();
  expect_ok(take(*pool));
  EXPECT_EQ(count_of(*pool, 0), 0);
}

TEST_F(GatedPool, ATimedOutWaitLeavesTheStepRunning) {
  ManualClock clock;
  const auto pool = open_pool({.env_count = 2, .thread_count = 1, .clock = &clock});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  gate().await(1);
  expect_refused(pool->wait(0, clock.now()), StatusCode::kDeadlineExceeded, {"of 2 environments"});
  std::thread later([&] { clock.advance(seconds(60)); });
  const Status status = pool->wait(0, TimePoint{0} + seconds(60));
  later.join();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(pool->done(0));
  gate().open();
  expect_ok(take(*pool));
  EXPECT_EQ(count_of(*pool, 1), 1);
}

TEST_F(GatedPool, AWaitCanBeInterrupted) {
  const auto pool = open_pool({.env_count = 2, .thread_count = 1});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  EXPECT_EQ(pool->wait(0, TimePoint::max(), [] { return true; }).code(), StatusCode::kCancelled);
  gate().open();
  expect_ok(take(*pool));
}

TEST_F(GatedPool, ClosingFinishesTheStepInProgressAndRefusesTheNext) {
  const auto pool = open_pool({.env_count = 4, .thread_count = 2});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  gate().await(1);
  std::thread closing([&] { pool->close(); });
  gate().open();
  closing.join();
  pool->close();
  expect_ok(take(*pool));  // the step was finished before
  EXPECT_EQ(count_of(*pool, 3), 1);
  expect_refused(step(*pool, 0), StatusCode::kFailedPrecondition, {"Counter-v0", "closed"});
  expect_refused(pool->reset(0, 1), StatusCode::kFailedPrecondition, {"closed"});
}

TEST_F(GatedPool, APoolMayBeDestroyedWhileABatchIsInProgress) {
  auto pool = open_pool({.env_count = 4, .thread_count = 2});
  const std::shared_ptr<NativeArrays> arrays = pool->arrays(0);
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  gate().open();
  pool.reset();
  EXPECT_EQ(reinterpret_cast<const float*>(arrays->rows.observation)[1], 1);
}

TEST(NativePool, ManyThreadsCanStepManyBatches) {
  constexpr std::size_t kBatches = 4;
  const auto pool = open_pool({.env_count = 13, .batch_count = kBatches, .thread_count = 3});
  std::vector<std::thread> callers;
  for (std::size_t batch = 0; batch < kBatches; ++batch) {
    callers.emplace_back([&, batch] {
      expect_ok(pool->reset(batch, batch));
      expect_ok(take(*pool, batch));
      for (int i = 1; i <= 300; ++i) {
        expect_ok(step(*pool, 0, batch));
        expect_ok(take(*pool, batch));
        for (std::size_t env = 0; env < 13; ++env) {
          ASSERT_EQ(count_of(*pool, env, batch), static_cast<float>(i % 3));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(NativePool, UnsupportedOperationsNameTheEnvironment) {
  const auto pool = open_pool({.env_count = 1, .thread_count = 0});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_refused(pool->get_state(0, 0).status(), StatusCode::kUnimplemented, {"Counter-v0"});
  expect_refused(pool->set_state(0, 0, {}), StatusCode::kUnimplemented, {"Counter-v0"});
  expect_refused(pool->draw(0, 0).status(), StatusCode::kUnimplemented, {"Counter-v0"});
  expect_refused(pool->get_state(0, 1).status(), StatusCode::kOutOfRange, {"env_index is 1"});
}

TEST(NativePool, AForkedChildIsRefusedAndCanExit) {
  const auto pool = open_pool({.env_count = 4, .thread_count = 2});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_refused =
        step(*pool, 0).code() == StatusCode::kFailedPrecondition &&
        take(*pool).code() == StatusCode::kFailedPrecondition &&
        pool->get_state(0, 0).status().code() == StatusCode::kFailedPrecondition;
    pool->close();
    const_cast<std::unique_ptr<NativePool>&>(pool).reset();
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  expect_ok(step(*pool, 0));
  expect_ok(take(*pool));
}

TEST_F(GatedPool, AForkedChildCanExitDuringAStep) {
  auto pool = open_pool({.env_count = 4, .thread_count = 2});
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  expect_ok(step(*pool, 1));
  gate().await(1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_refused = take(*pool).code() == StatusCode::kFailedPrecondition;
    pool.reset();
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  gate().open();
  expect_ok(take(*pool));
  EXPECT_EQ(count_of(*pool, 3), 1);
}

// Three pools that differ only in when they reset an episode give the same steps.
TEST(NativePool, AutoresetModesDifferOnlyInWhenTheyReset) {
  NativePoolOptions options;
  options.env_count = 3;
  options.seed = 7;
  const auto at_once = open_pool(options);
  options.autoreset = NativeAutoreset::kNextStep;
  const auto late = open_pool(options);
  options.autoreset = NativeAutoreset::kDisabled;
  const auto never = open_pool(options);
  const auto start_of = [](const NativePool& pool, std::size_t env) {
    return reinterpret_cast<const float*>(pool.arrays(0)->rows.observation)[2 * env];
  };
  for (NativePool* pool : {at_once.get(), late.get(), never.get()}) {
    expect_ok(pool->reset(0, std::nullopt));
    expect_ok(take(*pool));
    for (int i = 0; i < 3; ++i) {
      expect_ok(step(*pool, 0));
      expect_ok(take(*pool));
      EXPECT_EQ(pool->arrays(0)->rows.terminated[1], i == 2);
    }
  }
  EXPECT_EQ(count_of(*at_once, 1), 0);  // the first observation of the next episode
  EXPECT_EQ(count_of(*late, 1), 3);     // the last observation of the episode that ended
  EXPECT_EQ(count_of(*never, 1), 3);
  const Status refused = step(*never, 0);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.to_string().find("environment 0"), std::string::npos);

  expect_ok(step(*late, 0));
  expect_ok(take(*late));
  NativeReset all{std::vector<bool>(3, true), std::vector<std::optional<std::uint64_t>>(3)};
  expect_ok(never->reset_some(0, all));
  expect_ok(take(*never));
  for (std::size_t env = 0; env < 3; ++env) {
    for (const NativePool* pool : {late.get(), never.get()}) {
      EXPECT_EQ(start_of(*pool, env), start_of(*at_once, env));
      EXPECT_EQ(count_of(*pool, env), 0);
      EXPECT_EQ(pool->arrays(0)->rows.reward[env], 0);
      EXPECT_FALSE(pool->arrays(0)->rows.terminated[env]);
    }
  }
}

TEST(NativePool, ResetSomeLeavesTheOtherEnvironmentsUnchanged) {
  NativePoolOptions options;
  options.env_count = 3;
  options.seed = 7;
  const auto pool = open_pool(options);
  NativeReset some{{true, false, true}, {std::nullopt, 5, 7}};
  EXPECT_EQ(pool->reset_some(0, some).code(), StatusCode::kFailedPrecondition);
  expect_ok(pool->reset(0, std::nullopt));
  expect_ok(take(*pool));
  const float first = reinterpret_cast<const float*>(pool->arrays(0)->rows.observation)[0];
  expect_ok(step(*pool, 0));
  expect_ok(take(*pool));
  expect_ok(pool->reset_some(0, some));
  expect_ok(take(*pool));
  EXPECT_EQ(count_of(*pool, 0), 0);
  EXPECT_EQ(count_of(*pool, 1), 1);
  EXPECT_EQ(count_of(*pool, 2), 0);
  // Environment 2 now has the seed that environment 0 had.
  EXPECT_EQ(reinterpret_cast<const float*>(pool->arrays(0)->rows.observation)[4], first);
}

}  // namespace
}  // namespace reverie
