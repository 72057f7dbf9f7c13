// What a process really holds, as the system counts it: not our own accounting.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace reverie::testing {

inline constexpr double kMiB = 1 << 20;

// Whether a sanitizer watches: what it notes beside each byte is resident too.
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

// Whether what is resident is the program's alone: an emulator keeps the code that it translated.
#if defined(REVERIE_EMULATED)
inline constexpr bool kResidentIsOurs = false;
#else
inline constexpr bool kResidentIsOurs = !kIsSanitized;
#endif

// Resident bytes of this process, those that were swapped out included. Counted page by page, so it
// is exact, and takes about a millisecond a gigabyte; 0 where the system has no such count.
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

// The same in MiB, with a sign, so that growth may be a difference.
inline double resident_mib() {
  return static_cast<double>(resident_bytes()) / kMiB;
}

}  // namespace reverie::testing
