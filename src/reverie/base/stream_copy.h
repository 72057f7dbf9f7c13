// A copy for bytes that another core reads next.
//
// Plain stores leave the bytes in the cache of the core that writes: the reader fetches each line
// from there, and the next write to the same memory must take each line back before it stores.
// Stores that bypass the cache do neither. On two cores that write and read the same memory in
// turn (128 KiB to 1 MiB), 28 GB/s were written so, and 11 to 16 by memcpy; where nothing reads the
// bytes, memcpy is faster.
#pragma once

#include <cstddef>
#include <span>

namespace reverie {

// Shorter copies are made by memcpy.
inline constexpr std::size_t kStreamCopyMin = std::size_t{64} << 10;

// Copies `from` to `to`, which must have the same size and not overlap. When it returns, other
// threads see the bytes as after memcpy.
void stream_copy(std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace reverie
