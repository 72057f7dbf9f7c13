#include "reverie/service/sample_batch.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/items.h"

namespace reverie {
namespace {

// Items `first`, `first + 1`, ... of a shard, each with its key as value and times sampled.
SampleBatch drawn_from(std::uint16_t shard, ItemKey first, ItemKey end, std::vector<Item>& items) {
  SampleBatch batch;
  for (ItemKey key = first; key < end; ++key) {
    items.push_back(testing::make_item(key, 1.0, static_cast<float>(key)));
    SampledItem item;
    item.key = key;
    item.times_sampled = static_cast<std::int32_t>(key);
    item.trajectory = items.back().trajectory.view();
    batch.add(item);
  }
  SampleBatch of_shard;
  of_shard.take(batch, 0, batch.size(), shard);
  return of_shard;
}

TEST(SampleBatchTest, ItemsThatAreSplitOffAndAppendedKeepEverything) {
  std::vector<Item> items;
  items.reserve(5);
  SampleBatch batch = drawn_from(7, 1, 4, items);
  SampleBatch more = drawn_from(8, 4, 6, items);
  more.set_redelivered(1);
  batch.append(more);
  ASSERT_EQ(batch.size(), 5u);
  const SampleBatch rest = batch.split_off(2);
  ASSERT_EQ(batch.size(), 2u);
  ASSERT_EQ(rest.size(), 3u);
  const auto list = [](const auto& span) { return std::vector(span.begin(), span.end()); };
  EXPECT_EQ(list(batch.keys()), (std::vector<ItemKey>{1, 2}));
  EXPECT_EQ(list(batch.shards()), (std::vector<std::uint16_t>{7, 7}));
  EXPECT_EQ(list(rest.keys()), (std::vector<ItemKey>{3, 4, 5}));
  EXPECT_EQ(list(rest.shards()), (std::vector<std::uint16_t>{7, 8, 8}));
  EXPECT_EQ(list(rest.times_sampled()), (std::vector<std::int32_t>{3, 4, 5}));
  EXPECT_TRUE(rest.is_redelivered(2));
  EXPECT_FALSE(rest.is_redelivered(1));
  EXPECT_FALSE(batch.is_redelivered(1));
  items.clear();  // the rest has a share in its chunks
  for (std::size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(testing::value_of(rest.trajectories()[i]), static_cast<float>(3 + i));
  }
}

}  // namespace
}  // namespace reverie
