#include "reverie/shards/shard_mutation.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

using Keys = std::vector<ItemKey>;

TEST(ShardMutation, AKnownKeyGoesToItsShardAndAnUnknownOneToAll) {
  ShardDirectory directory(4);
  directory.put(1, 0);
  directory.put(2, 1);
  const Keys deletes = {2, 9};
  const Keys keys = {1, 8};
  const std::vector<double> priorities = {0.5, 0.25};
  const std::vector<CorruptItem> corrupt = {{1, 0, "torn"}};
  const auto parts = divide_mutation({.table = "t",
                                      .deletes = deletes,
                                      .tickets = keys,
                                      .ticket_priorities = priorities,
                                      .corrupt = corrupt},
                                     directory, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].deletes, Keys{9});
  EXPECT_EQ(parts[1].deletes, (Keys{2, 9}));
  EXPECT_EQ(parts[0].keys, (Keys{1, 8}));
  EXPECT_EQ(parts[0].priorities, priorities);
  EXPECT_EQ(parts[1].keys, Keys{8});
  EXPECT_EQ(parts[1].priorities, std::vector<double>{0.25});
  EXPECT_EQ(parts[0].corrupt.size(), 1u);
  EXPECT_TRUE(parts[1].corrupt.empty());
  const MutateRequest request = parts[1].request("t");
  EXPECT_EQ(request.table, "t");
  EXPECT_EQ(request.deletes.size(), 2u);
  EXPECT_EQ(request.key_priorities[0], 0.25);
}

TEST(ShardMutation, CountsAreSummedAndCappedAtTheNumberRequested) {
  const ShardMutationTotal total{.update_count = 4, .delete_count = 2, .has_deletes = {true, true}};
  const std::vector<std::optional<MutateResult>> results = {MutateResult{{}, 2, 2, 0},
                                                            MutateResult{{}, 1, 2, 0}};
  const MutateResult whole = total.sum_up(results);
  EXPECT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.updated, 3u);
  EXPECT_EQ(whole.deleted, 2u);
  EXPECT_EQ(whole.missing, 1u);
}

TEST(ShardMutation, AMissingShardFailsOnlyDeletions) {
  const std::vector<std::optional<MutateResult>> results = {MutateResult{{}, 1, 0, 0},
                                                            MutateResult{unavailable("gone")}};
  ShardMutationTotal total{.update_count = 2, .delete_count = 0, .has_deletes = {false, false}};
  EXPECT_TRUE(total.sum_up(results).status.ok());
  EXPECT_EQ(total.sum_up(results).missing, 1u);
  total.has_deletes[1] = true;
  EXPECT_EQ(total.sum_up(results).status.code(), StatusCode::kUnavailable);
}

TEST(ShardMutation, ARefusalTakesPrecedenceOverAMissingShard) {
  const std::vector<std::optional<MutateResult>> results = {
      MutateResult{unavailable("gone")}, MutateResult{invalid_argument("refused")}, std::nullopt};
  const ShardMutationTotal total{
      .update_count = 1, .delete_count = 1, .has_deletes = {true, true, false}};
  EXPECT_EQ(total.sum_up(results).status.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reverie
