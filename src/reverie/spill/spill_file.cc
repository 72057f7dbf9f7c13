// The file of a Spill: the first source of spill.h.
//
// Tested in spill_test.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "reverie/base/log.h"
#include "reverie/spill/spill.h"
#include "reverie/tensor/rounding.h"

namespace reverie::spill {
namespace {

// Address space, which takes no memory: as much as the system grants.
constexpr std::size_t kSpaceBytesMost = std::size_t{1} << 40;
constexpr std::size_t kSpaceBytesLeast = std::size_t{1} << 34;
// Parts of the file begin and end at multiples of this.
constexpr std::size_t kGrainBytes = std::size_t{256} << 10;
// Pages that are dropped with one call.
constexpr std::size_t kRunPagesMax = 1024;
// A shrink continues until this share of the allowed memory is free.
constexpr std::int64_t kFreeShare = 16;

Status error_of(int error, const char* what, const std::string& folder) {
  const std::string text = format("cannot {} the file for chunks in spill_folder '{}': {}", what,
                                  folder, std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return resource_exhausted("{}; free some space, or give another spill_folder", text);
    case EACCES:
    case EPERM:
    case EROFS:
      return Status(StatusCode::kPermissionDenied, text + "; give a folder that may be written to");
    case ENOENT:
    case ENOTDIR:
      return invalid_argument("{}; give an existing folder", text);
    case EOPNOTSUPP:
      return unimplemented("{}; its file system reserves no space; give another spill_folder",
                           text);
    default:
      return data_loss("{}", text);
  }
}

// A file without a name.
Result<int> open_unnamed(const std::string& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    std::string path = folder + "/.reverie-spill-XXXXXX";
    fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) unlink(path.c_str());
  }
  if (fd < 0) return error_of(errno, "make", folder);
  return fd;
}

Status check_bound(std::int64_t bytes) {
  if (bytes >= kMemoryBytesMin) return {};
  return invalid_argument("memory_bytes is {}; it must be at least {}", bytes, kMemoryBytesMin);
}

