// ChunkMemory: where the chunks of a store lie that may be larger than memory.
//
//     batch drawn --> prefetch(its rows) --> read as ever: addresses never change
//
// spill/spill.h is the one that ships.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/tensor/buffer.h"

namespace reverie {

// Thread-safe. Lives until its last buffer was given back.
class ChunkMemory : public Allocator {
 public:
  using Range = std::span<const std::byte>;
  // These bytes are read next: what of them is not in memory begins to be read, all at once, and
  // other bytes may leave memory for them. Other ranges are ignored.
  virtual void prefetch(std::span<const Range> ranges) = 0;
};

}  // namespace reverie
