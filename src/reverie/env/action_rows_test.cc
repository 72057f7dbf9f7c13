#include "reverie/env/action_rows.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/pool_of_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

TEST(ActionRows, EnvironmentIdsMustExistAndBeDistinct) {
  EXPECT_TRUE(check_env_ids(std::vector<std::int32_t>{2, 0, 1}, 3).ok());
  EXPECT_TRUE(check_env_ids({}, 3).ok());
  for (const std::vector<std::int32_t>& wrong : {std::vector<std::int32_t>{3}, {-1}, {1, 0, 1}}) {
    EXPECT_EQ(check_env_ids(wrong, 3).code(), StatusCode::kInvalidArgument);
  }
}

TEST(ActionRows, DiscreteActionsMustBeBelowTheirCount) {
  EXPECT_TRUE(check_discrete_actions(std::vector<std::int64_t>{0, 4, 2}, 5).ok());
  const Status above = check_discrete_actions(std::vector<std::int64_t>{0, 5}, 5);
  EXPECT_EQ(above.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(above.message().find("actions[1] is 5; actions are 0 to 4"), std::string::npos);
  EXPECT_FALSE(check_discrete_actions(std::vector<std::int64_t>{-1}, 5).ok());
}

TEST(ActionRows, RowsGoToTheirEnvironments) {
  PoolOfThreads threads(shape_of(4, 2, 1));
  const std::vector<std::int64_t> all = {10, 11, 12, 13};
  const auto bytes = [](const std::vector<std::int64_t>& actions) {
    return reinterpret_cast<const std::byte*>(actions.data());
  };
  write_action_rows(threads.pool.view(), 1, {}, bytes(all));
  const std::vector<std::int64_t> some = {20, 21};
  write_action_rows(threads.pool.view(), 1, std::vector<std::int32_t>{3, 1}, bytes(some));
  const std::vector<std::int64_t> found = {threads.action(1, 0), threads.action(1, 1),
                                           threads.action(1, 2), threads.action(1, 3)};
  EXPECT_EQ(found, (std::vector<std::int64_t>{10, 21, 12, 20}));
  EXPECT_EQ(threads.action(0, 0), 0);
}

}  // namespace
}  // namespace reverie
