// Whether rows that were read are the ones that were written.
#pragma once

#include <cstdint>
#include <span>

#include "reverie/record/trajectory.h"

namespace reverie {

// DATA_LOSS if a disk could not give these rows back (base/lost_bytes.h), or, if they are encoded
// or vary in size, any row of the chunk. What was read of them before is not to be used. Costs
// nothing as long as no bytes are lost.
Status check_readable(const Chunk& chunk, std::uint32_t first, std::uint32_t length);

// The same for all rows of these items.
Status check_readable(std::span<const TrajectoryView> items);

}  // namespace reverie
