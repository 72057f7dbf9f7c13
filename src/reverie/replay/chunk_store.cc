#include "reverie/replay/chunk_store.h"

namespace reverie {

// A chunk that two pieces of an item share is counted for each: item counts go up and down by
// pieces, so only the first and the last matter.

std::int64_t ChunkStore::new_bytes(const TrajectoryView& trajectory) {
  std::int64_t bytes = 0;
  const auto pieces = trajectory.pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Chunk* const chunk = pieces[i].chunk;
    bool is_repeated = false;
    for (std::size_t j = 0; j < i && !is_repeated; ++j) is_repeated = pieces[j].chunk == chunk;
    if (!is_repeated && chunk->item_count() == 0)
      bytes += static_cast<std::int64_t>(chunk->size_bytes());
  }
  return bytes;
}

void ChunkStore::add(const TrajectoryView& trajectory) {
  for (const Piece& piece : trajectory.pieces()) {
    if (piece.chunk->add_item()) piece.chunk->charge(*account_);
  }
}

bool ChunkStore::remove(const TrajectoryView& trajectory) {
  bool has_freed = false;
  for (const Piece& piece : trajectory.pieces()) {
    if (piece.chunk->remove_item()) {
      piece.chunk->discharge(*account_);
      has_freed = true;
    }
  }
  return has_freed;
}

}  // namespace reverie
