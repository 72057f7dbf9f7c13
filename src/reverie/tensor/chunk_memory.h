// ChunkMemory: where the chunks of a store lie that may be larger than memory.
//
//     batch drawn --> prefetch(its rows) --> read as ever: addresses never change
//
// Bytes belong to groups, each with a bound of its own on how many of them are in memory, beside
// the bound on all. Bytes that are allocated belong to kUnheld until they are assigned.
//
// spill/spill.h is the one that ships.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "reverie/base/status.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Thread-safe. Lives until its last buffer was given back.
class ChunkMemory : public Allocator {
 public:
  using Range = std::span<const std::byte>;
  // These bytes are read next: what of them is not in memory begins to be read, all at once, and
  // other bytes may leave memory for them. Other ranges are ignored.
  virtual void prefetch(std::span<const Range> ranges) = 0;

  using Group = std::uint32_t;
  static constexpr Group kUnheld = 0;
  static constexpr Group kGroupsMax = 16'000;
  // The bound on all, if there is one.
  virtual std::optional<std::int64_t> memory_bytes() const = 0;
  // Sets the bound of a group; a group without one has that on all alone. INVALID_ARGUMENT for a
  // bound that is too small, or a group from kGroupsMax on. Not beside another call.
  virtual Status set_bound(Group group, std::int64_t bytes) = 0;
  // These bytes belong to `group` now. Nothing leaves memory before the next shrink().
  virtual void assign(std::span<const Range> ranges, Group group) = 0;
  // Bytes leave memory until no bound is passed. Cheap where none is.
  virtual void shrink() = 0;
};

}  // namespace reverie
