// The memory that versions of weights lie in, where the processes of a host map it.
//
//     [ nonce, version, sizes ][ head ].....[ bulk ]
//
// It is written once for each version, and never while a process holds it: os/shared_memory.h says
// how that is known, also when processes die. Memory that no process holds any more is used for the
// next version: its pages are there, and a copy to such costs a fifth of one to fresh pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/shared_memory.h"
#include "reverie/weights/held_version.h"

namespace reverie {

// Not thread-safe.
class VersionMemory {
 public:
  // A copy of the version there. RESOURCE_EXHAUSTED without memory.
  Result<HeldVersion> copy(std::uint64_t version, const Payload& value);

 private:
  struct Taken;
  // Reserved for the version that is written to it.
  Result<Taken> take(std::size_t size_bytes);

  std::vector<std::shared_ptr<const SharedMemory>> made_;
  std::shared_ptr<const SharedMemory> spare_;  // reserved
};

// Maps what another process of this host holds; it is held until the last that has it lets it go.
// What is written to it here is seen here alone. UNAVAILABLE where it cannot be seen from here, or
// is another version by now.
Result<HeldVersion> map_version(const WeightsPlace& place, std::uint64_t version);
// A copy in memory of this process alone.
Result<HeldVersion> copy_version(std::uint64_t version, const Payload& value);

}  // namespace reverie
