// Copies of arrays that do not fit in caches, without filling the caches with them.
#pragma once

#include <cstddef>
#include <cstring>

#include "reverie/base/stream_copy.h"

namespace reverie {

// Arrays from this size on do not fit in caches: what is written is not read again from there.
inline constexpr std::size_t kStreamedMin = std::size_t{16} << 20;

// Copies a piece of an array of `array_bytes`.
inline void copy_piece(std::byte* to, const std::byte* from, std::size_t size_bytes,
                       std::size_t array_bytes) {
  if (array_bytes >= kStreamedMin) return stream_copy({to, size_bytes}, {from, size_bytes});
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
}

}  // namespace reverie
