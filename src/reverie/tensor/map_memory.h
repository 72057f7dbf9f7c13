// Address space from the system, not from the C heap.
#pragma once

#include <cstddef>

namespace reverie {

// Under the address sanitizer all memory comes from the C heap, so that leaks and misuse are seen.
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

// The sanitizer ends a program that requests more than a machine has; we return an error instead.
inline constexpr std::size_t kSanitizedBytesMax = std::size_t{1} << 38;

// Takes no memory until it is touched. Null on failure. Requires a multiple of the page size, and
// an alignment that is a power of two, at least a page.
std::byte* map_aligned(std::size_t size_bytes, std::size_t alignment);
// Requires what map_aligned() gave, with its size.
void unmap(std::byte* memory, std::size_t size_bytes);

}  // namespace reverie
