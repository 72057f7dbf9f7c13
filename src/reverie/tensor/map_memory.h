// Address space from the system, past the C heap.
#pragma once

#include <cstddef>

namespace reverie {

// Under the address sanitizer all memory is the C heap's, so that it sees leaks and misuse.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsAddressSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kIsAddressSanitized = true;
#else
inline constexpr bool kIsAddressSanitized = false;
#endif
#else
inline constexpr bool kIsAddressSanitized = false;
#endif

// The sanitizer ends a program that asks for more than a machine has; we answer it.
inline constexpr std::size_t kSanitizedBytesMax = std::size_t{1} << 38;

// Takes no memory until it is touched. Null on failure. Requires a multiple of the page, and an
// alignment that is a power of two and a page at least.
std::byte* map_aligned(std::size_t size_bytes, std::size_t alignment);
// Requires what map_aligned() gave, with its size.
void unmap(std::byte* memory, std::size_t size_bytes);

}  // namespace reverie
