#include "reverie/tensor/block_heap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include <pthread.h>

#include "reverie/tensor/block_memory.h"
#include "reverie/tensor/map_memory.h"
#include "reverie/tensor/rounding.h"

namespace reverie {
namespace {

constexpr std::size_t kSmallBytesMax = 4096;
// How many blocks a slab of 256 KiB has, by size class: each size is at most an eighth larger than
// the previous one.
constexpr std::array<std::size_t, 25> kMiddleCounts = {63, 60, 56, 52, 48, 44, 40, 36, 32,
                                                       30, 28, 26, 24, 22, 20, 18, 16, 15,
                                                       14, 13, 12, 11, 10, 9,  8};
// Sizes increase by 16 bytes up to 128, then in eight steps from one power of two to the next.
constexpr std::size_t kStepBytes = 16;
constexpr std::size_t kSteps = 8;

// The sizes of blocks in middle slabs, which begin with a head of one cache line: whole lines.
constexpr auto kMiddleSizes = [] {
  std::array<std::size_t, kMiddleCounts.size()> sizes{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = ((std::size_t{256} << 10) - kLineBytes) / kMiddleCounts[i] / kLineBytes * kLineBytes;
  }
  return sizes;
}();
constexpr std::size_t kSlabBlockBytesMax = kMiddleSizes.back();

}  // namespace

std::size_t BlockHeap::class_of(std::size_t size_bytes) {
  if (size_bytes <= kStepBytes * kSteps) return (size_bytes - 1) / kStepBytes;
  if (size_bytes > kSmallBytesMax) {
    const auto size = std::lower_bound(kMiddleSizes.begin(), kMiddleSizes.end(), size_bytes);
    return kSmallClassCount + static_cast<std::size_t>(size - kMiddleSizes.begin());
  }
  const auto doubling = static_cast<std::size_t>(std::bit_width(size_bytes - 1)) - 1;  // >= 7
  return (doubling - 6) * kSteps + ((size_bytes - 1) >> (doubling - 3)) % kSteps;
}

std::size_t BlockHeap::class_bytes(std::size_t size_class) {
  if (size_class < kSteps) return (size_class + 1) * kStepBytes;
  if (size_class >= kSmallClassCount) return kMiddleSizes[size_class - kSmallClassCount];
  const std::size_t doubling = size_class / kSteps + 6;
  return (kSteps + size_class % kSteps + 1) << (doubling - 3);
}

std::size_t BlockHeap::block_bytes(std::size_t size_bytes) {
  if (size_bytes == 0) return 0;
  return size_bytes <= kSlabBlockBytesMax ? class_bytes(class_of(size_bytes))
                                          : round_up(size_bytes, kPageBytes);
}

BlockHeap& BlockHeap::shared() {
  // Never destroyed: blocks may outlive static destruction.
  static BlockHeap* const heap = [] {
    static BlockHeap* made = nullptr;
    made = new BlockHeap;
    // A child that was forked while another thread held a lock would wait for it forever.
    pthread_atfork([] { made->lock_all(); }, [] { made->unlock_all(); },
                   [] { made->unlock_all(); });
    return made;
  }();
  return *heap;
}

void BlockHeap::lock_all() {
  for (SizeClass& size_class : classes_) size_class.mutex.lock();
  small_slabs_.lock();
  middle_slabs_.lock();
  pages_.lock();
}

void BlockHeap::unlock_all() {
  pages_.unlock();
  middle_slabs_.unlock();
  small_slabs_.unlock();
  for (SizeClass& size_class : classes_) size_class.mutex.unlock();
}

// --- Slabs -------------------------------------------------------------------------------------

std::byte* BlockHeap::end_of(const Slab& slab) {
  const std::size_t size = class_bytes(slab.size_class);
  return reinterpret_cast<std::byte*>(const_cast<Slab*>(&slab)) + sizeof(Slab) +
         (slab_bytes(slab.size_class) - sizeof(Slab)) / size * size;
}

// At the end of the list: older slabs are filled first, so that few are half full.
void BlockHeap::link(SizeClass& in, Slab& slab) {
  if (in.open == nullptr) {
    in.open = slab.next = slab.previous = &slab;
    return;
  }
  slab.next = in.open;
  slab.previous = in.open->previous;
  slab.previous->next = &slab;
  in.open->previous = &slab;
}

void BlockHeap::unlink(SizeClass& in, Slab& slab) {
  if (in.open == &slab) in.open = slab.next == &slab ? nullptr : slab.next;
  slab.previous->next = slab.next;
  slab.next->previous = slab.previous;
}

BlockHeap::Slab* BlockHeap::add_slab(std::size_t size_class, SizeClass& in) {
  std::byte* const memory = slabs_for(size_class).take(slab_bytes(size_class));
  if (memory == nullptr) return nullptr;
  auto* const slab = new (memory) Slab;
  slab->size_class = static_cast<std::uint32_t>(size_class);
  slab->fresh = memory + sizeof(Slab);
  link(in, *slab);
  return slab;
}

// --- Blocks ------------------------------------------------------------------------------------

void* BlockHeap::take(std::size_t size_bytes) {
  if constexpr (kIsAddressSanitized) {
    if (size_bytes < kSmallBytesMax) return std::malloc(size_bytes);
    if (size_bytes > kSanitizedBytesMax) return nullptr;
    return std::aligned_alloc(kLineBytes, round_up(size_bytes, kLineBytes));
  }
  if (size_bytes > kSlabBlockBytesMax) {
    if (size_bytes > ~std::size_t{0} - kPageBytes) return nullptr;
    return pages_.take(round_up(size_bytes, kPageBytes));
  }
  const std::size_t size_class = class_of(size_bytes);
  SizeClass& in = classes_[size_class];
  const MutexLock lock(in.mutex);
  Slab* slab = in.open;
  if (slab == nullptr && (slab = add_slab(size_class, in)) == nullptr) return nullptr;
  void* block = slab->free;
  if (slab->free != nullptr) {
    slab->free = slab->free->next;
  } else {
    block = slab->fresh;
    slab->fresh += class_bytes(size_class);
  }
  ++slab->used_count;
  if (slab->free == nullptr && slab->fresh == end_of(*slab)) unlink(in, *slab);
  return block;
}

void BlockHeap::give_back(void* block, std::size_t size_bytes) noexcept {
  if constexpr (kIsAddressSanitized) return std::free(block);
  if (size_bytes > kSlabBlockBytesMax) {
    return pages_.give_back(static_cast<std::byte*>(block), round_up(size_bytes, kPageBytes));
  }
  const std::size_t size_class = class_of(size_bytes);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a slab begins at a multiple of its size
  auto* const slab = reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(block) &
                                             ~std::uintptr_t{slab_bytes(size_class) - 1});
  REVERIE_CHECK(slab->size_class == size_class);
  SizeClass& in = classes_[size_class];
  {
    const MutexLock lock(in.mutex);
    const bool was_full = slab->free == nullptr && slab->fresh == end_of(*slab);
    slab->free = new (block) FreeBlock{slab->free};
    if (was_full) link(in, *slab);
    if (--slab->used_count > 0) return;
    // The last small slab with room stays, so that a block that is taken and given back repeatedly
    // moves no slab.
    if (slab->next == slab && size_class < kSmallClassCount) {
      slab->free = nullptr;
      slab->fresh = reinterpret_cast<std::byte*>(slab) + sizeof(Slab);
      return;
    }
    unlink(in, *slab);
  }
  slabs_for(size_class).give_back(reinterpret_cast<std::byte*>(slab), slab_bytes(size_class));
}

Result<Buffer> BlockHeap::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return Buffer();
  void* const block = take(size_bytes);
  if (block == nullptr) {
    return resource_exhausted(
        "{} bytes of memory could not be allocated; store fewer or smaller items", size_bytes);
  }
  return Buffer(static_cast<std::byte*>(block), size_bytes, this);
}

void BlockHeap::take_back(std::byte* data, std::size_t size_bytes) noexcept {
  give_back(data, size_bytes);
}

BlockHeap::Use BlockHeap::use() const {
  Use sum;
  for (const PageHeap* heap : {&small_slabs_, &middle_slabs_, &pages_}) {
    const PageHeap::Use use = heap->use();
    sum.used_bytes += use.used_bytes;
    sum.kept_bytes += use.warm_bytes;
  }
  return sum;
}

// --- The heap of the process
// ----------------------------------------------------------------------------

void* take_block(std::size_t size_bytes) {
  return BlockHeap::shared().take(size_bytes);
}

void give_back_block(void* block, std::size_t size_bytes) noexcept {
  BlockHeap::shared().give_back(block, size_bytes);
}

std::size_t block_bytes(std::size_t size_bytes) {
  return BlockHeap::block_bytes(size_bytes);
}

}  // namespace reverie
