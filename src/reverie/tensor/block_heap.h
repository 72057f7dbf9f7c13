// BlockHeap: memory for what a store keeps: rows, encoded columns, the headers of chunks.
//
//     up to 4 KiB    slabs of 64 KiB, each of blocks of one size     [ head | b b b b . . ]
//     up to 32 KiB   slabs of 256 KiB, likewise
//     above          runs of pages (page_heap.h)
//
// The C heap is a bad place for these. Rows are freed once their chunk is encoded into a small
// copy, which stays, and the heap can neither use nor return the holes in between: 40,000 frames
// that were compressed to 2 MB held 270 MB. Here a free block is used again for the same size,
// an empty slab returns its pages, and pages return to the system; and no memory of the host
// program lies in between. Blocks of more than 128 bytes are at most an eighth larger than
// requested.
//
// Under the address sanitizer all blocks come from the C heap, so that it sees each of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reverie/base/mutex.h"
#include "reverie/tensor/buffer.h"
#include "reverie/tensor/page_heap.h"

namespace reverie {

// Thread-safe.
class BlockHeap final : public Allocator, private BufferOwner {
 public:
  // `keeps_warm`: some free memory is always kept, however little is in use.
  explicit BlockHeap(PageSource& source = PageSource::anonymous(), bool keeps_warm = true)
      : small_slabs_(kSmallSlabBytes, keeps_warm ? kWarmSlabBytesMin : 0, source),
        middle_slabs_(kMiddleSlabBytes, keeps_warm ? kWarmSlabBytesMin : 0, source),
        pages_(kPageBytes, keeps_warm ? kWarmBytesMin : 0, source) {}
  ~BlockHeap() override = default;
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  // The heap of the process: never destroyed, and usable in a forked child.
  static BlockHeap& shared();

  Result<Buffer> allocate(std::size_t size_bytes) override;

  // As allocate(), without an owner; null if there is no memory. A block is given back with the
  // size that was requested. Requires size_bytes > 0.
  void* take(std::size_t size_bytes);
  void give_back(void* block, std::size_t size_bytes) noexcept;

  // The bytes that a block of `size_bytes` takes.
  static std::size_t block_bytes(std::size_t size_bytes);

  // Memory in use, after rounding, and free memory that was not given back to the system.
  struct Use {
    std::size_t used_bytes = 0;
    std::size_t kept_bytes = 0;
  };
  Use use() const;

 private:
  static constexpr std::size_t kSmallSlabBytes = std::size_t{64} << 10;
  static constexpr std::size_t kMiddleSlabBytes = std::size_t{256} << 10;
  static constexpr std::size_t kWarmSlabBytesMin = std::size_t{2} << 20;
  static constexpr std::size_t kWarmBytesMin = std::size_t{4} << 20;
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kSmallClassCount = 48;
  static constexpr std::size_t kMiddleClassCount = 25;

  struct FreeBlock {
    FreeBlock* next;
  };
  // Stands at the start of its slab, which is aligned to its size: so it is found from a block.
  struct alignas(64) Slab {
    Slab* next = nullptr;  // in the list of its size class
    Slab* previous = nullptr;
    FreeBlock* free = nullptr;   // given back
    std::byte* fresh = nullptr;  // from here on never used
    std::uint32_t used_count = 0;
    std::uint32_t size_class = 0;
  };
  struct alignas(64) SizeClass {
    mutable Mutex mutex;
    Slab* open REVERIE_GUARDED_BY(mutex) = nullptr;  // slabs with a free block, a ring
  };

  // Requires at most kSlabBlockBytesMax.
  static std::size_t class_of(std::size_t size_bytes);
  static std::size_t class_bytes(std::size_t size_class);
  static std::size_t slab_bytes(std::size_t size_class) {
    return size_class < kSmallClassCount ? kSmallSlabBytes : kMiddleSlabBytes;
  }
  PageHeap& slabs_for(std::size_t size_class) {
    return size_class < kSmallClassCount ? small_slabs_ : middle_slabs_;
  }
  static std::byte* end_of(const Slab& slab);
  static void link(SizeClass& in, Slab& slab) REVERIE_REQUIRES(in.mutex);
  static void unlink(SizeClass& in, Slab& slab) REVERIE_REQUIRES(in.mutex);
  Slab* add_slab(std::size_t size_class, SizeClass& in) REVERIE_REQUIRES(in.mutex);

  void take_back(std::byte* data, std::size_t size_bytes) noexcept override;
  void lock_all() REVERIE_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() REVERIE_NO_THREAD_SAFETY_ANALYSIS;

  std::array<SizeClass, kSmallClassCount + kMiddleClassCount> classes_;
  PageHeap small_slabs_;
  PageHeap middle_slabs_;
  PageHeap pages_;
};

}  // namespace reverie
