#include "reverie/tensor/shape.h"

#include <limits>

#include <gtest/gtest.h>

namespace reverie {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(element_count(Shape{}), 1);
  EXPECT_EQ(element_count(Shape{4, 84, 84}), 28224);
  EXPECT_EQ(element_count(Shape{kHuge, 0, kHuge}), 0);
}

TEST(Shape, OfUntrustedExtentsIsCountedOrRefused) {
  EXPECT_EQ(checked_element_count(Shape{}), 1u);
  EXPECT_EQ(checked_element_count(Shape{2, 3}), 6u);
  EXPECT_EQ(checked_element_count(Shape{kHuge, kHuge, 0}), 0u);
  EXPECT_EQ(checked_element_count(Shape{std::int64_t{1} << 28, std::int64_t{1} << 28}),
            std::size_t{1} << 56);
  EXPECT_FALSE(checked_element_count(Shape{std::int64_t{1} << 28, std::int64_t{1} << 28, 2}));
  EXPECT_FALSE(checked_element_count(Shape{kHuge, kHuge}));
  EXPECT_FALSE(checked_element_count(Shape{2, -1}));
  EXPECT_FALSE(checked_element_count(Shape{0, -1}));
}

TEST(Shape, IsFormattedLikeAPythonTuple) {
  EXPECT_EQ(shape_text(Shape{}), "()");
  EXPECT_EQ(shape_text(Shape{3}), "(3,)");
  EXPECT_EQ(shape_text(Shape{4, -1, 84}), "(4, ?, 84)");
}

TEST(Shape, MatchesAPatternOfTheSameRankWithEqualOrAnyExtents) {
  EXPECT_TRUE(shape_matches(Shape{}, Shape{}));
  EXPECT_TRUE(shape_matches(Shape{4, -1}, Shape{4, 7}));
  EXPECT_FALSE(shape_matches(Shape{4, -1}, Shape{5, 7}));
  EXPECT_FALSE(shape_matches(Shape{4, -1}, Shape{4}));
  EXPECT_FALSE(shape_matches(Shape{4}, Shape{-1}));
}

}  // namespace
}  // namespace reverie
