// How many cores this process may use.
#pragma once

namespace reverie {

// The machine's, as far as the process may run on them (its affinity) and its control group gives
// it time (cpu.max); at least 1. Looked up once: what changes while the process runs is not seen.
unsigned available_cores();

// For how many cores the time of a control group is enough, rounded up, by its cpu.max, "200000
// 100000" or "max 100000"; 0 where it has no bound, or the text is malformed.
unsigned cores_of_quota(const char* cpu_max);

}  // namespace reverie
