// Tested in src/reverie/record/chunk_test.cc.
#include "reverie/tensor/buffer.h"

#include <cstdlib>

#include "reverie/tensor/rounding.h"

namespace reverie {
namespace {

constexpr std::size_t kLargeBytes = 4096;

class HeapAllocator final : public Allocator, public BufferOwner {
 public:
  Result<Buffer> allocate(std::size_t size_bytes) override {
    if (size_bytes == 0) return Buffer();
    void* data = nullptr;
    if (size_bytes < kLargeBytes) {
      data = std::malloc(size_bytes);
    } else if (size_bytes <= static_cast<std::size_t>(-1) - kLineBytes) {
      data = std::aligned_alloc(kLineBytes, round_up(size_bytes, kLineBytes));
    }
    if (data == nullptr) {
      return resource_exhausted(
          "{} bytes of memory could not be allocated; store fewer or smaller items", size_bytes);
    }
    return Buffer(static_cast<std::byte*>(data), size_bytes, this);
  }

  void take_back(std::byte* data, std::size_t) noexcept override { std::free(data); }
};

}  // namespace

Allocator& Allocator::heap() {
  static auto* const allocator = new HeapAllocator;  // buffers may outlive static destruction
  return *allocator;
}

}  // namespace reverie
