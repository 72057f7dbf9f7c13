#include "reverie/sum_tree/least_tree.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

// The model scans a vector.
float least_by_scan(const std::vector<float>& weights) {
  float least = LeastTree::kNone;
  for (const float weight : weights) {
    if (weight > 0) least = std::min(least, weight);
  }
  return least;
}

TEST(LeastTree, AgreesWithALinearScan) {
  std::mt19937 rng(7);
  for (const std::size_t slots : {1, 16, 17, 300, 5'000, 70'000}) {  // up to five levels
    LeastTree tree;
    std::vector<float> model(slots, 0.0f);
    EXPECT_EQ(tree.least(), LeastTree::kNone);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      model[slot] = static_cast<float>(rng() % 1000);
      tree.set(static_cast<Slot>(slot), model[slot]);
    }
    for (int step = 0; step < 300; ++step) {
      // Often changes the least one, so that another becomes the least.
      const auto lowest = std::find(model.begin(), model.end(), tree.least());
      const std::size_t slot = step % 2 == 0 && lowest != model.end()
                                   ? static_cast<std::size_t>(lowest - model.begin())
                                   : rng() % slots;
      model[slot] = static_cast<float>(rng() % 1000) * (rng() % 3 == 0 ? 0.0f : 1.0f);
      tree.set(static_cast<Slot>(slot), model[slot]);
      ASSERT_EQ(tree.least(), least_by_scan(model)) << slots << " slots, step " << step;
    }
  }
}

TEST(LeastTree, AcceptsSlotsInAnyOrder) {
  LeastTree tree;
  for (const Slot slot : {5'000u, 3u, 100'000u, 17u}) tree.set(slot, static_cast<float>(slot));
  EXPECT_EQ(tree.least(), 3.0f);
  tree.set(3, 0);
  EXPECT_EQ(tree.least(), 17.0f);
  tree.set(17, 0);
  tree.set(5'000, 0);
  EXPECT_EQ(tree.least(), 100'000.0f);
  tree.set(100'000, 0);
  EXPECT_EQ(tree.least(), LeastTree::kNone);
}

}  // namespace
}  // namespace reverie
