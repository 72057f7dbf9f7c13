// How many cores this process may use.
#pragma once

namespace reverie {

// The cores of the machine that the process may run on (its affinity) and that its control group
// grants it time for (cpu.max); at least 1. Looked up once: later changes are not seen.
unsigned available_cores();

// The number of cores that a control group's cpu.max grants time for, rounded up: 2 for "200000
// 100000"; 0 for "max 100000", which has no bound, and for malformed text.
unsigned cores_of_quota(const char* cpu_max);

}  // namespace reverie
