#include "reverie/native_wire/chunk_bounds.h"

namespace reverie {

Status check_chunk_rows(const Item& item, bool counts_room) {
  for (const Piece& piece : item.trajectory.pieces()) {
    const Chunk& chunk = *piece.chunk;
    const std::uint32_t rows = counts_room && chunk.is_raw() ? chunk.capacity() : chunk.rows();
    if (rows <= kRowsMax) continue;
    return invalid_argument(
        "an item uses a chunk of {} rows, and a server accepts {}: give insert_rows fewer rows at "
        "once, or the writer a smaller chunk_length",
        rows, kRowsMax);
  }
  return {};
}

}  // namespace reverie
