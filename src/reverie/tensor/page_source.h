// PageSource: where a PageHeap has its address space and its memory from.
#pragma once

#include <cstddef>

namespace reverie {

// Thread-safe. Outlives the heaps over it.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Address space that takes no memory until it is touched. Null on failure. Requires a multiple of
  // the page, and an alignment that is a power of two and a page at least.
  virtual std::byte* map(std::size_t size_bytes, std::size_t alignment) = 0;
  // Requires what map() gave, with its size.
  virtual void unmap(std::byte* memory, std::size_t size_bytes) = 0;
  // Gives the memory of some pages back and keeps their addresses; what was in them is lost.
  virtual void cool(std::byte* memory, std::size_t size_bytes) = 0;

  // What is mapped at once, unless a single run is longer.
  virtual std::size_t region_bytes_max() const { return std::size_t{64} << 20; }

  // Memory of the system, which no file is behind.
  static PageSource& anonymous();
};

}  // namespace reverie
