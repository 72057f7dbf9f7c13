// memcpy that stays inline for the sizes that most rows have.
#pragma once

#include <cstddef>
#include <cstring>

namespace reverie {

// Copies `size` bytes, kSize <= size <= 2 * kSize: a head and a tail that may overlap.
template <std::size_t kSize>
inline void copy_two(std::byte* to, const std::byte* from, std::size_t size) {
  std::byte head[kSize];
  std::byte tail[kSize];
  std::memcpy(head, from, kSize);
  std::memcpy(tail, from + size - kSize, kSize);
  std::memcpy(to, head, kSize);
  std::memcpy(to + size - kSize, tail, kSize);
}

inline void copy_row(std::byte* to, const std::byte* from, std::size_t size) {
  if (size > 64) {
    std::memcpy(to, from, size);
  } else if (size >= 32) {
    copy_two<32>(to, from, size);
  } else if (size >= 16) {
    copy_two<16>(to, from, size);
  } else if (size >= 8) {
    copy_two<8>(to, from, size);
  } else if (size >= 4) {
    copy_two<4>(to, from, size);
  } else {
    for (std::size_t i = 0; i < size; ++i) to[i] = from[i];
  }
}

}  // namespace reverie
