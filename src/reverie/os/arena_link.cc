#include "reverie/os/arena_link.h"

#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "reverie/os/own_pages.h"

namespace reverie {

std::array<std::byte, kRangeBytes> encode_range(const ArenaRange& range) {
  const std::array<std::uint64_t, 3> words = {range.offset, range.size_bytes, range.generation};
  std::array<std::byte, kRangeBytes> bytes;
  std::memcpy(bytes.data(), words.data(), kRangeBytes);
  return bytes;
}

ArenaRange decode_range(std::span<const std::byte, kRangeBytes> bytes) {
  std::array<std::uint64_t, 3> words;
  std::memcpy(words.data(), bytes.data(), kRangeBytes);
  return {.arena = 0, .offset = words[0], .size_bytes = words[1], .generation = words[2]};
}

// --- The sender.

std::shared_ptr<SharedArena> ArenaSender::room_for(std::size_t size_bytes, TimePoint now) {
  last_use_ = now;
  return is_taken_ && leases_.has_room(size_bytes) ? arena_ : nullptr;
}

bool ArenaSender::lend(const std::shared_ptr<const ArenaBlock>& block) {
  return block->range().arena == arena_->id() && leases_.lend(block).ok();
}

Status ArenaSender::give_back(std::span<const std::byte> ranges) {
  if (ranges.size() % kRangeBytes != 0) {
    return data_loss("ranges of an arena have {} bytes, which is no multiple of {}", ranges.size(),
                     kRangeBytes);
  }
  for (; !ranges.empty(); ranges = ranges.subspan(kRangeBytes)) {
    ArenaRange range = decode_range(ranges.first<kRangeBytes>());
    range.arena = arena_->id();
    REVERIE_RETURN_IF_ERROR(leases_.give_back({&range, 1}));
  }
  return {};
}

void ArenaSender::rest(TimePoint now) {
  if (now - last_use_ > kTrimAfter) arena_->trim();
}

void ArenaSender::end() {
  arena_->retire();
  leases_.drop_all();
}

// --- The receiver.

Status ArenaReceiver::open(int fd, std::uint64_t id) {
  MutexLock lock(mutex_);
  if (view_) return invalid_argument("the other side shares a second arena");
  REVERIE_ASSIGN_OR_RETURN(view_, ArenaView::open(fd, id, SharedMemory::Mapping::kCopyOnWrite));
  return {};
}

Result<ArenaBytes> ArenaReceiver::at(ArenaRange range) {
  std::shared_ptr<const ArenaView> view;
  {
    MutexLock lock(mutex_);
    view = view_;
  }
  if (!view) return data_loss("bytes are in an arena that was not shared");
  range.arena = view->id();
  REVERIE_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, view->bytes(range));
  std::shared_ptr<const void> keep(static_cast<const void*>(bytes.data()),
                                   [self = shared_from_this(), view, range, bytes](const void*) {
                                     self->release(range, bytes);
                                   });
  return ArenaBytes{bytes, std::move(keep)};
}

void ArenaReceiver::release(const ArenaRange& range, std::span<std::byte> bytes) {
  // The parent still has them; and a thread of it may have held the lock at the fork.
  if (!fork_guard_.check("arena").ok()) return;
  // Pages written here would hide what the owner writes next. Pages that were only read stay
  // mapped, so the next array there causes no page faults.
  if (has_own_pages(bytes)) {
    const std::size_t size =
        (bytes.size() + kArenaPageBytes - 1) / kArenaPageBytes * kArenaPageBytes;
    (void)::madvise(bytes.data(), size, MADV_DONTNEED);
  }
  MutexLock lock(mutex_);
  if (is_over_) return;
  const bool was_due = return_bytes_ >= kReturnBytesMax || returns_.size() >= kReturnCountMax;
  returns_.push_back(range);
  return_bytes_ += bytes.size();
  has_returns_.store(true, std::memory_order_relaxed);
  const bool is_due = return_bytes_ >= kReturnBytesMax || returns_.size() >= kReturnCountMax;
  if (is_due && !was_due) is_due_();
}

std::vector<std::byte> ArenaReceiver::take_returns() {
  std::vector<std::byte> bytes;
  MutexLock lock(mutex_);
  bytes.reserve(returns_.size() * kRangeBytes);
  for (const ArenaRange& range : returns_) {
    const auto encoded = encode_range(range);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  returns_.clear();
  return_bytes_ = 0;
  has_returns_.store(false, std::memory_order_relaxed);
  return bytes;
}

void ArenaReceiver::end() {
  std::function<void()> gone;
  MutexLock lock(mutex_);
  is_over_ = true;
  gone.swap(is_due_);
  returns_.clear();
}

}  // namespace reverie
