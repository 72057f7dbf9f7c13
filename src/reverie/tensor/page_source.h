// PageSource: where a PageHeap gets its address space and its memory.
#pragma once

#include <cstddef>

namespace reverie {

// Thread-safe. Outlives the heaps that use it.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Address space that takes no memory until it is touched. Null on failure. Requires a multiple of
  // the page size, and an alignment that is a power of two, at least a page.
  virtual std::byte* map(std::size_t size_bytes, std::size_t alignment) = 0;
  // Requires what map() gave, with its size.
  virtual void unmap(std::byte* memory, std::size_t size_bytes) = 0;
  // Gives the memory of some pages back and keeps their addresses; their contents are lost.
  virtual void cool(std::byte* memory, std::size_t size_bytes) = 0;

  // Bytes that are mapped at once, unless a single run is longer.
  virtual std::size_t region_bytes_max() const { return std::size_t{64} << 20; }

  // Anonymous memory of the system, backed by no file.
  static PageSource& anonymous();
};

}  // namespace reverie
