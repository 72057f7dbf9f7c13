// Bounds on chunks that come from another process.
#pragma once

#include <cstdint>

#include "reverie/base/status.h"
#include "reverie/record/item.h"

namespace reverie {

// The product of these two cannot overflow. The same bounds as in reverb_wire/chunk_data.cc.
inline constexpr std::uint64_t kRowBytesMax = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kRowsMax = 1 << 24;

// For a client, before it sends an item: INVALID_ARGUMENT if it uses a chunk of more than kRowsMax
// rows. With `counts_room`, all rows count for which a chunk has room.
Status check_chunk_rows(const Item& item, bool counts_room);

}  // namespace reverie
