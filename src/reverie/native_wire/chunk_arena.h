// ChunkArena: memory for a server's chunks that clients on the same machine can map.
//
//     a writer's chunk --> storage in the arena --> its range, in the answers of samples
//
// Large chunks lie there, so that a client gathers its batches straight from them; what is small,
// or finds no room, lies in other memory and is copied into answers. Memory is taken as it is
// used, up to the machine's.
//
// A reader may go on reading where it was told to for as long as the server keeps the chunk for it
// (adapters/peer/store_connection.h). Where that ends before the reader is known to have ended, the
// arena is left: no new chunk is put where one of the old lay.
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
  // What is smaller goes to the other memory.
  static constexpr std::size_t kBlockBytesMin = std::size_t{16} << 10;

  // `rest` outlives it and its buffers. An arena of `size_bytes`; 0: of as much as the machine has.
  explicit ChunkArena(Allocator& rest, std::size_t size_bytes = 0);

  Result<Buffer> allocate(std::size_t size_bytes) override;
  // The arena that new chunks are put in; null while there is none.
  std::shared_ptr<SharedArena> arena() const;
  // No more is put where chunks lie now: for a reader that may still be there.
  void leave();

 private:
  Allocator& rest_;
  const std::size_t size_bytes_;
  mutable Mutex mutex_;
  bool is_tried_ REVERIE_GUARDED_BY(mutex_) = false;
  std::shared_ptr<SharedArena> arena_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
