// How much memory there is for this process.
#pragma once

#include <cstddef>

namespace reverie {

// Of the machine, or of the control group that the process runs in when that allows less.
std::size_t memory_size_bytes();

}  // namespace reverie
