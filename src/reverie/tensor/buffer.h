// Bytes with an owner, and the allocators that make them.
//
// A Buffer is a pointer, a size and the owner that gets the bytes back: a heap, a receive buffer
// that many buffers view, later a shared arena. It is move-only; holders share the counted object
// around it (a Chunk), never the bytes. The bytes contain no reference count.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "reverie/base/status.h"

namespace reverie {

// Takes bytes back. Thread-safe; must outlive its buffers.
class BufferOwner {
 public:
  virtual ~BufferOwner() = default;
  virtual void take_back(std::byte* data, std::size_t size_bytes) noexcept = 0;
};

class Buffer {
 public:
  Buffer() = default;
  // `owner` may be null: the bytes are borrowed and outlive the buffer.
  Buffer(std::byte* data, std::size_t size_bytes, BufferOwner* owner)
      : data_(data), size_bytes_(size_bytes), owner_(owner) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)),
        owner_(std::exchange(other.owner_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~Buffer() {
    if (owner_) owner_->take_back(data_, size_bytes_);
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  BufferOwner* owner_ = nullptr;
};

// Where chunks and batches take their memory from. Thread-safe; outlives its buffers.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Not zeroed. Aligned to 16 bytes, to 64 from 4 KiB on. RESOURCE_EXHAUSTED if there is no memory.
  virtual Result<Buffer> allocate(std::size_t size_bytes) = 0;

  // The C heap.
  static Allocator& heap();
};

}  // namespace reverie
