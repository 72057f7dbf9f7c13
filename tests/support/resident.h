// The memory that a process really has, as the kernel counts it, not by our own accounting.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace reverie::testing {

inline constexpr double kMiB = 1 << 20;

// Whether a sanitizer is active: its bookkeeping is resident too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#else
inline constexpr bool kIsSanitized = false;
#endif

// Whether all resident memory is the program's own: an emulator also keeps translated code.
#if defined(REVERIE_EMULATED)
inline constexpr bool kResidentIsOurs = false;
#else
inline constexpr bool kResidentIsOurs = !kIsSanitized;
#endif

// The resident bytes of this process, including swapped pages. The kernel counts page by page, so
// the figure is exact and takes about a millisecond per gigabyte; 0 if there is no such count.
inline std::size_t resident_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::size_t sum = 0;
  std::string word;
  while (file >> word) {
    std::size_t kilobytes = 0;
    if ((word == "Rss:" || word == "Swap:") && file >> kilobytes) sum += kilobytes << 10;
  }
  return sum;
}

// The same in MiB, as a signed number, so that differences can be computed.
inline double resident_mib() {
  return static_cast<double>(resident_bytes()) / kMiB;
}

}  // namespace reverie::testing