std::byte* reserve(std::size_t size_bytes, int protection) {
  void* const at =
      mmap(nullptr, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

SpillFile::SpillFile(int fd, std::string folder, std::optional<std::int64_t> memory_bytes,
                     std::byte* base, std::atomic<Page>* pages, std::atomic<bool>* lost,
                     std::size_t space_bytes)
    : fd_(fd),
      folder_(std::move(folder)),
      base_(base),
      states_(pages),
      lost_(lost),
      space_bytes_(space_bytes) {
  if (memory_bytes) all_.pages_max = *memory_bytes / static_cast<std::int64_t>(kPageBytes);
  const MutexLock lock(mutex_);
  free_.emplace(0, space_bytes_);
}

Result<std::unique_ptr<SpillFile>> SpillFile::open(const SpillOptions& options) {
  if (options.memory_bytes) REVERIE_RETURN_IF_ERROR(check_bound(*options.memory_bytes));
  REVERIE_ASSIGN_OR_RETURN(const int fd, open_unnamed(options.folder));
  struct statfs about {};
  if (fstatfs(fd, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC)) {
    close(fd);
    return invalid_argument(
        "'{}' is in memory (tmpfs), so chunks would not leave it; give a spill_folder on a disk",
        options.folder);
  }
  for (std::size_t size = kSpaceBytesMost; size >= kSpaceBytesLeast; size /= 2) {
    std::byte* const base = reserve(size, PROT_NONE);
    if (base == nullptr) continue;
    // The states of all pages, and behind them which ones are lost.
    const std::size_t page_count = size / kPageBytes;
    std::byte* const states =
        reserve(page_count * (sizeof(Page) + sizeof(bool)), PROT_READ | PROT_WRITE);
    if (states == nullptr) {
      munmap(base, size);
      continue;
    }
    madvise(base, size, MADV_DONTDUMP);
    std::unique_ptr<SpillFile> file(new SpillFile(
        fd, options.folder, options.memory_bytes, base,
        reinterpret_cast<std::atomic<Page>*>(states),
        reinterpret_cast<std::atomic<bool>*>(states + page_count * sizeof(Page)), size));
    file->guard_ = GuardedRange::guard(base, size, fd, *file);
    if (file->guard_) {
      file->lost_bytes_ = std::make_unique<LostBytes>(
          std::span<const std::byte>(base, size),
          [file = file.get()](std::span<const std::byte> part) { return file->has_lost(part); });
      return file;
    }
    return resource_exhausted("{} stores with memory_bytes or a journal exist; close one first",
                              GuardedMapping::kMost);
  }
  close(fd);
  return resource_exhausted(
      "{} bytes of address space could not be reserved; raise its limit (ulimit -v)",
      kSpaceBytesLeast);
}

SpillFile::~SpillFile() {
  lost_bytes_.reset();
  guard_.reset();
  munmap(base_, space_bytes_);
  munmap(states_, space_bytes_ / kPageBytes * (sizeof(Page) + sizeof(bool)));
  close(fd_);
}

Status SpillFile::status() {
  const MutexLock lock(mutex_);
  return status_;
}

void SpillFile::note(Status status) {
  const MutexLock lock(mutex_);
  status_ = std::move(status);
}

// --- The file ----------------------------------------------------------------------------------

std::byte* SpillFile::map(std::size_t size_bytes, std::size_t alignment) {
  REVERIE_CHECK(alignment <= kGrainBytes);
  const std::size_t size = round_up(size_bytes, kGrainBytes);
  std::size_t offset = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& part) { return part.second >= size; });
    if (found == free_.end()) {
      status_ = resource_exhausted("the file for chunks in '{}' has reached {} bytes", folder_,
                                   space_bytes_);
      return nullptr;
    }
    offset = found->first;
    const std::size_t left = found->second - size;
    free_.erase(found);
    if (left > 0) free_.emplace(offset + size, left);
  }
  std::byte* const at = base_ + offset;
  int error = 0;
  if (fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) error = errno;
  if (error == 0 && mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
                         static_cast<off_t>(offset)) == MAP_FAILED) {
    error = errno;
  }
  file_bytes_.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  if (error != 0) {
    unmap(at, size);
    note(error_of(error, "enlarge", folder_));
    return nullptr;
  }
  // The system reads only the requested pages, and not their neighbours.
  madvise(at, size, MADV_RANDOM);
  madvise(at, size, MADV_DONTDUMP);
  const std::size_t end = (offset + size) / kPageBytes;
  std::size_t known = end_page_.load(std::memory_order_relaxed);
  while (known < end && !end_page_.compare_exchange_weak(known, end, std::memory_order_relaxed)) {
  }
  return at;
}

void SpillFile::unmap(std::byte* memory, std::size_t size_bytes) {
  const std::size_t size = round_up(size_bytes, kGrainBytes);
  std::size_t offset = static_cast<std::size_t>(memory - base_);
  const Pages pages{offset / kPageBytes, (offset + size) / kPageBytes};
  forget(pages);
  // If it fails the old pages stay, empty, until the next buffer at this place.
  [[maybe_unused]] const void* const gone =
      mmap(memory, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    if (!is_kept(page)) continue;
    states_[page].store(page_of(kAbsent, ChunkMemory::kUnheld), std::memory_order_relaxed);
    lost_[page].store(false, std::memory_order_relaxed);
  }
  (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(size));
  file_bytes_.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  std::size_t end = offset + size;
  const auto after = free_.find(end);
  if (after != free_.end()) {
    end += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      free_.erase(before);
    }
  }
  free_.emplace(offset, end - offset);
}

// The space stays reserved; if the file system supports it, the pages are not written any more.
void SpillFile::cool(std::byte* memory, std::size_t size_bytes) {
  const auto offset = static_cast<off_t>(memory - base_);
  const auto size = static_cast<off_t>(size_bytes);
  madvise(memory, size_bytes, MADV_DONTNEED);
  if (fallocate(fd_, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, size) != 0) {
    (void)posix_fadvise(fd_, offset, size, POSIX_FADV_DONTNEED);
  }
  forget(pages_of({memory, size_bytes}));
}

// --- What is in memory -------------------------------------------------------------------------

SpillFile::Pages SpillFile::pages_of(std::span<const std::byte> range) const {
  const auto address = reinterpret_cast<std::uintptr_t>(range.data());
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (range.empty() || address < base || address - base >= space_bytes_) return {};
  const std::size_t offset = address - base;
  const std::size_t end = std::min(space_bytes_, offset + range.size());
  return {offset / kPageBytes, (end + kPageBytes - 1) / kPageBytes};
}

