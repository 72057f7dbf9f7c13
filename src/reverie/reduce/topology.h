// Trees over the members of a group: which member sends to which in an all-reduce.
//
//     tree 0        tree 1        tree 2  ...  one for each member, which is its root
//        0             1             2
//       / \           / \           / \         member m has place (m - tree) mod P,
//      1   2         2   3         3   4        place p has the children 2p + 1 and 2p + 2
//     / \           / \           / \           .
//    3   4         4   0         0   1
//
// Upwards, each member combines what its children sent with its own array and sends it to its
// parent; downwards, the root's result is returned. A forest sends one part of the data along each
// tree: then each member is the root of one tree and a leaf in half of them, each step moves half
// as much as the step before, and no member sends more than another.
//
// Source: moolib's whitepaper (Mella et al. 2022), section 3.4. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace reverie {

// A member's position in a tree. Members are indices in [0, P).
struct TreePlace {
  std::optional<std::size_t> parent;  // none at the root
  std::size_t child_count = 0;
  std::array<std::size_t, 2> child{};

  std::span<const std::size_t> children() const& { return {child.data(), child_count}; }
  void children() const&& = delete;  // the result would dangle
};

// Requires member < member_count. `tree` is taken modulo member_count.
TreePlace place_in_tree(std::size_t member, std::size_t tree, std::size_t member_count);

// Steps from the root to the deepest leaf: floor(log2 P). An all-reduce takes twice as many steps.
std::size_t tree_depth(std::size_t member_count);
// Steps from the root to `member`.
std::size_t depth_in_tree(std::size_t member, std::size_t tree, std::size_t member_count);

}  // namespace reverie
