#include "reverie/env/watched_pool.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/pool_of_threads.h"

namespace reverie {
namespace {

// Two environments in two workers, which are known to be alive.
class WatchedPoolTest : public ::testing::Test {
 protected:
  WatchedPoolTest() {
    for (std::size_t worker = 0; worker < 2; ++worker) workers_.set_thread(worker, std::nullopt);
  }

  static WatchedPool::Waiter patient() {
    return {[] { return true; }};
  }
  WatchedPool::WaitResult step(const std::vector<std::int64_t>& actions,
                               const WatchedPool::Waiter& waiter) {
    for (std::size_t env = 0; env < actions.size(); ++env) threads_.action(0, env) = actions[env];
    const std::uint32_t sequence = threads_.pool.post(0, PoolOp::kStep).value();
    return whole_.wait(0, sequence, soon(), waiter, ready_);
  }
  void reset() {
    const std::uint32_t sequence = threads_.reset(0);
    const auto waited = whole_.wait(0, sequence, soon(), patient(), ready_);
    ASSERT_TRUE(waited.status.ok()) << waited.status.to_string();
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  PoolOfThreads threads_{shape_of(2, 1, 2)};
  PoolWorkers workers_{2};
  WatchedPool whole_{threads_.pool, workers_, 0};
  WatchedPool first_ready_{threads_.pool, workers_, 1};
  std::vector<std::int32_t> ready_;
  int replaced_ = 0;
};

TEST_F(WatchedPoolTest, ACompletedStepIsNotAFailure) {
  reset();
  const auto waited = step({3, 4}, patient());
  EXPECT_TRUE(waited.status.ok());
  EXPECT_FALSE(waited.failure);
  EXPECT_EQ(threads_.count(0, 1), 1 + 7 + 4);
}

TEST_F(WatchedPoolTest, AFailedEnvironmentIsNamedWithItsError) {
  reset();
  const auto waited = step({1, -1}, patient());
  ASSERT_TRUE(waited.failure);
  EXPECT_EQ(waited.failure->worker, 1u);
  EXPECT_EQ(waited.failure->env, 1u);
  EXPECT_EQ(waited.failure->traceback, "raised");
  EXPECT_TRUE(contains(waited.failure->text, "environment 1 of batch 0, in worker 1, raised"))
      << waited.failure->text;
}

TEST_F(WatchedPoolTest, ErrorsOfThreadsNameNoRestart) {
  reset();
  const auto raised = step({1, -1}, patient());
  ASSERT_TRUE(raised.failure);
  EXPECT_TRUE(contains(raised.failure->text, "raised; pool.reset() makes it again"))
      << raised.failure->text;
  reset();
  WatchedPool::Waiter waiter = patient();
  waiter.may_go_on = [this] {
    if (threads_.pool.position(0)) workers_.set_thread(0, "has ended");
    return true;
  };
  const auto ended = step({-2, 1}, waiter);
  ASSERT_TRUE(ended.failure);
  EXPECT_TRUE(contains(ended.failure->text, "; make another pool")) << ended.failure->text;
  EXPECT_FALSE(contains(raised.failure->text + ended.failure->text, "restart"));
}

TEST_F(WatchedPoolTest, ADeadWorkerIsDetectedAndNamed) {
  reset();
  WatchedPool::Waiter waiter;
  waiter.may_go_on = [this] {
    if (threads_.pool.position(0)) workers_.set_thread(0, "was killed by signal 9");
    return true;
  };
  const auto waited = step({-2, 1}, waiter);
  ASSERT_TRUE(waited.failure);
  EXPECT_EQ(waited.failure->worker, 0u);
  EXPECT_TRUE(contains(waited.failure->text, "worker 0 was killed by signal 9"))
      << waited.failure->text;
  EXPECT_TRUE(contains(waited.failure->text, "environment 0 of batch 0")) << waited.failure->text;
}

TEST_F(WatchedPoolTest, AWaitContinuesIfAWorkerIsReplaced) {
  reset();
  WatchedPool::Waiter waiter;
  waiter.may_go_on = [this] {
    if (replaced_ == 0) workers_.set_thread(0, "ended");
    return true;
  };
  waiter.replaced = [this](std::size_t worker) {
    ++replaced_;
    threads_.replace(worker);
    workers_.set_thread(worker, std::nullopt);
    return true;
  };
  const auto waited = step({-2, 1}, waiter);
  EXPECT_TRUE(waited.status.ok()) << waited.status.to_string();
  EXPECT_FALSE(waited.failure);
  EXPECT_EQ(replaced_, 1);
}

TEST_F(WatchedPoolTest, AnInterruptedWaitIsCancelledWithoutReplacingWorkers) {
  reset();
  WatchedPool::Waiter waiter;
  waiter.may_go_on = [] { return false; };
  waiter.replaced = [this](std::size_t) { return ++replaced_ > 0; };
  const auto waited = step({-2, -2}, waiter);
  EXPECT_EQ(waited.status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(waited.failure);
  EXPECT_EQ(replaced_, 0);
}

TEST_F(WatchedPoolTest, WaitingForMoreThanAreInFlightIsRefused) {
  const auto waited = first_ready_.wait(0, 0, soon(), patient(), ready_);
  EXPECT_EQ(waited.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(waited.status.message(), "0 environments are in flight"));
}

TEST_F(WatchedPoolTest, TheFirstReadyEnvironmentIsReturned) {
  const std::vector<std::int32_t> both = {0, 1};
  ASSERT_TRUE(threads_.pool.post_envs(both, PoolOp::kReset).ok());
  for (int i = 0; i < 2; ++i) {
    std::vector<std::int32_t> ready;
    const auto waited = first_ready_.wait(0, 0, soon(), patient(), ready);
    ASSERT_TRUE(waited.status.ok()) << waited.status.to_string();
    EXPECT_EQ(ready.size(), 1u);
  }
  EXPECT_TRUE(first_ready_.drain(kLong, patient()).status.ok());
}

}  // namespace
}  // namespace reverie
