// The memory of versions of weights, which the processes of a host map.
//
//     [ nonce, version, sizes ][ head ].....[ bulk ]
//
// It is written once per version, and never while a process holds it: os/shared_memory.h explains
// how that is known, also when processes die. Memory that no process holds any more is reused for
// the next version: a copy to existing pages costs a fifth of one to fresh pages.
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
  // Copies the version there. RESOURCE_EXHAUSTED if there is no memory.
  Result<HeldVersion> copy(std::uint64_t version, const Payload& value);

 private:
  struct Taken;
  // Memory reserved for the version that is being written.
  Result<Taken> take(std::size_t size_bytes);

  std::vector<std::shared_ptr<const SharedMemory>> made_;
  std::shared_ptr<const SharedMemory> spare_;  // reserved
};

// Maps what another process on this host holds, and holds it until its last user releases it.
// Writes to it are private to this process. UNAVAILABLE if it cannot be accessed, or is another
// version by now.
Result<HeldVersion> map_version(const WeightsPlace& place, std::uint64_t version);
// Copies it to private memory of this process.
Result<HeldVersion> copy_version(std::uint64_t version, const Payload& value);

}  // namespace reverie
