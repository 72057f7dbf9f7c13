// An arena: memory of one process, the owner, which hands parts of it to other processes to read.
//
//     page 0     [ magic | id | size ]                                          written once
//     page 1 ..  [ generation ][ bytes . . . . ]   [ generation ][ bytes . . . ]
//
//     owner                                      reader, by a connection
//     block = arena->allocate(size)
//     block->write(0, bytes)
//     leases.lend(block), block->range()   -->   view.bytes(range), or view.copy(range, into)
//     leases.give_back(ranges)             <--   the ranges, many at once
//
// The memory has no name; its descriptor is passed on (SCM_RIGHTS), and readers can map it only for
// reading. The owner alone writes to it and keeps the accounts, in its private memory: which parts
// are in use, and which connection has leased which block how often. The arena contains no count
// and no lock, so a reader that dies at any instruction damages nothing; the end of its connection
// drops its leases.
//
// What a reader finds in the arena, and the ranges that it is sent, are copied and then checked. A
// block's generation changes when the block is freed: a reader that copies checks it before and
// after, so a lease that was lost meanwhile gives UNAVAILABLE and never other bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/os/arena_space.h"
#include "reverie/os/shared_memory.h"

namespace reverie {

// Names bytes of an arena; this is what is sent. A value.
struct ArenaRange {
  std::uint64_t arena = 0;       // its id
  std::uint64_t offset = 0;      // of the first byte
  std::uint64_t size_bytes = 0;  // as requested
  std::uint64_t generation = 0;  // of the block; never 0
  friend bool operator==(const ArenaRange&, const ArenaRange&) = default;
};

// The first page.
struct ArenaHeader {
  std::uint64_t magic;
  std::uint64_t id;
  std::uint64_t size_bytes;  // of the whole arena
};

// Precedes each block.
struct ArenaBlockHeader {
  std::atomic<std::uint64_t> generation;  // 0: free
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "other processes see the words");

inline constexpr std::uint64_t kArenaMagic = 0x31616e6572615652;  // "RVarena1"
inline constexpr std::size_t kArenaPageBytes = 4096;

// The stores and loads of the protocol: tests stop or kill a process at each of them.
enum class ArenaStep { kAllocated, kWritten, kFreed, kChecked, kCopied };
using ArenaHook = void (*)(ArenaStep);
// Called after each of them; null outside tests.
extern std::atomic<ArenaHook> arena_hook;

class SharedArena;

// A part of an arena that is in use until its last holder releases it. Immutable once it is lent.
// Thread-safe, except for writes to the same bytes.
class ArenaBlock {
 public:
  ~ArenaBlock();
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;

  const ArenaRange& range() const { return range_; }
  // Writable. From 4 KiB on, the size is a multiple of the page size.
  std::span<std::byte> bytes() const { return bytes_; }
  // Copies `from` to `offset`. Cheaper than writing through bytes() where the memory was not used
  // before. RESOURCE_EXHAUSTED without memory. Requires that the bytes fit into the block.
  Status write(std::size_t offset, std::span<const std::byte> from);

 private:
  friend class SharedArena;
  ArenaBlock(std::shared_ptr<SharedArena> arena, const ArenaRange& range,
             std::span<std::byte> bytes)
      : arena_(std::move(arena)), range_(range), bytes_(bytes) {}

  const std::shared_ptr<SharedArena> arena_;
  const ArenaRange range_;
  const std::span<std::byte> bytes_;
};

// The owner's side. Thread-safe. Lives until its last block is gone.
class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // `size_bytes` is rounded up to pages. Memory is taken when it is first used. `name` is for
  // people. RESOURCE_EXHAUSTED without memory or descriptors, UNAVAILABLE without /proc,
  // INVALID_ARGUMENT for 0 bytes or more than 2^46.
  static Result<std::shared_ptr<SharedArena>> make(const std::string& name, std::size_t size_bytes);
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  std::uint64_t id() const { return id_; }
  std::size_t size_bytes() const { return memory_.bytes().size(); }
  // The descriptor for readers: it allows reading and not writing. Closed with this object.
  int reader_fd() const { return reader_fd_; }

