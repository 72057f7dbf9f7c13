// SlabAllocator: blocks of one size, carved from slabs that grow, and used again.
//
//     slab 0   [ b b ]                     64 KiB at least, each as large as all before it
//     slab 1   [ b b . . ]                 in pages of 2 MiB once there are 8 MiB, if possible
//     free     b -> b                      given back, and used next
//
// For code that makes and drops many buffers of one size, as a writer does with chunks: no call to
// the heap, no gaps between blocks, and, in large pages, few TLB misses when rows all over memory
// are read. Memory returns to the system only with the end of the allocator.
//
// The first touch of a large page is slow: the system zeroes 2 MiB, and a virtual machine may have
// to find them first, which takes milliseconds. Code that takes blocks under a lock calls
// populate_ahead() outside of it, now and then.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Thread-safe. Lives until the last buffer is given back, whichever thread holds it.
class SlabAllocator final : public Allocator,
                            private BufferOwner,
                            public std::enable_shared_from_this<SlabAllocator> {
 public:
  // Requires block_bytes > 0.
  static std::shared_ptr<SlabAllocator> make(std::size_t block_bytes);
  ~SlabAllocator() override;
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  // A block, aligned to 64 bytes. Requires size_bytes <= block_bytes.
  Result<Buffer> allocate(std::size_t size_bytes) override;

  // Has the system provide the large page after the one that blocks come from, if it has not done
  // so. Blocks can be taken meanwhile. Does nothing while pages are small, and where the system has
  // no such call.
  void populate_ahead();

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  struct Slab {
    std::byte* memory = nullptr;
    std::size_t size_bytes = 0;
    std::size_t block_count = 0;
    std::size_t populated_bytes = 0;  // from its start on
    bool is_huge = false;
  };

  explicit SlabAllocator(std::size_t block_bytes) : block_bytes_(block_bytes) {}
  void take_back(std::byte* data, std::size_t size_bytes) noexcept override;
  // The next slab, of the right size and kind; without memory on failure.
  Slab next_slab() const REVERIE_REQUIRES(mutex_);
  static Slab with_memory(Slab slab);
  static void release(const Slab& slab);
  bool add_slab() REVERIE_REQUIRES(mutex_);

  const std::size_t block_bytes_;  // rounded up to whole lines
  Mutex mutex_;
  std::vector<Slab> slabs_ REVERIE_GUARDED_BY(mutex_);
  std::size_t slab_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // of all
  std::byte* next_ REVERIE_GUARDED_BY(mutex_) = nullptr;   // in the newest slab: not used yet
  std::byte* end_ REVERIE_GUARDED_BY(mutex_) = nullptr;
  Slab spare_ REVERIE_GUARDED_BY(mutex_);  // the one after the newest, once it is near
  bool is_populating_ REVERIE_GUARDED_BY(mutex_) = false;
  FreeBlock* free_ REVERIE_GUARDED_BY(mutex_) = nullptr;
  std::size_t lent_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<SlabAllocator> self_ REVERIE_GUARDED_BY(mutex_);  // while blocks are lent
};

}  // namespace reverie
