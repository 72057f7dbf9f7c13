#include "reverie/env/pool_workers.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace reverie {
namespace {

ChildProcess::Options shell(std::string program) {
  ChildProcess::Options options;
  options.command = {"/bin/sh", "-c", std::move(program)};
  return options;
}

TEST(PoolWorkers, AWorkerThatWasNotStartedHasNoProcess) {
  PoolWorkers workers(1);
  EXPECT_EQ(workers.end_text(0), "was not started");
  EXPECT_FALSE(workers.pid(0));
  workers.end_all(Duration::zero());
}

TEST(PoolWorkers, StartingAWorkerAgainReplacesIt) {
  PoolWorkers workers(2);
  const int first = workers.start(1, shell("exec sleep 600")).value();
  EXPECT_FALSE(workers.end_text(1));
  EXPECT_EQ(workers.pid(1), first);
  const int second = workers.start(1, shell("exec sleep 600")).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(workers.pid(1), second);
  workers.end_all(Duration::zero());
  EXPECT_FALSE(workers.pid(1));
}

TEST(PoolWorkers, AnExitedWorkerReportsItsStatus) {
  PoolWorkers workers(1);
  ASSERT_TRUE(workers.start(0, shell("exit 3")).ok());
  std::optional<std::string> end;
  ASSERT_TRUE(test::eventually([&] {
    end = workers.end_text(0);
    return end.has_value();
  }));
  EXPECT_NE(end->find("status 3"), std::string::npos) << *end;
  EXPECT_FALSE(workers.pid(0));
}

TEST(PoolWorkers, AThreadCountsAsRunningUntilItIsReportedAsEnded) {
  PoolWorkers workers(1);
  workers.set_thread(0, std::nullopt);
  EXPECT_FALSE(workers.end_text(0));
  workers.set_thread(0, "raised");
  EXPECT_EQ(workers.end_text(0), "raised");
}

}  // namespace
}  // namespace reverie
