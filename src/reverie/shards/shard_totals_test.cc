#include "reverie/shards/shard_totals.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace reverie {
namespace {

using Infos = std::vector<TableInfo>;

TableInfo table(const std::string& name, std::int64_t max_size, std::int64_t size) {
  TableInfo info;
  info.options.name = name;
  info.options.max_size = max_size;
  info.current_size = size;
  return info;
}

TEST(ShardTotals, SumsOfCountsSaturate) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  TableInfo whole = table("t", kMax - 1, 3);
  whole.max_priority = 2;
  TableInfo part = table("t", 5, 4);
  part.max_priority = 7;
  add_up(whole, part);
  EXPECT_EQ(whole.options.max_size, kMax);
  EXPECT_EQ(whole.current_size, 7);
  EXPECT_EQ(whole.max_priority, 7);
}

TEST(ShardTotals, EachTableOfTheShardsThatAnsweredIsListedOnce) {
  std::vector<std::optional<Result<Infos>>> infos(3);
  EXPECT_EQ(add_up(infos), std::nullopt);
  infos[0] = Result<Infos>(Infos{table("a", 10, 1), table("b", 10, 2)});
  infos[1] = Result<Infos>(unavailable("gone"));
  infos[2] = Result<Infos>(Infos{table("b", 10, 4)});
  const auto whole = add_up(infos);
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->size(), 2u);
  EXPECT_EQ((*whole)[0].current_size, 1);
  EXPECT_EQ((*whole)[1].current_size, 6);
}

TEST(ShardTotals, AReasonIsGivenIfRequestsWaitOrIfItHoldsOnAllShards) {
  const std::string a = "shard 0";
  const std::string b = "shard 1";
  const BlockedReport::Side waits{2, 1.5, "sample of 3", "too small"};
  const BlockedReport::Side holds{0, 0, "", "too small too"};
  const BlockedReport::Side open{0, 0, "", ""};
  BlockedReport::Side whole = add_up({{&a, &waits}, {&b, &open}});
  EXPECT_EQ(whole.waiting, 2);
  EXPECT_EQ(whole.longest_request, "sample of 3");
  EXPECT_EQ(whole.reason, "shard 0: too small");
  EXPECT_EQ(add_up({{&a, &open}, {&b, &holds}}).reason, "");
  EXPECT_EQ(add_up({{&a, &waits}, {&b, &holds}}).reason,
            "shard 0: too small; shard 1: too small too");
}

TEST(ShardTotals, LookupFindsItemsAndTreatsAMissingShardAsEmpty) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const std::vector<ItemKey> keys = {1, 2, 3};
  std::vector<std::optional<LookupResult>> results(3);
  results[0] = LookupResult{{}, {none, 0.5, none}, {0, 77, 0}};
  results[1] = LookupResult{unavailable("gone"), {}, {}};
  const LookupResult found = add_up(keys, results);
  EXPECT_TRUE(found.status.ok());
  EXPECT_TRUE(std::isnan(found.priorities[0]));
  EXPECT_EQ(found.priorities[1], 0.5);
  EXPECT_EQ(found.tickets[1], 2u) << "a ticket of the whole is the key";
  results[0].reset();
  EXPECT_EQ(add_up(keys, results).status.code(), StatusCode::kUnavailable);
}

TEST(ShardTotals, ARefusalIsWorseThanAMissingShard) {
  const auto status_of = [](const Status& status) { return status; };
  std::vector<std::optional<Status>> results = {Status(), std::nullopt, unavailable("gone")};
  EXPECT_EQ(worst(results, status_of).code(), StatusCode::kUnavailable);
  results.push_back(not_found("no table"));
  EXPECT_EQ(worst(results, status_of).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace reverie
