#include "reverie/os/memory_size.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include <malloc.h>
#include <unistd.h>

namespace reverie {
namespace {

// A container sees its own group at the root. A missing file, or "max" in it, means no bound.
std::size_t group_limit_bytes() {
  for (const char* const path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::size_t bytes = 0;
    if (file >> bytes && bytes > 0) return bytes;
  }
  return std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::size_t memory_size_bytes() {
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return std::min(pages * page_bytes, group_limit_bytes());
}

void give_back_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace reverie
