// PageHeap: runs of whole pages, taken from the system and given back to it.
//
//     region   [ in use | free, warm | in use | free, cold ................... ]
//
// Address space comes in regions, and runs are parts of them. A run that is freed stays *warm*:
// its memory is used for the next run, which then costs no page faults. Warm memory has a bound,
// beyond which the longest free runs become *cold*: the system gets their memory back, the heap
// keeps the addresses. Free neighbours of one kind are merged. A region that is entirely cold is
// unmapped.
//
// So the process occupies what is in use and a bounded rest, in whatever order runs come and
// go.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/tensor/page_source.h"

namespace reverie {

// Thread-safe.
class PageHeap {
 public:
  // Runs are multiples of `unit_bytes` and aligned to it. `warm_bytes_min` bytes may always stay
  // warm. Requires a power of two, at least a page.
  explicit PageHeap(std::size_t unit_bytes, std::size_t warm_bytes_min = std::size_t{4} << 20,
                    PageSource& source = PageSource::anonymous())
      : source_(source), unit_bytes_(unit_bytes), warm_bytes_min_(warm_bytes_min) {}
  ~PageHeap();
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  // Not zeroed. Null when there is no memory. Requires a positive multiple of the unit.
  std::byte* take(std::size_t size_bytes);
  // Requires a run that take() gave, with its size.
  void give_back(std::byte* run, std::size_t size_bytes) noexcept;

  struct Use {
    std::size_t used_bytes = 0;
    std::size_t warm_bytes = 0;
    std::size_t mapped_bytes = 0;  // address space
  };
  Use use() const;
  // Held around a fork, so that the child finds the heap consistent.
  void lock() REVERIE_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() REVERIE_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  struct Run {
    std::byte* begin = nullptr;
    std::size_t size_bytes = 0;
  };
  // Free runs of one kind, found by place and by size.
  class FreeRuns {
   public:
    // Merges with its neighbours, but not across `borders`. Returns the merged run.
    Run add(Run run, const std::map<std::byte*, std::size_t>& borders);
    void remove(Run run);
    // The shortest run of at least that size; an empty one if none is long enough.
    Run shortest(std::size_t size_bytes) const;
    Run longest() const;

   private:
    void insert(Run run);
    std::map<std::byte*, std::size_t> by_place_;
    std::set<std::pair<std::size_t, std::byte*>> by_size_;
  };

  // How much memory may stay warm: the largest of warm_bytes_min_, a sixteenth of what is in use,
  // and two runs as long as those taken lately, up to 32 MiB.
  std::size_t warm_bytes_max() const REVERIE_REQUIRES(mutex_);
  bool add_region(std::size_t size_bytes) REVERIE_REQUIRES(mutex_);
  // Removes a part of the warm runs that is to become cold; empty if warm memory is in bounds.
  Run next_to_cool() REVERIE_REQUIRES(mutex_);

  PageSource& source_;
  const std::size_t unit_bytes_;
  const std::size_t warm_bytes_min_;
  mutable Mutex mutex_;
  std::map<std::byte*, std::size_t> regions_ REVERIE_GUARDED_BY(mutex_);  // their sizes
  FreeRuns warm_ REVERIE_GUARDED_BY(mutex_);
  FreeRuns cold_ REVERIE_GUARDED_BY(mutex_);
  Use use_ REVERIE_GUARDED_BY(mutex_);
  std::size_t recent_run_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // the longest; fades with each run
};

}  // namespace reverie
