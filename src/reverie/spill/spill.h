// Spill: memory for chunks that lies in a file, of which a bounded part is in memory.
//
//     BlockHeap       [ chunk | chunk | free | chunk ........ ]      addresses that never change
//     mapped pages    [ h h h | . . . |      | w w w ........ ]      h hot, w warm, . in the file
//     only unlinked file   [ ...................................... ]
//
// Chunks are written into the file's pages, which the system keeps in memory as it does any file's.
// A chunk leaves memory when its pages are written to the disk and dropped; a later reader finds
// the same bytes at the same address, once the system has read them. So no reader needs a guard,
// and which pages are dropped decides how fast a read is, never what it gives.
//
// A clock (second chance) chooses those pages: a page is hot when it was allocated or prefetched;
// the hand makes hot pages warm, and drops warm ones. It moves when more is in memory than may be,
// on the thread that brought it there: so a writer that is faster than the disk waits for the disk.
//
// The file has no name (O_TMPFILE, or unlinked at once): nothing of it outlives the process. Its
// space is reserved before it is mapped, so a full disk is an error where memory is asked for. Free
// space is used again, and parts of the file that are free from end to end go back to the
// disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/tensor/block_heap.h"
#include "reverie/tensor/chunk_memory.h"
#include "reverie/tensor/page_source.h"

namespace reverie::spill {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::int64_t kMemoryBytesMin = std::int64_t{16} << 20;

struct SpillOptions {
  // On a disk: a folder in memory is refused. Made by the caller.
  std::string folder;
  // What may be in memory.
  std::int64_t memory_bytes = kMemoryBytesMin;
};

// The file, its mapping, and what of it is in memory. Thread-safe, except as said.
class SpillFile final : public PageSource {
 public:
  // RESOURCE_EXHAUSTED for a full disk, INVALID_ARGUMENT for a folder that is in memory or not
  // there, PERMISSION_DENIED for one that cannot be written to.
  static Result<std::unique_ptr<SpillFile>> open(const SpillOptions& options);
  ~SpillFile() override;

  std::byte* map(std::size_t size_bytes, std::size_t alignment) override;
  void unmap(std::byte* memory, std::size_t size_bytes) override;
  void cool(std::byte* memory, std::size_t size_bytes) override;
  // A region goes back to the disk as a whole.
  std::size_t region_bytes_max() const override { return std::size_t{8} << 20; }

  // Marks the pages of a range as hot; returns whether one of them was not in memory. Ranges that
  // are not in the mapping are ignored.
  bool touch(std::span<const std::byte> range);
  // Has the system begin to read the pages of a range.
  void read_ahead(std::span<const std::byte> range) const;
  // Drops pages until no more is in memory than may be.
  void shrink();
  std::int64_t resident_bytes() const {
    return resident_pages_.load(std::memory_order_relaxed) * static_cast<std::int64_t>(kPageBytes);
  }
  // Bytes of the file that are reserved.
  std::int64_t file_bytes() const { return file_bytes_.load(std::memory_order_relaxed); }
  // Ok, or why memory could not be had, or dropped, lately.
  Status status();

 private:
  enum PageState : std::uint8_t { kAbsent, kWarm, kHot };
  struct Pages {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  SpillFile(int fd, std::string folder, std::int64_t memory_bytes, std::byte* base,
            std::atomic<std::uint8_t>* states, std::size_t space_bytes);
  // The pages of a range, cut to the mapping.
  Pages pages_of(std::span<const std::byte> range) const;
  void forget(Pages pages);
  // One round of the hand at most, until `pages` are dropped.
  void sweep(std::int64_t pages) REVERIE_REQUIRES(hand_mutex_);
  void drop(const std::vector<Pages>& runs) REVERIE_REQUIRES(hand_mutex_);
  void note(Status status);

  const int fd_;
  const std::string folder_;
  const std::int64_t memory_pages_;
  std::byte* const base_;                    // of address space_bytes_ long
  std::atomic<std::uint8_t>* const states_;  // of each page of it
  const std::size_t space_bytes_;
  ForkGuard fork_guard_;
  std::atomic<std::int64_t> resident_pages_{0};
  std::atomic<std::int64_t> file_bytes_{0};
  std::atomic<std::size_t> end_page_{0};  // no page behind it was ever mapped

  Mutex mutex_;
  std::map<std::size_t, std::size_t> free_ REVERIE_GUARDED_BY(mutex_);  // offset, size; apart
  Status status_ REVERIE_GUARDED_BY(mutex_);

  Mutex hand_mutex_;
  std::size_t hand_ REVERIE_GUARDED_BY(hand_mutex_) = 0;
  bool is_broken_ REVERIE_GUARDED_BY(hand_mutex_) = false;  // the disk failed: nothing is dropped
};

class Spill final : public ChunkMemory, private BufferOwner {
 public:
  static Result<std::shared_ptr<Spill>> open(const SpillOptions& options);

  Result<Buffer> allocate(std::size_t size_bytes) override;
  void prefetch(std::span<const Range> ranges) override;

  std::int64_t resident_bytes() const { return file_->resident_bytes(); }
  std::int64_t file_bytes() const { return file_->file_bytes(); }

 private:
  explicit Spill(std::unique_ptr<SpillFile> file)
      : file_(std::move(file)), heap_(*file_, /*keeps_warm=*/false) {}
  void take_back(std::byte* data, std::size_t size_bytes) noexcept override;

  const std::unique_ptr<SpillFile> file_;
  BlockHeap heap_;
  ForkGuard fork_guard_;
  Mutex mutex_;
  std::size_t lent_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::weak_ptr<Spill> weak_self_;
  std::shared_ptr<Spill> self_ REVERIE_GUARDED_BY(mutex_);  // while buffers are lent
};

}  // namespace reverie::spill
