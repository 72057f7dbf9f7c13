#include "reverie/os/shared_arena.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "reverie/base/check.h"
#include "reverie/base/random.h"
#include "reverie/base/stream_copy.h"

namespace reverie {

std::atomic<ArenaHook> arena_hook{nullptr};

namespace {

constexpr std::size_t kBlockHeaderBytes = ArenaSpace::kUnit;
static_assert(sizeof(ArenaBlockHeader) <= kBlockHeaderBytes);
static_assert(sizeof(ArenaHeader) <= kArenaPageBytes);
// Blocks from this size on start at a page, so that they can be mapped again separately.
constexpr std::size_t kPageAlignedMin = kArenaPageBytes;

// Generations also distinguish blocks of a process from those of its forked children.
constexpr std::uint64_t kForkBits = std::uint64_t{0xffff} << 48u;
std::uint64_t first_generation() {
  return std::uint64_t{fork_generation()} << 48u;
}

void step(ArenaStep at) {
  const ArenaHook hook = arena_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(at);
}

}  // namespace

// --- The owner.

Result<std::shared_ptr<SharedArena>> SharedArena::make(const std::string& name,
                                                       std::size_t size_bytes) {
  constexpr std::size_t kSizeMax = std::size_t{1} << 46;
  if (size_bytes == 0 || size_bytes > kSizeMax) {
    return invalid_argument("an arena has {} bytes; it must have 1 to {}", size_bytes, kSizeMax);
  }
  const std::size_t size =
      kArenaPageBytes + (size_bytes + kArenaPageBytes - 1) / kArenaPageBytes * kArenaPageBytes;
  REVERIE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create(name, size));
  REVERIE_ASSIGN_OR_RETURN(const int reader_fd, memory.make_read_only_fd());
  const std::uint64_t id = random_seed();
  const ArenaHeader header{kArenaMagic, id, size};
  std::memcpy(memory.bytes().data(), &header, sizeof(header));
  return std::shared_ptr<SharedArena>(new SharedArena(std::move(memory), reader_fd, id));
}

SharedArena::SharedArena(SharedMemory memory, int reader_fd, std::uint64_t id)
    : memory_(std::move(memory)),
      reader_fd_(reader_fd),
      id_(id),
      space_(kArenaPageBytes, memory_.bytes().size()) {}

SharedArena::~SharedArena() {
  ::close(reader_fd_);
}

ArenaBlockHeader& SharedArena::header_of(const ArenaRange& range) const {
  return *reinterpret_cast<ArenaBlockHeader*>(memory_.bytes().data() + range.offset -
                                              kBlockHeaderBytes);
}

Result<std::shared_ptr<ArenaBlock>> SharedArena::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return invalid_argument("a block has 0 bytes; it must have some");
  ArenaRange range;
  range.arena = id_;
  range.size_bytes = size_bytes;
  {
    MutexLock lock(mutex_);
    if (is_retired_) return failed_precondition("the arena is retired; make a new one");
    const std::size_t alignment =
        size_bytes >= kPageAlignedMin ? kArenaPageBytes : ArenaSpace::kUnit;
    std::optional<std::size_t> begin;
    if (size_bytes < memory_.bytes().size()) {
      const std::size_t whole = (size_bytes + alignment - 1) / alignment * alignment;
      begin = space_.take(whole + kBlockHeaderBytes, kBlockHeaderBytes, alignment);
    }
    if (!begin) {
      return resource_exhausted(
          "no {} bytes in one piece are free in an arena of {}, of which {} are in use; wait until "
          "readers give some back, or make it larger",
          size_bytes, memory_.bytes().size(), space_.used_bytes());
    }
    range.offset = *begin + kBlockHeaderBytes;
    range.generation = first_generation() | next_generation_++;
    peak_bytes_ = std::max(peak_bytes_, space_.used_bytes());
    high_end_ = std::max(high_end_, static_cast<std::size_t>(range.offset) + size_bytes);
  }
  ArenaBlockHeader& header = header_of(range);
  header.generation.store(range.generation, std::memory_order_release);
  step(ArenaStep::kAllocated);
  return std::shared_ptr<ArenaBlock>(
      new ArenaBlock(shared_from_this(), range, memory_.bytes().subspan(range.offset, size_bytes)));
}

