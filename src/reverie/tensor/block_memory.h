// Memory from the process's BlockHeap, for code that does not include block_heap.h.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace reverie {

// Null if there is no memory. A block is given back with the size that was requested. Requires
// size_bytes > 0. Thread-safe.
void* take_block(std::size_t size_bytes);
void give_back_block(void* block, std::size_t size_bytes) noexcept;
// The bytes that a block of `size_bytes` takes.
std::size_t block_bytes(std::size_t size_bytes);

// For standard containers that live as long as a chunk.
template <typename T>
struct BlockAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard's name

  BlockAllocator() = default;
  template <typename U>
  BlockAllocator(const BlockAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    void* const block = take_block(count * sizeof(T));
    if (block == nullptr) throw std::bad_alloc();
    return static_cast<T*>(block);
  }
  void deallocate(T* data, std::size_t count) noexcept { give_back_block(data, count * sizeof(T)); }
  friend bool operator==(BlockAllocator, BlockAllocator) { return true; }
};

// Bytes whose size is known when they are made or grow: what a chunk is encoded into.
using ByteBlock = std::vector<std::byte, BlockAllocator<std::byte>>;

// Derive from it, and `new` takes memory from the BlockHeap.
struct OnBlockHeap {
  static void* operator new(std::size_t size_bytes) {
    return BlockAllocator<std::byte>().allocate(size_bytes);
  }
  static void operator delete(void* block, std::size_t size_bytes) noexcept {
    give_back_block(block, size_bytes);
  }
};

}  // namespace reverie
