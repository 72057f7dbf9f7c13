// Where an item lies in its table: a dense number that the table hands out, lowest first, and
// reuses once the item is gone. Keys stay with the table; whatever orders items knows slots alone.
#pragma once

#include <cstdint>
#include <limits>

namespace reverie {

using Slot = std::uint32_t;

// No item: never handed out.
inline constexpr Slot kNoSlot = std::numeric_limits<Slot>::max();

}  // namespace reverie
