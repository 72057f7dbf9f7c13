// How fast this machine's memory is: the limits to compare other figures with.
#pragma once

#include <cstddef>

#include "reverie/base/status.h"

namespace reverie {

struct MemoryLimits {
  double copy_bytes_per_s = 0;  // memcpy of size_bytes; counts the bytes copied
  double load_ns = 0;           // a load whose address comes from the load before it
};

// Measures for about a tenth of a second, on one thread. INVALID_ARGUMENT for less than 4 KiB,
// RESOURCE_EXHAUSTED when there is no memory for twice `size_bytes`.
Result<MemoryLimits> measure_memory(std::size_t size_bytes);

}  // namespace reverie
