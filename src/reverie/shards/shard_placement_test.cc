#include "reverie/shards/shard_placement.h"

#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

class ShardPlacementTest : public ::testing::Test {
 protected:
  std::vector<bool> is_up_{true, true, true};
  ShardPlacement placement_{3, [this](ShardIndex shard) { return is_up_[shard]; }};
};

TEST_F(ShardPlacementTest, EpisodesRotateOverTheShardsAndKeepTheirs) {
  EXPECT_EQ(placement_.place(100), 0);
  EXPECT_EQ(placement_.place(101), 1);
  EXPECT_EQ(placement_.place(100), 0);
  EXPECT_EQ(placement_.place(std::nullopt), 2);
  EXPECT_EQ(placement_.place(std::nullopt), 0) << "each item of no episode takes the next shard";
  EXPECT_EQ(placement_.place(101), 1);
}

TEST_F(ShardPlacementTest, AnEpisodeMovesWhenItsShardIsLostAndStaysThere) {
  EXPECT_EQ(placement_.place(100), 0);
  is_up_[0] = false;
  EXPECT_EQ(placement_.place(100), 1);
  is_up_[0] = true;
  EXPECT_EQ(placement_.place(100), 1);
  is_up_ = {false, false, false};
  EXPECT_EQ(placement_.place(100), std::nullopt);
}

TEST_F(ShardPlacementTest, LostInsertsLeaveStraysUntilTheyAreTaken) {
  ASSERT_EQ(placement_.place(std::nullopt), 0);
  ASSERT_EQ(placement_.place(std::nullopt), 1);
  EXPECT_FALSE(placement_.is_settled(0));
  EXPECT_TRUE(placement_.is_settled(2));
  const std::vector<ItemKey> keys = {7, 8};
  placement_.settle_lost(0, "t", keys);
  placement_.settle(1);
  EXPECT_TRUE(placement_.is_settled(0));
  EXPECT_EQ(placement_.stray_count(0), 2u);
  EXPECT_EQ(placement_.stray_count(1), 0u);
  const ShardPlacement::Strays strays = placement_.take_strays(0);
  EXPECT_EQ(strays, (ShardPlacement::Strays{{"t", keys}}));
  EXPECT_EQ(placement_.stray_count(0), 0u);
  placement_.put_back(0, "t", keys);
  EXPECT_EQ(placement_.take_strays(0), strays);
}

}  // namespace
}  // namespace reverie
