#include "reverie/tensor/slab_allocator.h"

#include <algorithm>
#include <new>
#include <utility>

#include <sys/mman.h>

#include "reverie/tensor/map_memory.h"
#include "reverie/tensor/rounding.h"

namespace reverie {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLeastSlabBytes = std::size_t{64} << 10;
constexpr std::size_t kMostSlabBytes = std::size_t{32} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// Writing one byte of a large page makes the whole page resident: for fewer bytes than this that
// would waste too much.
constexpr std::size_t kHugeFromBytes = std::size_t{8} << 20;

}  // namespace

std::shared_ptr<SlabAllocator> SlabAllocator::make(std::size_t block_bytes) {
  REVERIE_CHECK(block_bytes > 0);
  return std::shared_ptr<SlabAllocator>(new SlabAllocator(round_up(block_bytes, kLineBytes)));
}

SlabAllocator::~SlabAllocator() {
  for (const Slab& slab : slabs_) release(slab);
  release(spare_);
}

void SlabAllocator::release(const Slab& slab) {
  if (slab.memory != nullptr) unmap(slab.memory, slab.size_bytes);
}

SlabAllocator::Slab SlabAllocator::next_slab() const {
  const std::size_t wanted = std::clamp(slab_bytes_, kLeastSlabBytes, kMostSlabBytes);
  Slab slab;
  slab.block_count = std::max<std::size_t>(1, wanted / block_bytes_);
  if (slab.block_count > (~std::size_t{0} - kHugePageBytes) / block_bytes_) return {};
  const std::size_t bytes = slab.block_count * block_bytes_;
  slab.is_huge = slab_bytes_ >= kHugeFromBytes || bytes >= kHugeFromBytes;
  slab.size_bytes = round_up(bytes, slab.is_huge ? kHugePageBytes : kPageBytes);
  slab.block_count = slab.size_bytes / block_bytes_;
  return slab;
}

SlabAllocator::Slab SlabAllocator::with_memory(Slab slab) {
  if (slab.size_bytes == 0) return slab;
  slab.memory = map_aligned(slab.size_bytes, slab.is_huge ? kHugePageBytes : kPageBytes);
#if defined(MADV_HUGEPAGE)
  // Only advice: if it is refused, the pages are small.
  if (slab.is_huge && slab.memory) madvise(slab.memory, slab.size_bytes, MADV_HUGEPAGE);
#endif
  return slab;
}

bool SlabAllocator::add_slab() {
  const Slab slab = spare_.memory ? std::exchange(spare_, {}) : with_memory(next_slab());
  if (slab.memory == nullptr) return false;
  slabs_.push_back(slab);
  slab_bytes_ += slab.size_bytes;
  next_ = slab.memory;
  end_ = slab.memory + slab.block_count * block_bytes_;
  return true;
}

void SlabAllocator::populate_ahead() {
#if defined(MADV_POPULATE_WRITE)
  Slab slab;
  bool is_spare = false;
  {
    MutexLock lock(mutex_);
    if (is_populating_ || slabs_.empty() || !slabs_.back().is_huge) return;
    slab = slabs_.back();
    const auto used = static_cast<std::size_t>(next_ - slab.memory);
    if (slab.populated_bytes >= used + kHugePageBytes) return;
    // Everything in use is resident, up to the end of its page.
    slab.populated_bytes = std::max(slab.populated_bytes, round_up(used, kHugePageBytes));
    if (slab.populated_bytes == slab.size_bytes) {
      if (spare_.memory != nullptr) return;
      is_spare = true;
      slab = next_slab();
    }
    is_populating_ = true;
  }
  if (is_spare) slab = with_memory(slab);
  if (slab.memory != nullptr) {
    // This changes no byte, so it may run while a block is being written.
    madvise(slab.memory + slab.populated_bytes, kHugePageBytes, MADV_POPULATE_WRITE);
    slab.populated_bytes += kHugePageBytes;
  }
  MutexLock lock(mutex_);
  is_populating_ = false;
  if (is_spare) {
    spare_ = slab;
  } else if (slabs_.back().memory == slab.memory) {
    slabs_.back().populated_bytes = slab.populated_bytes;
  }
#endif
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
      return resource_exhausted(
          "{} bytes of memory could not be allocated; store fewer or smaller items", block_bytes_);
    }
    block = std::exchange(next_, next_ + block_bytes_);
  }
  if (lent_count_++ == 0) self_ = shared_from_this();
  return Buffer(block, size_bytes, this);
}

void SlabAllocator::take_back(std::byte* data, std::size_t) noexcept {
  std::shared_ptr<SlabAllocator> self;  // may be the last reference: released after the lock
  MutexLock lock(mutex_);
  free_ = new (data) FreeBlock{free_};
  if (--lent_count_ == 0) self = std::move(self_);
}

}  // namespace reverie
