// The workers are threads instead of processes; they use the same shared memory.
#include "reverie/env/shared_pool.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/support/pool_of_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

// A pool and its only worker, whose turns a test takes itself.
struct OneWorker {
  explicit OneWorker(const PoolShape& shape) : layout(SharedLayout::make(shape).value()) {}

  const SharedLayout layout;
  SharedMemory memory = SharedMemory::create("test", layout.size_bytes()).value();
  const SharedView view{layout, memory.bytes()};
  SharedPool pool{view, Duration(0)};
  WorkerPort port{view, 0, Duration(0)};
};

TEST(SharedLayout, AssignsEachEnvironmentToOneWorker) {
  for (std::size_t envs = 1; envs < 40; ++envs) {
    for (std::size_t workers = 1; workers <= envs; ++workers) {
      const SharedLayout layout = SharedLayout::make(shape_of(envs, 1, workers)).value();
      std::size_t next = 0;
      for (std::size_t worker = 0; worker < workers; ++worker) {
        const EnvRange range = layout.range_of(worker);
        ASSERT_EQ(range.begin, next);
        ASSERT_GE(range.count(), 1u);
        for (; next < range.end; ++next) ASSERT_EQ(layout.worker_of(next), worker);
      }
      ASSERT_EQ(next, envs);
    }
  }
}

TEST(SharedLayout, ArraysDoNotOverlapAndLargeOnesArePageAligned) {
  PoolShape shape = shape_of(5, 3, 2);
  shape.observation = {{"picture", DType::kUInt8, {210, 160, 3}}, {"speed", DType::kFloat64, {}}};
  shape.info = {{"lives", DType::kInt32, {}}};
  const SharedLayout layout = SharedLayout::make(shape).value();
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  const auto take = [&](const SharedLayout::Column& column) {
    const std::size_t size = column.row_bytes * 5;
    EXPECT_EQ(column.offset % (size >= 4096 ? 4096 : 64), 0u);
    taken.emplace_back(column.offset, column.offset + size);
  };
  for (std::size_t i = 0; i < 3; ++i) {
    const SharedLayout::Batch& batch = layout.batch(i);
    for (const auto& column :
         {batch.actions, batch.rewards, batch.terminated, batch.truncated, batch.states,
          batch.completed, batch.info[0], batch.observation[0], batch.observation[1],
          batch.final_observation[0], batch.final_observation[1]}) {
      take(column);
    }
  }
  std::sort(taken.begin(), taken.end());
  for (std::size_t i = 1; i < taken.size(); ++i) EXPECT_GE(taken[i].first, taken[i - 1].second);
  EXPECT_LE(taken.back().second, layout.size_bytes());
}

TEST(SharedLayout, RefusesInvalidShapes) {
  const auto refused = [](const PoolShape& shape, const char* part) {
    expect_refused(SharedLayout::make(shape).status(), StatusCode::kInvalidArgument, {part});
  };
  refused(shape_of(0, 1, 1), "num_envs is 0");
  refused(shape_of(2, 0, 1), "num_batches is 0");
  refused(shape_of(2, 1, 3), "num_workers is 3");
  refused(shape_of(2, 1, 0), "num_workers is 0");
  PoolShape text = shape_of(1, 1, 1);
  text.observation = {{"name", DType::kString, {}}};
  refused(text, "name");
  PoolShape any = shape_of(1, 1, 1);
  any.observation = {{"rows", DType::kInt8, {-1}}};
  refused(any, "rows");
  PoolShape large = shape_of(1 << 20, 1 << 10, 1);
  large.observation = {{"x", DType::kFloat64, {1 << 30}}};
  refused(large, "TiB");
}

