// Slot: an item's position in its table, a dense number that the table assigns, lowest first, and
// reuses once the item is gone. Only the table knows keys; code that orders items knows only slots.
#pragma once

#include <cstdint>
#include <limits>

namespace reverie {

using Slot = std::uint32_t;

// No item: never assigned.
inline constexpr Slot kNoSlot = std::numeric_limits<Slot>::max();

}  // namespace reverie
