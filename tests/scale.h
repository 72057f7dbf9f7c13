// How much work a test does: a part of it in every run, all of it in `make test-full`.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace reverie {

// `full` when REVERIE_FULL is set, as `make test-full` does; `quick` otherwise.
inline std::int64_t scaled(std::int64_t quick, std::int64_t full) {
  return std::getenv("REVERIE_FULL") == nullptr ? quick : full;
}

// The same for simulations, which are single-threaded and deterministic: builds with a sanitizer
// are ten times as slow and show little more, so only release builds use `full`, and debug builds
// do a quarter of `quick`.
inline std::int64_t scaled_in_release(std::int64_t quick, [[maybe_unused]] std::int64_t full) {
#ifdef NDEBUG
  return scaled(quick, full);
#else
  return (quick + 3) / 4;
#endif
}

}  // namespace reverie
