// Tested in tests/integration/unreadable_items_test.cc.
#include "reverie/record/readable_rows.h"

#include <cstddef>
#include <vector>

#include "reverie/base/lost_bytes.h"

namespace reverie {

Status check_readable(const Chunk& chunk, std::uint32_t first, std::uint32_t length) {
  if (!LostBytes::any()) return {};
  std::vector<std::span<const std::byte>> places;
  chunk.add_places(first, length, places);
  for (const std::span<const std::byte> place : places) {
    if (!LostBytes::overlap(place)) continue;
    return data_loss(
        "the disk of spill_folder could not read rows of chunk {} back; give a spill_folder on "
        "another disk",
        chunk.key());
  }
  return {};
}

Status check_readable(std::span<const TrajectoryView> items) {
  if (!LostBytes::any()) return {};
  for (const TrajectoryView& item : items) {
    for (const Piece& piece : item.pieces()) {
      REVERIE_RETURN_IF_ERROR(check_readable(*piece.chunk, piece.offset, piece.length));
    }
  }
  return {};
}

}  // namespace reverie
