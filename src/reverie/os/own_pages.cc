// Uses PAGEMAP_SCAN of Linux 6.7 and later, which older systems' headers lack.
#include "reverie/os/own_pages.h"

#include <cstdint>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "reverie/base/fork.h"

namespace reverie {
namespace {

struct PageRegion {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};

struct PageScan {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t regions;
  std::uint64_t region_count;
  std::uint64_t page_count_max;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_any;
  std::uint64_t return_mask;
};

constexpr std::uint64_t kIsFile = 1u << 2u;
constexpr std::uint64_t kIsPresent = 1u << 3u;
constexpr std::uint64_t kIsSwapped = 1u << 4u;
const auto kScan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t kPageBytes = 4096;

// The process's own page map; a forked child inherits its parent's, which does not describe the
// child.
struct PageMap {
  const int fd = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const std::uint32_t generation = fork_generation();
};

}  // namespace

bool has_own_pages(std::span<const std::byte> bytes) {
  static const auto* const map = new PageMap;
  if (map->fd < 0 || map->generation != fork_generation()) return true;
  PageRegion found{};
  PageScan scan{};
  scan.size = sizeof(scan);
  scan.start = reinterpret_cast<std::uint64_t>(bytes.data());
  scan.end = (scan.start + bytes.size() + kPageBytes - 1) / kPageBytes * kPageBytes;
  scan.regions = reinterpret_cast<std::uint64_t>(&found);
  scan.region_count = 1;
  scan.page_count_max = 1;
  // Pages that are present and do not belong to the file.
  scan.category_inverted = kIsFile;
  scan.category_mask = kIsFile;
  scan.category_any = kIsPresent | kIsSwapped;
  scan.return_mask = kIsPresent;
  return ::ioctl(map->fd, kScan, &scan) != 0;
}

}  // namespace reverie
