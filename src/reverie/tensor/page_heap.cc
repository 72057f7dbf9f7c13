#include "reverie/tensor/page_heap.h"

#include <algorithm>

#include "reverie/tensor/rounding.h"

namespace reverie {
namespace {

constexpr std::size_t kLeastRegionBytes = std::size_t{4} << 20;
constexpr std::size_t kWarmShare = 16;
constexpr std::size_t kMostWarmForRuns = std::size_t{32} << 20;
constexpr std::size_t kFading = 64;

}  // namespace

// --- Free runs ---------------------------------------------------------------------------------

void PageHeap::FreeRuns::insert(Run run) {
  by_place_.emplace(run.begin, run.size_bytes);
  by_size_.emplace(run.size_bytes, run.begin);
}

void PageHeap::FreeRuns::remove(Run run) {
  by_place_.erase(run.begin);
  by_size_.erase({run.size_bytes, run.begin});
}

PageHeap::Run PageHeap::FreeRuns::add(Run run, const std::map<std::byte*, std::size_t>& borders) {
  const auto after = by_place_.lower_bound(run.begin);
  Run left;
  Run right;
  if (after != by_place_.begin()) left = {std::prev(after)->first, std::prev(after)->second};
  if (after != by_place_.end()) right = {after->first, after->second};
  std::byte* const end = run.begin + run.size_bytes;
  if (right.begin == end && right.begin != nullptr && !borders.contains(end)) {
    remove(right);
    run.size_bytes += right.size_bytes;
  }
  if (left.begin != nullptr && left.begin + left.size_bytes == run.begin &&
      !borders.contains(run.begin)) {
    remove(left);
    run = {left.begin, left.size_bytes + run.size_bytes};
  }
  insert(run);
  return run;
}

PageHeap::Run PageHeap::FreeRuns::shortest(std::size_t size_bytes) const {
  const auto found = by_size_.lower_bound({size_bytes, nullptr});
  return found == by_size_.end() ? Run() : Run{found->second, found->first};
}

PageHeap::Run PageHeap::FreeRuns::longest() const {
  return by_size_.empty() ? Run() : Run{by_size_.rbegin()->second, by_size_.rbegin()->first};
}

// --- The heap ----------------------------------------------------------------------------------

PageHeap::~PageHeap() {
  for (const auto& [begin, size_bytes] : regions_) source_.unmap(begin, size_bytes);
}

std::size_t PageHeap::warm_bytes_max() const {
  const std::size_t for_runs = std::min(2 * recent_run_bytes_, kMostWarmForRuns);
  return std::max({warm_bytes_min_, use_.used_bytes / kWarmShare, for_runs});
}

PageHeap::Use PageHeap::use() const {
  const MutexLock lock(mutex_);
  return use_;
}

bool PageHeap::add_region(std::size_t size_bytes) {
  const std::size_t wanted =
      std::clamp(use_.mapped_bytes / 4, kLeastRegionBytes, source_.region_bytes_max());
  std::size_t region_bytes = round_up(std::max(size_bytes, wanted), unit_bytes_);
  std::byte* region = source_.map(region_bytes, unit_bytes_);
  if (region == nullptr && region_bytes > size_bytes) {
    region_bytes = size_bytes;  // at least this run may fit
    region = source_.map(region_bytes, unit_bytes_);
  }
  if (region == nullptr) return false;
  regions_.emplace(region, region_bytes);
  use_.mapped_bytes += region_bytes;
  cold_.add({region, region_bytes}, regions_);
  return true;
}

std::byte* PageHeap::take(std::size_t size_bytes) {
  REVERIE_CHECK(size_bytes > 0 && size_bytes % unit_bytes_ == 0);
  const MutexLock lock(mutex_);
  recent_run_bytes_ = std::max(size_bytes, recent_run_bytes_ - recent_run_bytes_ / kFading);
  FreeRuns* runs = &warm_;
  Run found = warm_.shortest(size_bytes);
  if (found.size_bytes == 0) {
    runs = &cold_;
    found = cold_.shortest(size_bytes);
    if (found.size_bytes == 0) {
      if (!add_region(size_bytes)) return nullptr;
      found = cold_.shortest(size_bytes);
    }
  } else {
    use_.warm_bytes -= size_bytes;
  }
  runs->remove(found);
  if (found.size_bytes > size_bytes) {
    runs->add({found.begin + size_bytes, found.size_bytes - size_bytes}, regions_);
  }
  use_.used_bytes += size_bytes;
  return found.begin;
}

PageHeap::Run PageHeap::next_to_cool() {
  const std::size_t bound = warm_bytes_max();
  if (use_.warm_bytes <= bound) return {};
  // A quarter more than necessary, so that one call to the system serves many later runs.
  const std::size_t excess = round_up(use_.warm_bytes - bound / 4 * 3, unit_bytes_);
  Run run = warm_.longest();
  warm_.remove(run);
  if (run.size_bytes > excess) {
    const std::size_t left = run.size_bytes - excess;
    warm_.add({run.begin, left}, regions_);
    run = {run.begin + left, excess};
  }
  use_.warm_bytes -= run.size_bytes;
  return run;
}

void PageHeap::give_back(std::byte* run, std::size_t size_bytes) noexcept {
  Run cooling;
  {
    const MutexLock lock(mutex_);
    use_.used_bytes -= size_bytes;
    use_.warm_bytes += size_bytes;
    warm_.add({run, size_bytes}, regions_);
    cooling = next_to_cool();
  }
  // The call to the system is made without the lock; meanwhile the run is in no list.
  while (cooling.size_bytes > 0) {
    source_.cool(cooling.begin, cooling.size_bytes);
    const MutexLock lock(mutex_);
    const Run whole = cold_.add(cooling, regions_);
    const auto region = regions_.find(whole.begin);
    if (region != regions_.end() && region->second == whole.size_bytes) {
      cold_.remove(whole);
      regions_.erase(region);
      use_.mapped_bytes -= whole.size_bytes;
      source_.unmap(whole.begin, whole.size_bytes);
    }
    cooling = next_to_cool();
  }
}

}  // namespace reverie
