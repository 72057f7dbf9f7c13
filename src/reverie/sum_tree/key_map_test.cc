#include "reverie/sum_tree/key_map.h"

#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

TEST(KeyMap, AgreesWithAnUnorderedMap) {
  for (const std::uint64_t key_range : {std::uint64_t{64}, std::uint64_t{50'000}}) {
    KeyMap map;
    std::unordered_map<std::uint64_t, Slot> model;
    Random random(std::uint64_t{11});
    for (int step = 0; step < 300'000; ++step) {
      const std::uint64_t key = random.below(key_range);
      const auto value = static_cast<Slot>(step);
      if (random.below(5) < 3) {
        ASSERT_EQ(map.insert(key, value), model.emplace(key, value).second);
      } else {
        const auto found = model.find(key);
        const auto erased = map.erase(key);
        ASSERT_EQ(erased.has_value(), found != model.end());
        if (erased) {
          ASSERT_EQ(*erased, found->second);
          model.erase(found);
        }
      }
      ASSERT_EQ(map.size(), model.size());
    }
    for (std::uint64_t key = 0; key < key_range; ++key) {
      const auto found = map.find(key);
      ASSERT_EQ(found.has_value(), model.contains(key)) << key;
      if (found) {
        ASSERT_EQ(*found, model[key]);
      }
    }
  }
}

TEST(KeyMap, ABatchFindsTheSameAsSingleLookups) {
  KeyMap map;
  for (std::uint64_t key = 0; key < 20'000; key += 2) map.insert(key, static_cast<Slot>(key));
  std::vector<std::uint64_t> keys(20'000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  std::vector<Slot> values(keys.size());
  map.find(keys, values);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(values[i], i % 2 == 0 ? static_cast<Slot>(i) : kNoSlot);
  }
}

TEST(KeyMap, AValueCanBeChangedInPlace) {
  KeyMap map;
  map.insert(5, 1);
  *map.find_value(5) = 9;
  EXPECT_EQ(map.find(5), 9u);
  EXPECT_EQ(map.find_value(6), nullptr);
}

TEST(KeyMap, KeysThatCollideUnderThePublicMixingStillSpread) {
  // The inverse of mix64, to make keys whose mixed values only differ in the lowest 12 bits.
  const auto unmix = [](std::uint64_t x) {
    x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3u;
    x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089u;
    return (x ^ (x >> 30) ^ (x >> 60)) - 0x9e3779b97f4a7c15u;
  };
  KeyMap map;
  for (std::uint64_t low = 0; low < 4'000; ++low) {
    const std::uint64_t key = unmix(0x123456789abcd000u | low);
    ASSERT_EQ(mix64(key), 0x123456789abcd000u | low);
    ASSERT_TRUE(map.insert(key, static_cast<Slot>(low)));
  }
  for (std::uint64_t low = 0; low < 4'000; ++low) {
    ASSERT_EQ(map.find(unmix(0x123456789abcd000u | low)), static_cast<Slot>(low));
  }
  EXPECT_LT(map.memory_bytes(), 300'000u);
}

TEST(KeyMap, AnEntryCostsAtMost28BytesAtAnySize) {
  KeyMap map;
  for (std::uint64_t key = 0; key < 1'000'000; ++key) {
    map.insert(key * 0x9e3779b97f4a7c15u, static_cast<Slot>(key));
    if (key == 30'000 || key == 300'000 || key == 999'999) {
      EXPECT_LT(static_cast<double>(map.memory_bytes()) / static_cast<double>(map.size()), 28.0)
          << key;
    }
  }
}

}  // namespace
}  // namespace reverie
