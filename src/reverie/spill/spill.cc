#include "reverie/spill/spill.h"

#include <utility>

namespace reverie::spill {

Result<std::shared_ptr<Spill>> Spill::open(const SpillOptions& options) {
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<SpillFile> file, SpillFile::open(options));
  const std::shared_ptr<Spill> spill(new Spill(std::move(file)));
  spill->weak_self_ = spill;
  return spill;
}

Result<Buffer> Spill::allocate(std::size_t size_bytes) {
  // A forked child shares the pages: it would write into its parent's chunks.
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("store"));
  if (size_bytes == 0) return Buffer();
  auto* block = static_cast<std::byte*>(heap_.take(size_bytes));
  // A block with a lost page is taken for good. On such a disk a page may also be lost when it is
  // next written, since it is read before; so that comes before there are rows in it.
  while (block != nullptr && LostBytes::any()) {
    file_->touch({block, size_bytes});
    file_->load({block, size_bytes});
    if (!file_->has_lost({block, size_bytes})) break;
    block = static_cast<std::byte*>(heap_.take(size_bytes));
  }
  if (block == nullptr) {
    const Status why = file_->status();
    if (!why.ok()) return why;
    return resource_exhausted(
        "{} bytes for a chunk could not be allocated; store fewer or smaller items", size_bytes);
  }
  {
    const MutexLock lock(mutex_);
    if (++lent_count_ == 1) self_ = weak_self_.lock();
  }
  file_->begin({block, size_bytes});
  file_->touch({block, size_bytes});
  file_->shrink();
  return Buffer(block, size_bytes, this);
}

void Spill::take_back(std::byte* data, std::size_t size_bytes) noexcept {
  if (!fork_guard_.check("store").ok()) return;
  heap_.give_back(data, size_bytes);
  std::shared_ptr<Spill> self;
  const MutexLock lock(mutex_);
  if (--lent_count_ == 0) self = std::move(self_);
}

void Spill::assign(std::span<const Range> ranges, Group group) {
  for (const Range range : ranges) file_->assign(range, group);
}

// All reads begin before pages are dropped to make room for them, and are waited for afterwards.
void Spill::prefetch(std::span<const Range> ranges) {
  std::vector<Range> coming;
  for (const Range range : ranges) {
    if (!file_->touch(range)) continue;
    coming.push_back(range);
    file_->read_ahead(range);
  }
  if (coming.empty()) return;
  file_->shrink();
  for (const Range range : coming) file_->load(range);
}

}  // namespace reverie::spill
