#include "reverie/sum_tree/slot_set.h"

#include <cstdint>
#include <set>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

TEST(SlotSet, SelectionByRankAgreesWithASortedSet) {
  for (const Slot range : {Slot{100}, Slot{10'000}, Slot{3'000'000}}) {
    SlotSet slots;
    std::set<Slot> model;
    Random random(std::uint64_t{2});
    for (int step = 0; step < 3'000; ++step) {
      const auto slot = static_cast<Slot>(random.below(range));
      ASSERT_EQ(slots.contains(slot), model.contains(slot));
      if (model.contains(slot)) {
        slots.erase(slot);
        model.erase(slot);
      } else {
        slots.insert(slot);
        model.insert(slot);
      }
      ASSERT_EQ(slots.size(), model.size());
    }
    std::size_t rank = 0;
    for (const Slot slot : model) ASSERT_EQ(slots.select(rank++), slot);
  }
}

TEST(SlotSet, ASlotBeyondTheLargestIsNotContained) {
  SlotSet slots;
  EXPECT_FALSE(slots.contains(0));
  EXPECT_FALSE(slots.contains(kNoSlot));
  slots.insert(5);
  EXPECT_FALSE(slots.contains(4'000'000));
}

}  // namespace
}  // namespace reverie
