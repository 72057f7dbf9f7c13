#include "reverie/reduce/topology.h"

#include <bit>

#include "reverie/base/check.h"

namespace reverie {
namespace {

std::size_t place_of(std::size_t member, std::size_t tree, std::size_t member_count) {
  REVERIE_CHECK(member < member_count);
  return (member + member_count - tree % member_count) % member_count;
}

}  // namespace

TreePlace place_in_tree(std::size_t member, std::size_t tree, std::size_t member_count) {
  const std::size_t place = place_of(member, tree, member_count);
  const auto member_at = [&](std::size_t p) { return (p + tree % member_count) % member_count; };
  TreePlace found;
  if (place > 0) found.parent = member_at((place - 1) / 2);
  for (std::size_t child = 2 * place + 1; child <= 2 * place + 2 && child < member_count; ++child) {
    found.child[found.child_count++] = member_at(child);
  }
  return found;
}

std::size_t tree_depth(std::size_t member_count) {
  return member_count == 0 ? 0 : static_cast<std::size_t>(std::bit_width(member_count)) - 1;
}

std::size_t depth_in_tree(std::size_t member, std::size_t tree, std::size_t member_count) {
  return tree_depth(place_of(member, tree, member_count) + 1);
}

}  // namespace reverie
