// Copies of arrays that do not fit in caches, without filling the caches with them.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace reverie {

// Arrays from this size on do not fit in caches: what is written is not read again from there.
inline constexpr std::size_t kStreamedMin = std::size_t{16} << 20;

// Bypasses the caches. Requires 16-byte aligned `to`.
inline void stream(std::byte* to, const std::byte* from, std::size_t size_bytes) {
#if defined(__SSE2__)
  std::size_t at = 0;
  for (; at + 64 <= size_bytes; at += 64) {
    for (std::size_t i = at; i < at + 64; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  _mm_sfence();
  std::memcpy(to + at, from + at, size_bytes - at);
#else
  std::memcpy(to, from, size_bytes);
#endif
}

// Copies a piece of an array of `array_bytes`. Requires as stream().
inline void copy_piece(std::byte* to, const std::byte* from, std::size_t size_bytes,
                       std::size_t array_bytes) {
  if (array_bytes >= kStreamedMin) return stream(to, from, size_bytes);
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
}

}  // namespace reverie