TEST(SharedPool, EachBatchHoldsTheResultsOfItsOwnSteps) {
  PoolOfThreads threads(shape_of(7, 3, 3));
  for (std::size_t batch = 0; batch < 3; ++batch) {
    ASSERT_TRUE(threads.wait(batch, threads.reset(batch)).ok());
  }
  std::vector<std::uint32_t> sequences(3);
  const auto post = [&](std::size_t batch, std::int64_t turn) {
    for (std::size_t env = 0; env < 7; ++env) {
      threads.action(batch, env) = turn + static_cast<std::int64_t>(env);
    }
    sequences[batch] = threads.pool.post(batch, PoolOp::kStep).value();
  };
  constexpr std::int64_t kTurns = 2'000;
  for (std::size_t batch = 0; batch < 3; ++batch) post(batch, 1);
  for (std::int64_t turn = 1; turn <= kTurns; ++turn) {
    for (std::size_t batch = 0; batch < 3; ++batch) {
      ASSERT_TRUE(threads.wait(batch, sequences[batch]).ok());
      const std::int64_t sum = turn * (turn + 1) / 2;
      for (std::size_t env = 0; env < 7; ++env) {
        const auto number = static_cast<std::int64_t>(env);
        ASSERT_EQ(threads.count(batch, env),
                  static_cast<std::int64_t>(1000 * batch) + number + 7 + sum + turn * number);
      }
      if (turn < kTurns) post(batch, turn + 1);
    }
  }
}

