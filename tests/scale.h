// How much work a test does: a part of it in every run, all of it in `make test-full`.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace reverie {

// `full` when REVERIE_FULL is set, as `make test-full` does; `quick` otherwise.
inline std::int64_t scaled(std::int64_t quick, std::int64_t full) {
  return std::getenv("REVERIE_FULL") == nullptr ? quick : full;
}

// The same for simulations, which are single-threaded and deterministic, so that other builds add
// little. Only release builds use `full`; builds with a sanitizer are ten times as slow.
inline std::int64_t scaled_in_release([[maybe_unused]] std::int64_t quick,
                                      [[maybe_unused]] std::int64_t full) {
#ifdef NDEBUG
  return scaled(quick, full);
#else
  return quick;
#endif
}

}  // namespace reverie
