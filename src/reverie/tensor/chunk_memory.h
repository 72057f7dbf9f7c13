// ChunkMemory: holds the chunks of a store that may be larger than memory.
//
//     batch drawn --> prefetch(its rows) --> read as ever: addresses never change
//
// Bytes belong to groups. Each group has a bound on how many of its bytes are in memory, besides
// the bound on all bytes. Bytes that are allocated belong to kUnheld until they are assigned.
//
// The implementation is spill/spill.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "reverie/base/status.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Thread-safe. Lives until its last buffer is given back.
class ChunkMemory : public Allocator {
 public:
  using Range = std::span<const std::byte>;
  // Announces that these bytes are read next: those not in memory are loaded, all at once, before
  // it returns, and other bytes may leave memory for them. Ranges of other memory are ignored.
  virtual void prefetch(std::span<const Range> ranges) = 0;

  using Group = std::uint32_t;
  static constexpr Group kUnheld = 0;
  static constexpr Group kGroupsMax = 16'000;
  // The bound on all, if there is one.
  virtual std::optional<std::int64_t> memory_bytes() const = 0;
  // Sets the bound of a group; without it only the bound on all bytes applies. INVALID_ARGUMENT if
  // the bound is too small, or group >= kGroupsMax. Must not run concurrently with another call.
  virtual Status set_bound(Group group, std::int64_t bytes) = 0;
  // Assigns these bytes to `group`. Nothing leaves memory before the next shrink().
  virtual void assign(std::span<const Range> ranges, Group group) = 0;
  // Moves bytes out of memory until no bound is exceeded. Cheap if none is.
  virtual void shrink() = 0;
};

}  // namespace reverie
