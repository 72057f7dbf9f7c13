#include "reverie/shards/shard_routes.h"

#include <unordered_map>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

TEST(ShardRoutes, FindsWhatWasPutAndNothingElse) {
  ShardRoutes routes(4);
  EXPECT_EQ(routes.find(0), std::nullopt);
  routes.put(0, 3);
  EXPECT_EQ(routes.find(0), 3);
  EXPECT_EQ(routes.find(1), std::nullopt);
  routes.put(0, 5);
  EXPECT_EQ(routes.find(0), 5);
  routes.forget(0);
  EXPECT_EQ(routes.find(0), std::nullopt);
}

TEST(ShardRoutes, ForgetsTheOldestAndNeverTellsAWrongShard) {
  ShardRoutes routes(6);  // 256 places
  std::unordered_map<std::uint64_t, ShardIndex> model;
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t key = random.below(2'000);
    const auto shard = static_cast<ShardIndex>(random.below(7));
    routes.put(key, shard);
    model[key] = shard;
    ASSERT_EQ(routes.find(key), shard);
    const std::uint64_t other = random.below(2'000);
    const auto found = routes.find(other);
    if (found) {
      ASSERT_EQ(*found, model.at(other)) << "step " << i;
    }
  }
}

TEST(ShardRoutes, RemembersNearlyAsManyAsItHasRoomFor) {
  ShardRoutes routes(10);  // 4096 places
  for (std::uint64_t key = 0; key < 2'048; ++key) routes.put(key, 1);
  std::size_t found = 0;
  for (std::uint64_t key = 0; key < 2'048; ++key) found += routes.find(key).has_value();
  EXPECT_GT(found, 2'000u) << "keys that are counted up share the sets evenly";
}

}  // namespace
}  // namespace reverie
