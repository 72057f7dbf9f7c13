// Spill: keeps chunks in a mapped file, of which a bounded part is in memory.
//
//     BlockHeap       [ chunk | chunk | free | chunk ........ ]      addresses that never change
//     mapped pages    [ h h h | . . . |      | w w w ........ ]      h hot, w warm, . in the file
//     only unlinked file   [ ...................................... ]
//
// Chunks are written into the file's pages, which the system keeps in memory as it does any file's.
// A chunk leaves memory when its pages are written to the disk and dropped; a later reader finds
// the same bytes at the same address, once the system has read them. So no reader needs a guard,
// and the choice of dropped pages affects how fast a read is, never its result.
//
// A clock (second chance) chooses those pages: a page is hot when it was allocated or prefetched;
// the hand makes hot pages warm, and drops warm ones. It moves when more is in memory than allowed,
// on the thread that caused it: so a writer that is faster than the disk waits for the disk.
//
// A page that the disk cannot read, or for which a write finds it full, is replaced by memory that
// no file lies behind (os/guarded_mapping.h), and stays there until its region is given back. If
// its bytes could not be read, it is lost: it reads as zeros, LostBytes tells, and it is not used
// again.
//
// The file has no name (O_TMPFILE, or unlinked at once): nothing of it outlives the process. Its
// space is reserved before it is mapped, so a full disk is an error when memory is requested.
// Free space is used again, and parts of the file that are entirely free are given back to the
// disk.
//
// Each page belongs to one group (ChunkMemory). A group with a bound has its own hand, which skips
// the pages of others. A page that several small chunks share belongs to the group of the latest
// assignment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/fork.h"
#include "reverie/base/lost_bytes.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/os/guarded_mapping.h"
#include "reverie/tensor/block_heap.h"
#include "reverie/tensor/chunk_memory.h"
#include "reverie/tensor/page_source.h"

namespace reverie::spill {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::int64_t kMemoryBytesMin = std::int64_t{16} << 20;

struct SpillOptions {
  // A folder on a disk, which exists: a folder in memory is refused.
  std::string folder;
  // How much may be in memory; none: only the groups' bounds apply.
  std::optional<std::int64_t> memory_bytes = kMemoryBytesMin;
};

// The file, its mapping, and which pages are in memory. Thread-safe, except where noted.
class SpillFile final : public PageSource, private GuardedRange::Owner {
 public:
  // RESOURCE_EXHAUSTED for a full disk, INVALID_ARGUMENT for a folder that is in memory or does not
  // exist, PERMISSION_DENIED for one that cannot be written to.
  static Result<std::unique_ptr<SpillFile>> open(const SpillOptions& options);
  ~SpillFile() override;

  std::byte* map(std::size_t size_bytes, std::size_t alignment) override;
  void unmap(std::byte* memory, std::size_t size_bytes) override;
  void cool(std::byte* memory, std::size_t size_bytes) override;
  // A region is given back to the disk as a whole.
  std::size_t region_bytes_max() const override { return std::size_t{8} << 20; }

  // Marks the pages of a range as hot; returns whether one of them was not in memory. Ranges that
  // are not in the mapping are ignored.
  bool touch(std::span<const std::byte> range);
  // Assigns the whole pages of a newly allocated block to kUnheld.
  void begin(std::span<const std::byte> block);
  void assign(std::span<const std::byte> range, ChunkMemory::Group group);
  Status set_bound(ChunkMemory::Group group, std::int64_t bytes);
  // Has the system begin to read the pages of a range.
  void read_ahead(std::span<const std::byte> range) const;
  // Drops pages until no bound is exceeded, of any group or of all.
  void shrink();
  // Waits until the pages of a range are read that were not dropped again, so that has_lost() knows
  // of them.
  void load(std::span<const std::byte> range) const;
  // Whether the disk could not read a page of a range.
  bool has_lost(std::span<const std::byte> range) const;
  std::int64_t resident_bytes() const { return all_.resident_bytes(); }
  // Requires a group that has a bound, or a smaller number than one.
  std::int64_t resident_bytes(ChunkMemory::Group group) const {
    return groups_[group].resident_bytes();
  }
  std::optional<std::int64_t> memory_bytes() const;
  // Bytes of the file that are reserved.
  std::int64_t file_bytes() const { return file_bytes_.load(std::memory_order_relaxed); }
  // Ok, or why memory could not be allocated, or dropped, lately.
  Status status();