TEST(SharedPool, ASecondStepInFlightIsRefusedButAResetOvertakesIt) {
  PoolOfThreads threads(shape_of(4, 1, 2));
  ASSERT_TRUE(threads.wait(0, threads.reset(0)).ok());
  const std::uint32_t step = threads.pool.post(0, PoolOp::kStep).value();
  expect_refused(threads.pool.post(0, PoolOp::kStep).status(), StatusCode::kFailedPrecondition,
                 {"batch 0"});
  EXPECT_EQ(threads.pool.check_idle(0).code(), StatusCode::kFailedPrecondition);
  const std::uint32_t reset = threads.reset(0);
  EXPECT_EQ(threads.wait(0, step).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(threads.wait(0, reset).ok());
  EXPECT_EQ(threads.count(0, 3), 10);
  EXPECT_TRUE(threads.pool.check_idle(0).ok());
}

TEST(SharedPool, AFailedEnvironmentIsNamedUntilItIsReset) {
  PoolOfThreads threads(shape_of(6, 2, 3));
  ASSERT_TRUE(threads.wait(1, threads.reset(1)).ok());
  for (std::size_t env = 0; env < 6; ++env) threads.action(1, env) = env == 3 ? -1 : 1;
  const std::uint32_t step = threads.pool.post(1, PoolOp::kStep).value();
  ASSERT_TRUE(threads.wait(1, step).ok());
  const EnvFailure failure = threads.pool.failure(1).value();
  EXPECT_EQ(failure.env, 3u);
  EXPECT_EQ(failure.worker, 1u);
  EXPECT_EQ(failure.text, "raised");
  EXPECT_EQ(threads.count(1, 4), 1000 + 4 + 7 + 1);  // the other worker made its step
  EXPECT_EQ(threads.pool.post(1, PoolOp::kStep).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(threads.wait(1, threads.reset(1)).ok());
  EXPECT_FALSE(threads.pool.failure(1));
}

TEST(SharedPool, AFailureHasTheTextOfItsOwnBatchOrNone) {
  OneWorker one(shape_of(2, 2, 1));
  one.port.fail(0, 1, "of batch 0");
  one.port.fail(1, 0, "of batch 1");
  const EnvFailure second = one.pool.failure(1).value();
  EXPECT_EQ(second.env, 0u);
  EXPECT_EQ(second.text, "");  // only the worker's first is kept
  const EnvFailure first = one.pool.failure(0).value();
  EXPECT_EQ(first.env, 1u);
  EXPECT_EQ(first.text, "of batch 0");
}

TEST(SharedPool, AFailureThatWasNotReadBeforeAResetDoesNotHideTheNext) {
  OneWorker one(shape_of(3, 1, 1));
  one.port.fail(0, 1, "in a step");
  one.view.set_state(0, 1, EnvState::kRunning);
  EXPECT_FALSE(one.pool.failure(0));
  one.port.fail(0, 2, "in another step");
  one.port.fail(0, 2, "in the reset after it");
  const EnvFailure failure = one.pool.failure(0).value();
  EXPECT_EQ(failure.env, 2u);
  EXPECT_EQ(failure.text, "in the reset after it");
}

TEST(SharedPool, ADeadWorkerIsLateAndItsSuccessorStartsNewEpisodes) {
  PoolOfThreads threads(shape_of(4, 1, 2));
  ASSERT_TRUE(threads.wait(0, threads.reset(0)).ok());
  for (std::size_t env = 0; env < 4; ++env) threads.action(0, env) = env == 3 ? -2 : 1;
  const std::uint32_t step = threads.pool.post(0, PoolOp::kStep).value();
  const auto only_1_is_late = [&] {
    const auto at = threads.pool.position(1);
    return threads.pool.late_workers(0) == std::vector<std::size_t>{1} && at && at->second == 3;
  };
  ASSERT_TRUE(test::eventually(only_1_is_late));
  const TimePoint now = Clock::system().now();
  expect_refused(
      threads.pool.wait(0, step, now + std::chrono::milliseconds(20), [] { return true; }),
      StatusCode::kDeadlineExceeded, {"worker 1 (at environment 3 of batch 0)"});
  EXPECT_EQ(threads.pool.wait(0, step, soon(), [] { return false; }).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(threads.pool.late_workers(0), std::vector<std::size_t>{1});
  threads.replace(1);
  ASSERT_TRUE(threads.wait(0, step).ok());
  EXPECT_EQ(threads.count(0, 0), 0 + 7 + 1);
  EXPECT_EQ(threads.count(0, 2), 2 + 7);  // reset to a new episode
  EXPECT_EQ(threads.count(0, 3), 3 + 7);
}

TEST(SharedPool, ASuccessorFindsTheRowsThatADeadWorkerCompletedForTheStep) {
  OneWorker one(shape_of(3, 1, 1));
  const auto complete = [&](const PoolCommand& command) {
    std::vector<bool> found;
    for (std::size_t env = 0; env < 3; ++env) found.push_back(one.port.is_complete(command, env));
    return found;
  };
  const auto take = [&](WorkerPort& port) { return port.next(kLong).value(); };
  ASSERT_TRUE(one.pool.post(0, PoolOp::kReset).ok());
  const PoolCommand reset = take(one.port);
  for (std::size_t env = 0; env < 3; ++env) {
    one.port.complete(reset, env);
    one.view.set_state(0, env, EnvState::kRunning);
  }
  one.port.finish(reset);
  ASSERT_TRUE(one.pool.wait(0, reset.sequence, soon(), [] { return true; }).ok());

  // The worker ends before the first environment of one step, and in the second of another one.
  ASSERT_TRUE(one.pool.post(0, PoolOp::kStep).ok());
  one.pool.restart(0);
  WorkerPort second(one.view, 0, Duration(0));
  const PoolCommand again = take(second);
  EXPECT_EQ(complete(again), (std::vector<bool>{false, false, false}));
  second.begin(0, 0);
  second.complete(again, 0);
  second.begin(0, 1);
  one.pool.restart(0);
  WorkerPort third(one.view, 0, Duration(0));
  const PoolCommand once_more = take(third);
  EXPECT_EQ(once_more.sequence, again.sequence);
  EXPECT_EQ(complete(once_more), (std::vector<bool>{true, false, false}));
  third.finish(once_more);
  ASSERT_TRUE(one.pool.wait(0, again.sequence, soon(), [] { return true; }).ok());
  ASSERT_TRUE(one.pool.post(0, PoolOp::kStep).ok());
  EXPECT_EQ(complete(take(third)), (std::vector<bool>{false, false, false}));
}

TEST(SharedPool, ReturnsReadyEnvironmentsOncePerStep) {
  constexpr std::size_t kEnvs = 9;
  PoolOfThreads threads(shape_of(kEnvs, 1, 4));
  std::vector<std::int32_t> all(kEnvs);
  std::iota(all.begin(), all.end(), 0);
  ASSERT_TRUE(threads.pool.post_envs(all, PoolOp::kReset, 0).ok());
  EXPECT_EQ(threads.pool.in_flight_count(), kEnvs);
  std::vector<std::int64_t> steps(kEnvs, -1);
  std::vector<std::int32_t> ready;
  for (int turn = 0; turn < 3'000; ++turn) {
    ASSERT_TRUE(threads.pool
                    .wait_ready(
                        4, soon(), [] { return true; }, ready)
                    .ok());
    ASSERT_EQ(std::set<std::int32_t>(ready.begin(), ready.end()).size(), 4u);
    for (const std::int32_t id : ready) {
      const auto env = static_cast<std::size_t>(id);
      ASSERT_EQ(threads.count(0, env), static_cast<std::int64_t>(env) + ++steps[env]);
      threads.action(0, env) = 1;
    }
    ASSERT_TRUE(threads.pool.post_envs(ready, PoolOp::kStep).ok());
  }
  EXPECT_EQ(threads.pool.check_idle(all).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(threads.pool.drain(soon(), [] { return true; }).ok());
  EXPECT_EQ(threads.pool.in_flight_count(), 0u);
  EXPECT_TRUE(threads.pool.check_idle(all).ok());
}

// Otherwise what it adds to the ready environments would belong to the next step as well.
TEST(SharedPool, DrainWaitsUntilAWorkerIsDoneWithAnEnvironmentThatRaised) {
  OneWorker one(shape_of(1, 1, 1));
  const std::vector<std::int32_t> all = {0};
  const auto yes = [] { return true; };
  ASSERT_TRUE(one.pool.post_envs(all, PoolOp::kStep).ok());
  const PoolCommand step = one.port.next(kLong).value();
  one.port.fail(0, 0, "raised");
  EXPECT_EQ(one.pool.drain(Clock::system().now(), yes).code(), StatusCode::kDeadlineExceeded);
  one.port.finish(step);
  ASSERT_TRUE(one.pool.drain(soon(), yes).ok());
  ASSERT_TRUE(one.pool.post_envs(all, PoolOp::kReset, 0).ok());
  const PoolCommand reset = one.port.next(kLong).value();
  one.view.set_state(0, 0, EnvState::kRunning);
  one.port.finish(reset);
  std::vector<std::int32_t> ready;
  ASSERT_TRUE(one.pool.wait_ready(1, soon(), yes, ready).ok());
  EXPECT_EQ(ready, all);
  EXPECT_EQ(one.pool.in_flight_count(), 0u);
}

TEST(SharedPool, EnvironmentsOfADeadWorkerAreReturnedByItsSuccessor) {
  PoolOfThreads threads(shape_of(4, 1, 2));
  const std::vector<std::int32_t> all = {0, 1, 2, 3};
  std::vector<std::int32_t> ready;
  const auto yes = [] { return true; };
  ASSERT_TRUE(threads.pool.post_envs(all, PoolOp::kReset, 0).ok());
  ASSERT_TRUE(threads.pool.wait_ready(4, soon(), yes, ready).ok());
  for (std::size_t env = 0; env < 4; ++env) threads.action(0, env) = env == 2 ? -2 : 1;
  ASSERT_TRUE(threads.pool.post_envs(all, PoolOp::kStep).ok());
  ASSERT_TRUE(threads.pool.wait_ready(2, soon(), yes, ready).ok());
  EXPECT_EQ(std::set<std::int32_t>(ready.begin(), ready.end()), (std::set<std::int32_t>{0, 1}));
  EXPECT_EQ(threads.pool.late_workers(0), std::vector<std::size_t>{1});
  threads.replace(1);
  ASSERT_TRUE(threads.pool.wait_ready(2, soon(), yes, ready).ok());
  EXPECT_EQ(std::set<std::int32_t>(ready.begin(), ready.end()), (std::set<std::int32_t>{2, 3}));
  EXPECT_EQ(threads.count(0, 3), 3);  // reset to a new episode
}

}  // namespace
}  // namespace reverie
