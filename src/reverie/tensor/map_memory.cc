// Tested in page_heap_test.cc and block_heap_test.cc.
#include "reverie/tensor/map_memory.h"

#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>

#include "reverie/tensor/page_source.h"

namespace reverie {

std::byte* map_aligned(std::size_t size_bytes, std::size_t alignment) {
  if (size_bytes > ~std::size_t{0} - alignment) return nullptr;
  if constexpr (kIsAddressSanitized) {
    if (size_bytes > kSanitizedBytesMax) return nullptr;
    return static_cast<std::byte*>(std::aligned_alloc(alignment, size_bytes));
  }
  void* const mapped = mmap(nullptr, size_bytes + alignment, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t before = (address + alignment - 1) / alignment * alignment - address;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + size_bytes, alignment - before);
  return begin + before;
}

void unmap(std::byte* memory, std::size_t size_bytes) {
  if constexpr (kIsAddressSanitized) return std::free(memory);
  munmap(memory, size_bytes);
}

PageSource& PageSource::anonymous() {
  class Anonymous final : public PageSource {
   public:
    std::byte* map(std::size_t size_bytes, std::size_t alignment) override {
      return map_aligned(size_bytes, alignment);
    }
    void unmap(std::byte* memory, std::size_t size_bytes) override {
      reverie::unmap(memory, size_bytes);
    }
    void cool(std::byte* memory, std::size_t size_bytes) override {
      madvise(memory, size_bytes, MADV_DONTNEED);
    }
  };
  static Anonymous* const source = new Anonymous;  // never destroyed, like the heaps that use it
  return *source;
}

}  // namespace reverie