  // Not zeroed. RESOURCE_EXHAUSTED when no free part is large enough, INVALID_ARGUMENT for 0 bytes.
  Result<std::shared_ptr<ArenaBlock>> allocate(std::size_t size_bytes);
  // The range of bytes at the start of a block in use; nothing for bytes elsewhere. Requires that
  // the caller keeps the block.
  std::optional<ArenaRange> range_of(std::span<const std::byte> bytes) const;
  // From here on allocate() gives FAILED_PRECONDITION: freed memory is not used again, so what
  // readers have mapped stays as it is.
  void retire();
  // Bytes in use, headers included.
  std::size_t used_bytes() const;
  // Gives the memory after the last block in use back to the system.
  void trim();
  // Gives large free parts back to the system, once less than half of what was in use is.
  void give_back_unused();

 private:
  friend class ArenaBlock;
  SharedArena(SharedMemory memory, int reader_fd, std::uint64_t id);
  ArenaBlockHeader& header_of(const ArenaRange& range) const;
  void free(const ArenaRange& range);
  Status write(std::size_t offset, std::span<const std::byte> from);

  const SharedMemory memory_;
  const int reader_fd_;
  const std::uint64_t id_;
  const ForkGuard fork_guard_;
  mutable Mutex mutex_;
  ArenaSpace space_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t next_generation_ REVERIE_GUARDED_BY(mutex_) = 1;
  // Memory before it was written to; memory after it costs page faults when first touched.
  std::size_t touched_end_ REVERIE_GUARDED_BY(mutex_) = kArenaPageBytes;
  bool is_retired_ REVERIE_GUARDED_BY(mutex_) = false;
  std::size_t peak_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // in use since parts were given back
  std::size_t high_end_ REVERIE_GUARDED_BY(mutex_) = kArenaPageBytes;  // of blocks since trim()
};

// What one connection has leased from the owner's arenas. Not thread-safe: its connection's lock
// guards it. Its destructor ends the leases.
class ArenaLeases {
 public:
  // Leases at most `bytes_max` bytes at a time.
  explicit ArenaLeases(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // Whether the connection may lease `size_bytes` more.
  bool has_room(std::size_t size_bytes) const { return size_bytes <= bytes_max_ - bytes_; }
  // The other side may read the block from here on, until it has given it back as often as it was
  // lent. RESOURCE_EXHAUSTED beyond the bound.
  Status lend(std::shared_ptr<const ArenaBlock> block);
  // DATA_LOSS for a range that is not lent; those before it are given back.
  Status give_back(std::span<const ArenaRange> ranges);
  // The connection has ended.
  void drop_all();

  std::size_t bytes() const { return bytes_; }
  std::size_t count() const { return leases_.size(); }

 private:
  struct Lease {
    std::shared_ptr<const ArenaBlock> block;
    std::size_t count = 0;
  };
  const std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Lease> leases_;  // arena, offset
};

// A reader's side. Thread-safe. What bytes() gave stays mapped as long as this lives.
class ArenaView {
 public:
  // Maps the arena of `fd`, which stays the caller's; `id` is the id that the connection gave.
  // With kCopyOnWrite the reader may change the bytes of blocks of a page and more, which share
  // their pages with no other block; the owner does not see it. INVALID_ARGUMENT if it is not that
  // arena.
  static Result<std::shared_ptr<const ArenaView>> open(
      int fd, std::uint64_t id, SharedMemory::Mapping mapping = SharedMemory::Mapping::kReadOnly);

  std::uint64_t id() const { return id_; }
  // The bytes of the range, as long as its lease lasts. DATA_LOSS for an impossible range,
  // UNAVAILABLE for a block that was freed.
  Result<std::span<std::byte>> bytes(const ArenaRange& range) const;
  // Copies the bytes; ok means that the lease lasted meanwhile. Requires equal sizes.
  Status copy(const ArenaRange& range, std::span<std::byte> into) const;

 private:
  ArenaView(SharedMemory memory, std::uint64_t id) : memory_(std::move(memory)), id_(id) {}

  const SharedMemory memory_;
  const std::uint64_t id_;
};

}  // namespace reverie
