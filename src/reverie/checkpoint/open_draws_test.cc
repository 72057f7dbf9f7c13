#include "reverie/checkpoint/open_draws.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/items.h"

namespace reverie::checkpoint {
namespace {

using reverie::testing::item_over;

// A batch that has the first draw of each item.
SampleBatch drawn(const std::vector<Item>& items) {
  SampleBatch batch;
  batch.reserve(items.size(), /*is_brief=*/false);
  for (const Item& item : items) {
    SampledItem draw;
    draw.key = item.key;
    draw.ticket = {static_cast<std::uint32_t>(item.key), 0};
    draw.times_sampled = 1;
    draw.trajectory = item.trajectory.view();
    batch.add(draw);
  }
  return batch;
}

std::vector<ItemKey> keys_of(const OpenDraws& open) {
  const SampleBatch batch = open.batch();
  return {batch.keys().begin(), batch.keys().end()};
}

TEST(OpenDraws, KeepUnreceivedSamplesInDrawOrder) {
  const Ref<Chunk> chunk = testing::float_chunk(1, 4);
  std::vector<Item> items;
  for (const ItemKey key : {7u, 3u, 9u}) items.push_back(item_over(*chunk, key, 1.0, 0, 1));
  OpenDraws open;
  {
    const SampleBatch batch = drawn(items);
    open.add(batch, 0);
    open.add(batch, 1);  // a repetition, as in a journal, changes nothing
  }
  EXPECT_EQ(keys_of(open), (std::vector<ItemKey>{7, 3, 9}));
  items.clear();                            // open draws hold their items themselves
  open.remove({Ticket{3, 0}.packed(), 2});  // another draw of the item, which is not open
  EXPECT_EQ(open.size(), 3u);
  open.remove({Ticket{3, 0}.packed(), 1});
  EXPECT_EQ(keys_of(open), (std::vector<ItemKey>{7, 9}));
  EXPECT_EQ(open.batch().trajectories()[1].pieces()[0].chunk, chunk.get());
  open.clear();
  EXPECT_TRUE(open.empty());
}

}  // namespace
}  // namespace reverie::checkpoint
