// LostBytes: memory whose bytes are gone, because a disk could not read them back.
//
// Such memory reads as zeros, so that the process goes on (os/guarded_mapping.h). Code that has
// read rows of it asks afterwards, and does not use them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace reverie {

// Thread-safe. Registers memory for as long as it lives.
class LostBytes {
 public:
  // Whether a part of these bytes of the memory is gone; may run on any thread.
  using HasLost = std::function<bool(std::span<const std::byte> part)>;

  LostBytes(std::span<const std::byte> memory, HasLost has_lost);
  LostBytes(const LostBytes&) = delete;
  LostBytes& operator=(const LostBytes&) = delete;
  ~LostBytes();

  // For the memory's owner, when it has lost the first bytes. May be called in a signal handler.
  static void announce() noexcept;
  // Whether any memory in this process has lost bytes, ever: one load.
  static bool any() noexcept;
  // Whether a part of these bytes is gone. Memory that is not registered loses nothing.
  static bool overlap(std::span<const std::byte> bytes);

 private:
  friend struct LostBytesList;

  const std::span<const std::byte> memory_;
  const HasLost has_lost_;
};

}  // namespace reverie