std::optional<ArenaRange> SharedArena::range_of(std::span<const std::byte> bytes) const {
  const std::span<const std::byte> all = memory_.bytes();
  const std::less_equal<> is_before;
  const bool is_inside =
      is_before(all.data() + kArenaPageBytes + kBlockHeaderBytes, bytes.data()) &&
      is_before(bytes.data() + bytes.size(), all.data() + all.size());
  if (bytes.empty() || !is_inside) return std::nullopt;
  ArenaRange range{id_, static_cast<std::uint64_t>(bytes.data() - all.data()), bytes.size(), 0};
  if (range.offset % ArenaSpace::kUnit != 0) return std::nullopt;
  range.generation = header_of(range).generation.load(std::memory_order_relaxed);
  return range.generation != 0 ? std::optional(range) : std::nullopt;
}

void SharedArena::free(const ArenaRange& range) {
  // In a forked child, a block made before the fork belongs to the parent, which still uses it.
  if ((range.generation & kForkBits) != first_generation()) return;
  header_of(range).generation.store(0, std::memory_order_relaxed);
  // A reader that sees bytes of the next block sees this too.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  step(ArenaStep::kFreed);
  MutexLock lock(mutex_);
  space_.give_back(static_cast<std::size_t>(range.offset) - kBlockHeaderBytes);
}

void SharedArena::retire() {
  MutexLock lock(mutex_);
  is_retired_ = true;
}

std::size_t SharedArena::used_bytes() const {
  MutexLock lock(mutex_);
  return space_.used_bytes();
}

void SharedArena::trim() {
  MutexLock lock(mutex_);
  if (is_retired_) return;
  const std::size_t end = (space_.used_end() + kArenaPageBytes - 1) / kArenaPageBytes;
  const std::size_t kept = end * kArenaPageBytes;
  if (kept >= high_end_) return;
  // Under the lock, so that no block is made there meanwhile.
  if (::fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(kept), static_cast<off_t>(high_end_ - kept)) == 0) {
    high_end_ = kept;
    touched_end_ = std::min(touched_end_, kept);
  }
}

void SharedArena::give_back_unused() {
  constexpr std::size_t kPartBytesMin = std::size_t{1} << 20;
  constexpr std::size_t kBytesMin = std::size_t{64} << 20;
  if (!fork_guard_.check("arena").ok()) return;  // as in free()
  MutexLock lock(mutex_);
  const std::size_t used = space_.used_bytes();
  if (is_retired_ || peak_bytes_ - used < std::max(kBytesMin, peak_bytes_ / 2)) return;
  peak_bytes_ = used;
  // Under the lock, as in trim().
  for (const auto& [offset, size_bytes] : space_.free_parts()) {
    const std::size_t begin = (offset + kArenaPageBytes - 1) / kArenaPageBytes * kArenaPageBytes;
    const std::size_t end =
        std::min(offset + size_bytes, high_end_) / kArenaPageBytes * kArenaPageBytes;
    if (end < begin + kPartBytesMin) continue;
    (void)::fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  }
}

Status SharedArena::write(std::size_t offset, std::span<const std::byte> from) {
  bool is_fresh = false;
  {
    MutexLock lock(mutex_);
    is_fresh = offset + from.size() > touched_end_;
    if (is_fresh) touched_end_ = offset + from.size();
  }
  if (is_fresh) return memory_.write(offset, from);
  stream_copy(memory_.bytes().subspan(offset, from.size()), from);  // another process reads it
  return {};
}

ArenaBlock::~ArenaBlock() {
  arena_->free(range_);
}

Status ArenaBlock::write(std::size_t offset, std::span<const std::byte> from) {
  REVERIE_CHECK(offset <= bytes_.size() && from.size() <= bytes_.size() - offset);
  if (from.empty()) return {};
  REVERIE_RETURN_IF_ERROR(arena_->write(static_cast<std::size_t>(range_.offset) + offset, from));
  step(ArenaStep::kWritten);
  return {};
}

