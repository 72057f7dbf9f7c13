// How much memory there is for this process, and giving the system back what is free.
#pragma once

#include <cstddef>

namespace reverie {

// The memory of the machine, or what the control group of the process allows if that is less.
std::size_t memory_size_bytes();

// Gives the free pages of the C heap back, which keeps them otherwise: for after something large
// and rare. Takes milliseconds, more where the heap is large. Does nothing where the C library
// cannot.
void give_back_free_memory();

}  // namespace reverie
