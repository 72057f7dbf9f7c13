// Blocks of an allocator that show whether another block was written over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reverie/tensor/buffer.h"

namespace reverie::test {

// A block filled with its own number.
struct MarkedBlock {
  Buffer buffer;
  unsigned char mark;

  bool is_whole() const {
    for (const std::byte b : buffer.bytes()) {
      if (b != std::byte{mark}) return false;
    }
    return true;
  }
};

inline MarkedBlock take_marked(Allocator& allocator, std::size_t size, std::uint64_t mark) {
  MarkedBlock marked{allocator.allocate(size).value(), static_cast<unsigned char>(mark)};
  std::memset(marked.buffer.data(), marked.mark, size);
  return marked;
}

}  // namespace reverie::test
