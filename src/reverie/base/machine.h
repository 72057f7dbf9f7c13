// What this machine's memory can do: the limits beside which other figures are read.
#pragma once

#include <cstddef>

#include "reverie/base/status.h"

namespace reverie {

struct MemoryLimits {
  double copy_bytes_per_s = 0;  // memcpy, source and destination of the size; bytes copied
  double load_ns = 0;           // a load whose address the one before it gave, anywhere in the size
};

// Measures for about a tenth of a second, on one thread. INVALID_ARGUMENT for less than 4 KiB,
// RESOURCE_EXHAUSTED when there is no memory for twice `size_bytes`.
Result<MemoryLimits> measure_memory(std::size_t size_bytes);

}  // namespace reverie
