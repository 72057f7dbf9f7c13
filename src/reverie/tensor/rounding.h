// Rounding of memory sizes.
//
// Tested in: slab_allocator_test.cc
#pragma once

#include <cstddef>

namespace reverie {

// A cache line.
inline constexpr std::size_t kLineBytes = 64;

// The smallest multiple of `unit` that is >= `size`.
constexpr std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace reverie
