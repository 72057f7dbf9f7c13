// How much a test does: enough for minutes in every run, all of it in `make test-full`.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace reverie {

// `full` when REVERIE_FULL is set, as `make test-full` does; `quick` otherwise.
inline std::int64_t scaled(std::int64_t quick, std::int64_t full) {
  return std::getenv("REVERIE_FULL") == nullptr ? quick : full;
}

// The same for simulations, whose one thread runs the same in every build: all of it in the release
// build alone, which is ten times as fast as one with a sanitizer.
inline std::int64_t scaled_in_release([[maybe_unused]] std::int64_t quick,
                                      [[maybe_unused]] std::int64_t full) {
#ifdef NDEBUG
  return scaled(quick, full);
#else
  return quick;
#endif
}

}  // namespace reverie
