#include "reverie/shards/shard_directory.h"

#include <unordered_map>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

TEST(ShardDirectory, FindsOnlyWhatWasPut) {
  ShardDirectory directory(4);
  EXPECT_EQ(directory.find(0), std::nullopt);
  directory.put(0, 3);
  EXPECT_EQ(directory.find(0), 3);
  EXPECT_EQ(directory.find(1), std::nullopt);
  directory.put(0, 5);
  EXPECT_EQ(directory.find(0), 5);
  directory.forget(0);
  EXPECT_EQ(directory.find(0), std::nullopt);
}

TEST(ShardDirectory, ForgetsTheOldestAndNeverReturnsAWrongShard) {
  ShardDirectory directory(6);  // 256 entries
  std::unordered_map<std::uint64_t, ShardIndex> model;
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t key = random.below(2'000);
    const auto shard = static_cast<ShardIndex>(random.below(7));
    directory.put(key, shard);
    model[key] = shard;
    ASSERT_EQ(directory.find(key), shard);
    const std::uint64_t other = random.below(2'000);
    const auto found = directory.find(other);
    if (found) {
      ASSERT_EQ(*found, model.at(other)) << "step " << i;
    }
  }
}

TEST(ShardDirectory, RemembersNearlyAsManyKeysAsItHasRoomFor) {
  ShardDirectory directory(10);  // 4096 entries
  for (std::uint64_t key = 0; key < 2'048; ++key) directory.put(key, 1);
  std::size_t found = 0;
  for (std::uint64_t key = 0; key < 2'048; ++key) found += directory.find(key).has_value();
  EXPECT_GT(found, 2'000u) << "keys that are counted up share the sets evenly";
}

}  // namespace
}  // namespace reverie
