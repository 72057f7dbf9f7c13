// ChunkArena: memory for a server's chunks that clients on the same machine can map.
//
//     a writer's chunk --> storage in the arena --> its range, in the answers of samples
// Large chunks are stored there, so that a client gathers its batches directly from them; small
// ones, and those that do not fit, are stored in other memory and copied into answers. Memory is
// taken as it is used, up to the machine's. A reader may read a range for as long as the server
// keeps the chunk for it (adapters/peer/store_connection.h). If that ends before the reader is
// known to have stopped, the arena is abandoned: its memory is not reused for new chunks.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "reverie/base/mutex.h"
#include "reverie/os/shared_arena.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Thread-safe. Its buffers may outlive it.
class ChunkArena final : public Allocator {
 public:
  // Smaller chunks use the other memory.
  static constexpr std::size_t kBlockBytesMin = std::size_t{16} << 10;

  // `rest` allocates the other memory; it outlives this and its buffers. `size_bytes` is the size
  // of the arena; 0: the machine's memory.
  explicit ChunkArena(Allocator& rest, std::size_t size_bytes = 0);

  Result<Buffer> allocate(std::size_t size_bytes) override;
  // The arena for new chunks; null while there is none.
  std::shared_ptr<SharedArena> arena() const;
  // Abandons the present arena, since a reader may still use its chunks.
  void leave();

 private:
  Allocator& rest_;
  const std::size_t size_bytes_;
  mutable Mutex mutex_;
  bool was_tried_ REVERIE_GUARDED_BY(mutex_) = false;
  std::shared_ptr<SharedArena> arena_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
