#include "reverie/native_wire/chunk_arena.h"

#include <utility>

#include "reverie/os/memory_size.h"

namespace reverie {
namespace {

// Owns one block.
class BlockOwner final : public BufferOwner {
 public:
  BlockOwner(std::shared_ptr<SharedArena> arena, std::shared_ptr<ArenaBlock> block)
      : arena_(std::move(arena)), block_(std::move(block)) {}
  void take_back(std::byte*, std::size_t) noexcept override {
    block_ = nullptr;
    arena_->give_back_unused();
    delete this;
  }

 private:
  ~BlockOwner() override = default;
  const std::shared_ptr<SharedArena> arena_;
  std::shared_ptr<ArenaBlock> block_;
};

}  // namespace

ChunkArena::ChunkArena(Allocator& rest, std::size_t size_bytes)
    : rest_(rest), size_bytes_(size_bytes) {}

Result<Buffer> ChunkArena::allocate(std::size_t size_bytes) {
  if (size_bytes < kBlockBytesMin) return rest_.allocate(size_bytes);
  std::shared_ptr<SharedArena> arena;
  {
    MutexLock lock(mutex_);
    if (!std::exchange(was_tried_, true)) {
      Result<std::shared_ptr<SharedArena>> made =
          SharedArena::make("reverie-chunks", size_bytes_ != 0 ? size_bytes_ : memory_size_bytes());
      if (made.ok()) arena_ = std::move(*made);
    }
    arena = arena_;
  }
  if (!arena) return rest_.allocate(size_bytes);
  Result<std::shared_ptr<ArenaBlock>> block = arena->allocate(size_bytes);
  if (!block.ok()) return rest_.allocate(size_bytes);
  std::byte* const data = (*block)->bytes().data();
  return Buffer(data, size_bytes, new BlockOwner(std::move(arena), std::move(*block)));
}

std::shared_ptr<SharedArena> ChunkArena::arena() const {
  MutexLock lock(mutex_);
  return arena_;
}

void ChunkArena::leave() {
  std::shared_ptr<SharedArena> left;
  MutexLock lock(mutex_);
  left.swap(arena_);
  was_tried_ = false;
  if (left) left->retire();
}

}  // namespace reverie
