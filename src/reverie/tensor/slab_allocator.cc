#include "reverie/tensor/slab_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace reverie {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLeastSlabBytes = std::size_t{64} << 10;
constexpr std::size_t kMostSlabBytes = std::size_t{32} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// A large page is there as a whole once a byte of it is written: of less than this it would be too
// large a part.
constexpr std::size_t kHugeFromBytes = std::size_t{8} << 20;

std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

std::shared_ptr<SlabAllocator> SlabAllocator::make(std::size_t block_bytes) {
  REVERIE_CHECK(block_bytes > 0);
  return std::shared_ptr<SlabAllocator>(new SlabAllocator(round_up(block_bytes, kLineBytes)));
}

SlabAllocator::~SlabAllocator() {
  for (const Slab& slab : slabs_) std::free(slab.memory);
}

bool SlabAllocator::add_slab() {
  const std::size_t wanted = std::clamp(slab_bytes_, kLeastSlabBytes, kMostSlabBytes);
  const std::size_t blocks = std::max<std::size_t>(1, wanted / block_bytes_);
  if (blocks > (~std::size_t{0} - kHugePageBytes) / block_bytes_) return false;
  const bool is_huge = slab_bytes_ >= kHugeFromBytes || blocks * block_bytes_ >= kHugeFromBytes;
  const std::size_t alignment = is_huge ? kHugePageBytes : kLineBytes;
  const std::size_t size = round_up(blocks * block_bytes_, alignment);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(alignment, size));
  if (memory == nullptr) return false;
#if defined(MADV_HUGEPAGE)
  if (is_huge) madvise(memory, size, MADV_HUGEPAGE);  // a wish: without, the pages are small
#endif
  slabs_.push_back({memory, size});
  slab_bytes_ += size;
  next_ = memory;
  end_ = memory + size / block_bytes_ * block_bytes_;
  return true;
}

Result<Buffer> SlabAllocator::allocate(std::size_t size_bytes) {
  REVERIE_CHECK(size_bytes <= block_bytes_);
  MutexLock lock(mutex_);
  std::byte* block = nullptr;
  if (free_ != nullptr) {
    block = reinterpret_cast<std::byte*>(free_);
    free_ = free_->next;
  } else {
    if (next_ == end_ && !add_slab()) {
      return resource_exhausted("{} bytes of memory could not be had; store fewer or smaller items",
                                block_bytes_);
    }
    block = std::exchange(next_, next_ + block_bytes_);
  }
  if (lent_count_++ == 0) self_ = shared_from_this();
  return Buffer(block, size_bytes, this);
}

void SlabAllocator::take_back(std::byte* data, std::size_t) noexcept {
  std::shared_ptr<SlabAllocator> self;  // may be the last: goes after the lock
  MutexLock lock(mutex_);
  free_ = new (data) FreeBlock{free_};
  if (--lent_count_ == 0) self = std::move(self_);
}

}  // namespace reverie
