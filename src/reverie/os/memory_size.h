// How much memory this process may use, and how to give free memory back to the system.
#pragma once

#include <cstddef>

namespace reverie {

// The memory of the machine, or what the control group of the process allows if that is less.
std::size_t memory_size_bytes();

// Gives the free pages of the C heap back to the system; otherwise the heap keeps them. Call it
// after something large and rare: it takes milliseconds, more for a large heap. No effect where the
// C library cannot do it.
void give_back_free_memory();

}  // namespace reverie