// --- Leases.

Status ArenaLeases::lend(std::shared_ptr<const ArenaBlock> block) {
  const ArenaRange& range = block->range();
  Lease& lease = leases_[{range.arena, range.offset}];
  if (lease.count == 0) {
    if (!has_room(static_cast<std::size_t>(range.size_bytes))) {
      leases_.erase({range.arena, range.offset});
      return resource_exhausted(
          "a lease of {} bytes would be added to {} of one connection; the bound is {}: wait until "
          "it gives some back",
          range.size_bytes, bytes_, bytes_max_);
    }
    bytes_ += static_cast<std::size_t>(range.size_bytes);
    lease.block = std::move(block);
  }
  ++lease.count;
  return {};
}

Status ArenaLeases::give_back(std::span<const ArenaRange> ranges) {
  for (const ArenaRange& range : ranges) {
    const auto lease = leases_.find({range.arena, range.offset});
    if (lease == leases_.end() || lease->second.block->range() != range) {
      return data_loss("{} bytes at {} are given back, which were not lent", range.size_bytes,
                       range.offset);
    }
    if (--lease->second.count > 0) continue;
    bytes_ -= static_cast<std::size_t>(range.size_bytes);
    leases_.erase(lease);
  }
  return {};
}

void ArenaLeases::drop_all() {
  leases_.clear();
  bytes_ = 0;
}

// --- A reader.

Result<std::shared_ptr<const ArenaView>> ArenaView::open(int fd, std::uint64_t id,
                                                         SharedMemory::Mapping mapping) {
  REVERIE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::open(fd, mapping));
  const std::size_t size = memory.bytes().size();
  ArenaHeader header{};
  if (size >= kArenaPageBytes) std::memcpy(&header, memory.bytes().data(), sizeof(header));
  if (header.magic != kArenaMagic || header.id != id || header.size_bytes != size) {
    return invalid_argument(
        "shared memory of {} bytes says that it is arena {:x} of {} bytes; arena {:x} was expected",
        size, header.id, header.size_bytes, id);
  }
  memory.close_fd();
  return std::shared_ptr<const ArenaView>(new ArenaView(std::move(memory), id));
}

Result<std::span<std::byte>> ArenaView::bytes(const ArenaRange& range) const {
  const std::size_t size = memory_.bytes().size();
  if (range.arena != id_ || range.offset < kArenaPageBytes + kBlockHeaderBytes ||
      range.offset % ArenaSpace::kUnit != 0 || range.offset > size || range.size_bytes == 0 ||
      range.size_bytes > size - range.offset || range.generation == 0) {
    return data_loss("{} bytes at {} of arena {:x} cannot be; it is arena {:x} of {} bytes",
                     range.size_bytes, range.offset, range.arena, id_, size);
  }
  const auto& header = *reinterpret_cast<const ArenaBlockHeader*>(memory_.bytes().data() +
                                                                  range.offset - kBlockHeaderBytes);
  const std::uint64_t generation = header.generation.load(std::memory_order_acquire);
  step(ArenaStep::kChecked);
  if (generation != range.generation) {
    return unavailable("the lease of {} bytes at {} has ended; its owner uses them for other data",
                       range.size_bytes, range.offset);
  }
  return memory_.bytes().subspan(static_cast<std::size_t>(range.offset),
                                 static_cast<std::size_t>(range.size_bytes));
}

Status ArenaView::copy(const ArenaRange& range, std::span<std::byte> into) const {
  REVERIE_ASSIGN_OR_RETURN(const std::span<std::byte> from, bytes(range));
  REVERIE_CHECK(from.size() == into.size());
  std::memcpy(into.data(), from.data(), from.size());
  step(ArenaStep::kCopied);
  std::atomic_thread_fence(std::memory_order_acquire);
  return bytes(range).status();
}

}  // namespace reverie