 private:
  using Group = ChunkMemory::Group;
  // A page is its state in the low bits, and its group above them.
  using Page = std::uint16_t;
  // kKept: no file lies behind the page, which is never dropped, and counts for no bound.
  enum PageState : Page { kAbsent, kWarm, kHot, kKept };
  static bool is_counted(Page page) { return state_of(page) == kWarm || state_of(page) == kHot; }
  static constexpr int kGroupShift = 2;
  static PageState state_of(Page page) {
    return static_cast<PageState>(page & ((Page{1} << kGroupShift) - 1));
  }
  static Group group_of(Page page) { return static_cast<Group>(page >> kGroupShift); }
  static Page page_of(PageState state, Group group) {
    return static_cast<Page>(state | (group << kGroupShift));
  }

  struct Pages {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Pages under one bound.
  struct Bounded {
    static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

    bool is_over() const { return resident.load(std::memory_order_relaxed) > pages_max; }
    std::int64_t resident_bytes() const {
      return resident.load(std::memory_order_relaxed) * static_cast<std::int64_t>(kPageBytes);
    }

    std::int64_t pages_max = kNone;
    std::atomic<std::int64_t> resident{0};
    std::size_t hand = 0;  // guarded by hand_mutex_
  };

  SpillFile(int fd, std::string folder, std::optional<std::int64_t> memory_bytes, std::byte* base,
            std::atomic<Page>* pages, std::atomic<bool>* lost, std::size_t space_bytes);
  bool is_replaced(std::size_t offset) noexcept override;
  void on_replace(std::size_t offset, bool is_whole) noexcept override;
  // The pages of a range, cut to the mapping.
  Pages pages_of(std::span<const std::byte> range) const;
  void forget(Pages pages);
  bool is_kept(std::size_t page) const {
    return state_of(states_[page].load(std::memory_order_relaxed)) == kKept;
  }
  // Changes a page's state to change(page), and updates the counts.
  template <typename Change>
  void update(std::size_t page, Change change);
  void add_resident(Group group, std::int64_t pages);
  // Enforces one bound; `group` is none for the bound on all.
  void shrink(Bounded& bounded, std::optional<Group> group) REVERIE_REQUIRES(hand_mutex_);
  // At most one round of the hand, until enough pages are dropped.
  void sweep(Bounded& bounded, std::optional<Group> group, std::int64_t wanted)
      REVERIE_REQUIRES(hand_mutex_);
  void drop(const std::vector<Pages>& runs) REVERIE_REQUIRES(hand_mutex_);
  void note(Status status);

  const int fd_;
  const std::string folder_;
  std::byte* const base_;            // of address space_bytes_ long
  std::atomic<Page>* const states_;  // one per page
  std::atomic<bool>* const lost_;    // the same
  const std::size_t space_bytes_;
  ForkGuard fork_guard_;
  std::unique_ptr<GuardedRange> guard_;
  std::unique_ptr<LostBytes> lost_bytes_;
  Bounded all_;
  std::deque<Bounded> groups_;  // groups with a bound; fixed once pages are assigned
  std::atomic<std::int64_t> file_bytes_{0};
  std::atomic<std::size_t> end_page_{0};  // no page from here on was ever mapped

  Mutex mutex_;
  std::map<std::size_t, std::size_t> free_ REVERIE_GUARDED_BY(mutex_);  // offset, size; apart
  Status status_ REVERIE_GUARDED_BY(mutex_);

  Mutex hand_mutex_;
  bool is_broken_ REVERIE_GUARDED_BY(hand_mutex_) = false;  // the disk failed: nothing is dropped
};

class Spill final : public ChunkMemory, private BufferOwner {
 public:
  static Result<std::shared_ptr<Spill>> open(const SpillOptions& options);

  Result<Buffer> allocate(std::size_t size_bytes) override;
  void prefetch(std::span<const Range> ranges) override;
  std::optional<std::int64_t> memory_bytes() const override { return file_->memory_bytes(); }
  Status set_bound(Group group, std::int64_t bytes) override {
    return file_->set_bound(group, bytes);
  }
  void assign(std::span<const Range> ranges, Group group) override;
  void shrink() override { file_->shrink(); }

  std::int64_t resident_bytes() const { return file_->resident_bytes(); }
  std::int64_t resident_bytes(Group group) const { return file_->resident_bytes(group); }
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