template <typename Change>
void SpillFile::update(std::size_t page, Change change) {
  Page before = states_[page].load(std::memory_order_relaxed);
  Page after = before;
  do {
    after = change(before);
    if (after == before) return;
  } while (!states_[page].compare_exchange_weak(before, after, std::memory_order_relaxed));
  if (is_counted(before)) add_resident(group_of(before), -1);
  if (is_counted(after)) add_resident(group_of(after), 1);
}

void SpillFile::add_resident(Group group, std::int64_t pages) {
  all_.resident.fetch_add(pages, std::memory_order_relaxed);
  if (group < groups_.size()) groups_[group].resident.fetch_add(pages, std::memory_order_relaxed);
}

void SpillFile::forget(Pages pages) {
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    update(page, [](Page now) {
      return page_of(state_of(now) == kKept ? kKept : kAbsent, ChunkMemory::kUnheld);
    });
  }
}

bool SpillFile::touch(std::span<const std::byte> range) {
  const Pages pages = pages_of(range);
  bool has_come = false;
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    const PageState state = state_of(states_[page].load(std::memory_order_relaxed));
    if (state == kHot || state == kKept) continue;
    update(page, [&](Page now) {
      if (state_of(now) == kKept) return now;
      has_come = has_come || state_of(now) == kAbsent;
      return page_of(kHot, group_of(now));
    });
  }
  return has_come;
}

void SpillFile::begin(std::span<const std::byte> block) {
  Pages pages = pages_of(block);
  if (groups_.empty() || pages.begin == pages.end) return;
  const auto first = static_cast<std::size_t>(block.data() - base_);
  pages.begin = (first + kPageBytes - 1) / kPageBytes;
  pages.end = (first + block.size()) / kPageBytes;
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    update(page, [](Page now) { return page_of(state_of(now), ChunkMemory::kUnheld); });
  }
}

void SpillFile::assign(std::span<const std::byte> range, Group group) {
  const Pages pages = pages_of(range);
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    update(page, [&](Page now) { return page_of(state_of(now), group); });
  }
}

Status SpillFile::set_bound(Group group, std::int64_t bytes) {
  REVERIE_RETURN_IF_ERROR(check_bound(bytes));
  if (group >= ChunkMemory::kGroupsMax) {
    return invalid_argument("a store may have {} tables with memory_bytes of their own at most",
                            ChunkMemory::kGroupsMax);
  }
  while (groups_.size() <= group) groups_.emplace_back();
  groups_[group].pages_max = bytes / static_cast<std::int64_t>(kPageBytes);
  return {};
}

std::optional<std::int64_t> SpillFile::memory_bytes() const {
  if (all_.pages_max == Bounded::kNone) return std::nullopt;
  return all_.pages_max * static_cast<std::int64_t>(kPageBytes);
}

void SpillFile::read_ahead(std::span<const std::byte> range) const {
  const Pages pages = pages_of(range);
  if (pages.begin == pages.end) return;
  madvise(base_ + pages.begin * kPageBytes, (pages.end - pages.begin) * kPageBytes, MADV_WILLNEED);
}

void SpillFile::load(std::span<const std::byte> range) const {
  const Pages pages = pages_of(range);
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    if (!is_counted(states_[page].load(std::memory_order_relaxed))) continue;
    const auto* const byte = reinterpret_cast<const unsigned char*>(base_ + page * kPageBytes);
    (void)__atomic_load_n(byte, __ATOMIC_RELAXED);
  }
}

bool SpillFile::has_lost(std::span<const std::byte> range) const {
  if (!LostBytes::any()) return false;
  const Pages pages = pages_of(range);
  for (std::size_t page = pages.begin; page < pages.end; ++page) {
    if (lost_[page].load(std::memory_order_relaxed)) return true;
  }
  return false;
}

bool SpillFile::is_replaced(std::size_t offset) noexcept {
  return is_kept(offset / kPageBytes);
}

void SpillFile::on_replace(std::size_t offset, bool is_whole) noexcept {
  const std::size_t page = offset / kPageBytes;
  update(page, [](Page now) { return page_of(kKept, group_of(now)); });
  if (is_whole) return;
  lost_[page].store(true, std::memory_order_relaxed);
  LostBytes::announce();
}

