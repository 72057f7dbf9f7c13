#include "reverie/base/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "reverie/base/check.h"

namespace reverie {

#if defined(__SSE2__)

namespace {

constexpr std::size_t kStreamLineBytes = 64;

// REQUIRES: `to` lies at the start of a cache line, and `size_bytes` is a multiple of one.
void stream_lines(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  for (std::size_t i = 0; i < size_bytes; i += kStreamLineBytes) {
    __m128i parts[4];
    for (int k = 0; k < 4; ++k) {
      parts[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i) + k);
    }
    for (int k = 0; k < 4; ++k) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i) + k, parts[k]);
    }
  }
  _mm_sfence();  // these stores are not ordered by themselves
}

}  // namespace

void stream_copy(std::span<std::byte> to, std::span<const std::byte> from) {
  REVERIE_CHECK(to.size() == from.size());
  if (from.size() < kStreamCopyMin) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  const std::size_t head =
      (kStreamLineBytes - reinterpret_cast<std::uintptr_t>(to.data()) % kStreamLineBytes) %
      kStreamLineBytes;
  const std::size_t lines = (from.size() - head) / kStreamLineBytes * kStreamLineBytes;
  const std::size_t tail = from.size() - head - lines;
  std::memcpy(to.data(), from.data(), head);
  stream_lines(to.data() + head, from.data() + head, lines);
  std::memcpy(to.data() + head + lines, from.data() + head + lines, tail);
}

#else

void stream_copy(std::span<std::byte> to, std::span<const std::byte> from) {
  REVERIE_CHECK(to.size() == from.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

#endif

}  // namespace reverie
