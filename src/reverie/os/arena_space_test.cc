#include "reverie/os/arena_space.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/scale.h"

namespace reverie {
namespace {

// The model is a flag for each unit.
TEST(ArenaSpace, NeverGivesAPartTwiceAndFindsOneIfThereIsOne) {
  constexpr std::size_t kBegin = 4096;
  constexpr std::size_t kEnd = kBegin + 64 * ArenaSpace::kUnit;
  constexpr std::size_t kAhead = ArenaSpace::kUnit;
  ArenaSpace space(kBegin, kEnd);
  std::vector<bool> is_used(kEnd / ArenaSpace::kUnit, false);
  struct Part {
    std::size_t offset;
    std::size_t units;
  };
  std::vector<Part> parts;
  std::size_t used = 0;
  Random draws(std::uint64_t{3});
  for (int turn = 0; turn < scaled(20'000, 500'000); ++turn) {
    if (!parts.empty() && draws.below(2) == 0) {
      std::swap(parts[draws.below(parts.size())], parts.back());
      space.give_back(parts.back().offset);
      for (std::size_t i = 0; i < parts.back().units; ++i) {
        is_used[parts.back().offset / ArenaSpace::kUnit + i] = false;
      }
      used -= parts.back().units;
      parts.pop_back();
    } else {
      const std::size_t size = draws.below(12 * ArenaSpace::kUnit) + 1;
      const std::size_t units = (size + ArenaSpace::kUnit - 1) / ArenaSpace::kUnit;
      const std::size_t alignment = draws.below(2) == 0 ? ArenaSpace::kUnit : 256;
      bool exists = false;
      for (std::size_t at = kBegin; at + units * ArenaSpace::kUnit <= kEnd;
           at += ArenaSpace::kUnit) {
        const auto first = is_used.begin() + static_cast<std::ptrdiff_t>(at / ArenaSpace::kUnit);
        exists = exists || ((at + kAhead) % alignment == 0 &&
                            std::none_of(first, first + static_cast<std::ptrdiff_t>(units),
                                         [](bool is) { return is; }));
      }
      const std::optional<std::size_t> offset = space.take(size, kAhead, alignment);
      ASSERT_EQ(offset.has_value(), exists) << "turn " << turn;
      if (!offset) continue;
      ASSERT_EQ((*offset + kAhead) % alignment, 0u);
      ASSERT_GE(*offset, kBegin);
      ASSERT_LE(*offset + units * ArenaSpace::kUnit, kEnd);
      for (std::size_t i = 0; i < units; ++i) {
        ASSERT_FALSE(is_used[*offset / ArenaSpace::kUnit + i]) << "turn " << turn;
        is_used[*offset / ArenaSpace::kUnit + i] = true;
      }
      parts.push_back({*offset, units});
      used += units;
    }
    ASSERT_EQ(space.used_bytes(), used * ArenaSpace::kUnit);
    const auto last = std::find(is_used.rbegin(), is_used.rend(), true);
    const auto end = static_cast<std::size_t>(is_used.rend() - last) * ArenaSpace::kUnit;
    ASSERT_EQ(space.used_end(), std::max(end, kBegin));
  }
}

TEST(ArenaSpace, MergesPartsThatAreReturned) {
  ArenaSpace space(0, 1024);
  const std::size_t first = *space.take(512, 0, ArenaSpace::kUnit);
  const std::size_t second = *space.take(512, 0, ArenaSpace::kUnit);
  EXPECT_FALSE(space.take(1, 0, ArenaSpace::kUnit));
  space.give_back(first);
  EXPECT_FALSE(space.take(1024, 0, ArenaSpace::kUnit));
  space.give_back(second);
  EXPECT_TRUE(space.take(1024, 0, ArenaSpace::kUnit));
}

}  // namespace
}  // namespace reverie
