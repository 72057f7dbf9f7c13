// Another source of table_core.h: the memory of a TableCore's items, and the chunks that they hold.
//
// Tested in table_core_test.cc and chunk_holders_test.cc.
#include <cstdint>
#include <new>

#include "reverie/replay/table_core.h"

namespace reverie {
namespace {

// Adds `by` to a counter kept in a key map.
void add_to(KeyMap& counters, std::uint64_t key, std::uint32_t by) {
  if (std::uint32_t* const count = counters.find_value(key)) {
    *count += by;
  } else {
    counters.insert(key, by);
  }
}

// Subtracts 1; true if the counter reached 0, when it is removed.
bool take_from(KeyMap& counters, std::uint64_t key) {
  std::uint32_t* const count = counters.find_value(key);
  REVERIE_CHECK(count != nullptr);
  if (--*count > 0) return false;
  counters.erase(key);
  return true;
}

std::uint64_t id_of(const Chunk* chunk) {
  return reinterpret_cast<std::uintptr_t>(chunk);
}

}  // namespace

void TableCore::State::release(const Trajectory& trajectory) {
  ChunkHolders* const holders = chunk_store.holders();
  if (holders == nullptr) [[likely]] {
    return;
  }
  for (const Piece& piece : trajectory.pieces()) holders->remove(*piece.chunk, group);
}

bool TableCore::count_in(const Trajectory& trajectory) {
  if (options_.is_keyed || options_.max_bytes) {
    std::size_t in_episodes = 0;  // pieces
    std::size_t in_chunks = 0;
    const Chunk* charged = nullptr;  // that is not in the map yet
    try {
      for (const Piece& piece : trajectory.pieces()) {
        add_to(state_->episodes, piece.chunk->episode(), 1);
        ++in_episodes;
        if (!options_.max_bytes) continue;
        if (!state_->chunks.find(id_of(piece.chunk))) {
          piece.chunk->charge(*account_);
          charged = piece.chunk;
        }
        add_to(state_->chunks, id_of(piece.chunk), 1);
        ++in_chunks;
        charged = nullptr;
      }
    } catch (const std::bad_alloc&) {
      const auto pieces = trajectory.pieces();
      for (const Piece& piece : pieces.first(in_episodes)) {
        take_from(state_->episodes, piece.chunk->episode());
      }
      if (charged != nullptr) charged->discharge(*account_);
      for (const Piece& piece : pieces.first(in_chunks)) {
        if (take_from(state_->chunks, id_of(piece.chunk))) piece.chunk->discharge(*account_);
      }
      return false;
    }
  }
  chunks_.add(trajectory.view(), state_->slots.is_keyed());
  if (options_.max_bytes) account_->add(ChunkStore::item_bytes(trajectory.view()));
  if (hold(trajectory)) [[likely]] {
    return true;
  }
  const std::int64_t num_deleted_episodes = num_deleted_episodes_;
  uncount(trajectory);
  num_deleted_episodes_ = num_deleted_episodes;
  return false;
}

bool TableCore::hold(const Trajectory& trajectory) {
  ChunkHolders* const holders = chunks_.holders();
  if (holders == nullptr) [[likely]] {
    return true;
  }
  std::size_t held = 0;
  try {
    for (const Piece& piece : trajectory.pieces()) {
      holders->add(*piece.chunk, state_->group);
      ++held;
    }
  } catch (const std::bad_alloc&) {
    for (const Piece& piece : trajectory.pieces().first(held)) {
      holders->remove(*piece.chunk, state_->group);
    }
    return false;
  }
  return true;
}

void TableCore::count_out(const Trajectory& trajectory) {
  state_->release(trajectory);
  uncount(trajectory);
}

void TableCore::uncount(const Trajectory& trajectory) {
  chunks_.remove(trajectory.view(), state_->slots.is_keyed());
  if (options_.max_bytes) account_->add(-ChunkStore::item_bytes(trajectory.view()));
  if (!options_.is_keyed && !options_.max_bytes) return;
  for (const Piece& piece : trajectory.pieces()) {
    if (take_from(state_->episodes, piece.chunk->episode())) ++num_deleted_episodes_;
    if (options_.max_bytes && take_from(state_->chunks, id_of(piece.chunk))) {
      piece.chunk->discharge(*account_);
    }
  }
}

}  // namespace reverie
