// put_number: writes a number as our files have it, little-endian and unaligned.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace reverie::checkpoint {

// Returns where the next one goes. Requires room for it.
template <std::unsigned_integral T>
std::byte* put_number(std::byte* at, T value) {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(at, &value, sizeof(T));
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
  }
  return at + sizeof(T);
}

}  // namespace reverie::checkpoint
