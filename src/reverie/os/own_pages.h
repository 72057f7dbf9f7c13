// Which pages of a copy-on-write mapping have been written to, and are this process's own.
#pragma once

#include <cstddef>
#include <span>

namespace reverie {

// Whether the pages of `bytes`, a part of a file or memfd that is mapped copy on write, hold
// anything that was written here; true where the system cannot say. A few microseconds a megabyte.
// Requires that `bytes` begins with a page. Thread-safe.
bool has_own_pages(std::span<const std::byte> bytes);

}  // namespace reverie