void SpillFile::shrink() {
  const auto is_over = [](const Bounded& bounded) { return bounded.is_over(); };
  if (!all_.is_over() && std::none_of(groups_.begin(), groups_.end(), is_over)) return;
  if (!fork_guard_.check("store").ok()) return;
  const MutexLock lock(hand_mutex_);
  for (Group group = 0; group < groups_.size(); ++group) shrink(groups_[group], group);
  shrink(all_, std::nullopt);
}

void SpillFile::shrink(Bounded& bounded, std::optional<Group> group) {
  if (!bounded.is_over()) return;
  const std::int64_t goal = bounded.pages_max - bounded.pages_max / kFreeShare;
  // The first round of the hand may find only hot pages.
  for (int round = 0; round < 2 && !is_broken_; ++round) {
    const std::int64_t over = bounded.resident.load(std::memory_order_relaxed) - goal;
    if (over <= 0) return;
    sweep(bounded, group, over);
  }
}

// Pages that are marked as absent are dropped with their neighbours: a reader may have
// caused them to be read without a mark.
void SpillFile::sweep(Bounded& bounded, std::optional<Group> group, std::int64_t wanted) {
  const std::size_t end = end_page_.load(std::memory_order_relaxed);
  std::vector<Pages> runs;
  std::int64_t dropped = 0;
  Pages run;
  std::int64_t run_count = 0;  // of pages in it that were in memory
  const auto close_run = [&] {
    if (run_count > 0) runs.push_back(run);
    run_count = 0;
    run = {};
  };
  for (std::size_t step = 0; step < end && dropped < wanted; ++step) {
    if (bounded.hand >= end) {
      close_run();
      bounded.hand = 0;
    }
    const std::size_t page = bounded.hand++;
    Page now = states_[page].load(std::memory_order_relaxed);
    const bool is_others = state_of(now) != kAbsent && group && group_of(now) != *group;
    if (is_others || state_of(now) == kKept) {
      close_run();
      continue;
    }
    if (state_of(now) == kHot) {
      states_[page].compare_exchange_strong(now, page_of(kWarm, group_of(now)),
                                            std::memory_order_relaxed);
      close_run();
      continue;
    }
    if (state_of(now) == kWarm) {
      if (!states_[page].compare_exchange_strong(now, page_of(kAbsent, group_of(now)),
                                                 std::memory_order_relaxed)) {
        close_run();
        continue;
      }
      add_resident(group_of(now), -1);
      ++dropped;
      ++run_count;
    } else if (run_count == 0) {
      continue;
    }
    if (run.end != page) run = {page, page};
    run.end = page + 1;
    if (run.end - run.begin >= kRunPagesMax) close_run();
  }
  close_run();
  drop(runs);
}

void SpillFile::drop(const std::vector<Pages>& runs) {
  const auto offset_of = [](const Pages& run) {
    return static_cast<off_t>(run.begin * kPageBytes);
  };
  const auto size_of = [](const Pages& run) {
    return static_cast<off_t>((run.end - run.begin) * kPageBytes);
  };
  for (const Pages& run : runs) {
    (void)sync_file_range(fd_, offset_of(run), size_of(run), SYNC_FILE_RANGE_WRITE);
  }
  for (const Pages& run : runs) {
    if (sync_file_range(fd_, offset_of(run), size_of(run),
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) != 0) {
      is_broken_ = true;
      Status why = error_of(errno, "write", folder_);
      log_warning("{}; chunks stay in memory from now on", why.message());
      note(std::move(why));
      return;
    }
    // A page may have been replaced since the hand has passed: it is in no file.
    bool has_kept = false;
    for (std::size_t page = run.begin; page < run.end; ++page) has_kept = has_kept || is_kept(page);
    if (has_kept) continue;
    madvise(base_ + offset_of(run), static_cast<std::size_t>(size_of(run)), MADV_DONTNEED);
    for (std::size_t page = run.begin; page < run.end; ++page) {
      if (!is_kept(page)) continue;
      // It was replaced since the check above, and its replacement may be what was dropped.
      lost_[page].store(true, std::memory_order_relaxed);
      LostBytes::announce();
    }
    (void)posix_fadvise(fd_, offset_of(run), size_of(run), POSIX_FADV_DONTNEED);
  }
}

}  // namespace reverie::spill
