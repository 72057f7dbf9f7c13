// How much a test does: enough for minutes in every run, all of it in `make test-full`.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace reverie {

// `full` when REVERIE_FULL is set, as `make test-full` does; `quick` otherwise.
inline std::int64_t scaled(std::int64_t quick, std::int64_t full) {
  return std::getenv("REVERIE_FULL") == nullptr ? quick : full;
}

}  // namespace reverie
