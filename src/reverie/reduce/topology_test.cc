#include "reverie/reduce/topology.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

constexpr std::size_t kMembersMax = 130;

TEST(Topology, EachTreeReachesEachMemberOnceFromItsRoot) {
  for (std::size_t count = 1; count <= kMembersMax; ++count) {
    for (std::size_t tree = 0; tree < count; ++tree) {
      std::vector<std::size_t> reached = {tree};
      for (std::size_t i = 0; i < reached.size(); ++i) {
        const TreePlace place = place_in_tree(reached[i], tree, count);
        for (const std::size_t child : place.children()) {
          ASSERT_EQ(place_in_tree(child, tree, count).parent, reached[i]);
          reached.push_back(child);
        }
      }
      ASSERT_FALSE(place_in_tree(tree, tree, count).parent.has_value());
      ASSERT_EQ(reached.size(), count);
      ASSERT_EQ(std::set<std::size_t>(reached.begin(), reached.end()).size(), count);
    }
  }
}

TEST(Topology, EachMemberIsTheRootOfOneTreeAndALeafInHalfOfThem) {
  for (std::size_t count = 2; count <= kMembersMax; ++count) {
    for (std::size_t member = 0; member < count; ++member) {
      std::size_t roots = 0;
      std::size_t leaves = 0;
      for (std::size_t tree = 0; tree < count; ++tree) {
        const TreePlace place = place_in_tree(member, tree, count);
        roots += place.parent ? 0 : 1;
        leaves += place.child_count == 0 ? 1 : 0;
      }
      ASSERT_EQ(roots, 1u);
      ASSERT_EQ(leaves, (count + 1) / 2) << "of " << count;
    }
  }
}

TEST(Topology, TreesOfDifferentRootsDiffer) {
  for (std::size_t count = 2; count <= 32; ++count) {
    std::set<std::vector<std::size_t>> parents;
    for (std::size_t tree = 0; tree < count; ++tree) {
      std::vector<std::size_t> of_tree;
      for (std::size_t member = 0; member < count; ++member) {
        of_tree.push_back(place_in_tree(member, tree, count).parent.value_or(member));
      }
      parents.insert(of_tree);
    }
    ASSERT_EQ(parents.size(), count);
  }
}

TEST(Topology, NoLeafIsDeeperThanTheLogarithm) {
  EXPECT_EQ(tree_depth(1), 0u);
  EXPECT_EQ(tree_depth(2), 1u);
  EXPECT_EQ(tree_depth(7), 2u);
  EXPECT_EQ(tree_depth(8), 3u);
  for (std::size_t count = 1; count <= kMembersMax; ++count) {
    for (std::size_t member = 0; member < count; ++member) {
      const std::size_t tree = (count * 7) / 3;
      std::size_t steps = 0;
      for (auto at = place_in_tree(member, tree, count).parent; at;
           at = place_in_tree(*at, tree, count).parent) {
        ++steps;
      }
      ASSERT_EQ(steps, depth_in_tree(member, tree, count));
      ASSERT_LE(steps, tree_depth(count));
    }
  }
}

// With one part of N / P bytes per tree, a member sends N / 2, N / 4, ... bytes in the steps if P
// is a power of two less one, so that the deepest level is full. For any P all send the same.
TEST(Topology, EveryMemberSendsTheSameInEveryStep) {
  for (const std::size_t count : {3u, 7u, 8u, 15u, 20u, 31u, 63u, 127u, 128u}) {
    const std::size_t depth = tree_depth(count);
    std::vector<std::size_t> parts_of_step;  // for member 0
    for (std::size_t step = 0; step < depth; ++step) {
      std::set<std::size_t> of_members;
      for (std::size_t member = 0; member < count; ++member) {
        std::size_t parts = 0;
        for (std::size_t tree = 0; tree < count; ++tree) {
          parts += depth_in_tree(member, tree, count) == depth - step ? 1 : 0;
        }
        of_members.insert(parts);
      }
      ASSERT_EQ(of_members.size(), 1u) << "step " << step << " of " << count;
      parts_of_step.push_back(*of_members.begin());
    }
    std::size_t total = 0;
    for (const std::size_t parts : parts_of_step) total += parts;
    EXPECT_EQ(total, count - 1);  // N (P - 1) / P bytes up, and as much down
    if ((count & (count + 1)) != 0) continue;
    for (std::size_t step = 0; step < depth; ++step) {
      EXPECT_EQ(parts_of_step[step], (count + 1) >> (step + 1)) << "of " << count;
    }
  }
}

}  // namespace
}  // namespace reverie
