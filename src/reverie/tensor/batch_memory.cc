#include "reverie/tensor/batch_memory.h"

#include <algorithm>
#include <utility>

namespace reverie {

std::shared_ptr<BatchMemory> BatchMemory::make(std::size_t kept_max) {
  return std::shared_ptr<BatchMemory>(new BatchMemory(kept_max));
}

Result<Buffer> BatchMemory::allocate(std::size_t size_bytes) {
  MutexLock lock(mutex_);
  Buffer found;
  const auto kept = std::ranges::find(kept_, size_bytes, &Buffer::size_bytes);
  if (kept != kept_.end()) {
    found = std::move(*kept);
    kept_.erase(kept);
  } else {
    REVERIE_ASSIGN_OR_RETURN(found, Allocator::heap().allocate(size_bytes));
  }
  if (found.data() == nullptr) return found;  // an empty batch
  std::byte* const data = found.data();
  lent_.push_back(std::move(found));
  if (!self_) self_ = shared_from_this();
  return Buffer(data, size_bytes, this);
}

void BatchMemory::take_back(std::byte* data, std::size_t) noexcept {
  std::shared_ptr<BatchMemory> last;  // may be the last reference: released outside the lock
  Buffer dropped;
  MutexLock lock(mutex_);
  const auto at =
      std::ranges::find_if(lent_, [data](const Buffer& lent) { return lent.data() == data; });
  kept_.push_back(std::move(*at));
  lent_.erase(at);
  if (kept_.size() > kept_max_) {
    dropped = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  if (lent_.empty()) last = std::move(self_);
}

}  // namespace reverie
