// Tested in local_service_test.cc.
#include "reverie/replay/chunk_store.h"

#include "reverie/tensor/block_memory.h"

namespace reverie {
namespace {

// 64 for the slot, about 22 in the key map, 5 to 28 for each selector, and the episode's entry.
constexpr std::int64_t kItemBytes = 128;

}  // namespace

std::int64_t ChunkStore::item_bytes(const TrajectoryView& trajectory) {
  const std::size_t piece_count = trajectory.layout->piece_count();
  if (piece_count == 1) return kItemBytes;
  return kItemBytes + static_cast<std::int64_t>(block_bytes(piece_count * sizeof(Piece)));
}

// A chunk that two pieces of an item share is counted for each: counts change by pieces, so only
// the first and the last piece matter.

std::int64_t ChunkStore::new_bytes(const TrajectoryView& trajectory, bool all) {
  std::int64_t bytes = item_bytes(trajectory);
  const auto pieces = trajectory.pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Chunk* const chunk = pieces[i].chunk;
    bool is_repeated = false;
    for (std::size_t j = 0; j < i && !is_repeated; ++j) is_repeated = pieces[j].chunk == chunk;
    if (!is_repeated && (all || chunk->item_count() == 0))
      bytes += static_cast<std::int64_t>(chunk->size_bytes());
  }
  return bytes;
}

void ChunkStore::add(const TrajectoryView& trajectory, bool is_keyed) {
  if (is_keyed) account_->add(item_bytes(trajectory));
  for (const Piece& piece : trajectory.pieces()) {
    if (piece.chunk->add_item()) piece.chunk->charge(*account_);
  }
}

void ChunkStore::remove(const TrajectoryView& trajectory, bool is_keyed) {
  if (is_keyed) account_->add(-item_bytes(trajectory));
  for (const Piece& piece : trajectory.pieces()) {
    if (piece.chunk->remove_item()) piece.chunk->discharge(*account_);
  }
}

}  // namespace reverie
