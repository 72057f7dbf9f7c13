// HeldVersion: a version of weights that a peer has, where others on its host can map it, and how
// it differs from the version before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

struct WeightsVersion {
  std::uint64_t version = 0;
  // The published value. Its bulk is one piece, which keeps the memory.
  Payload value;
};

// Memory that other processes on the host open through /proc.
struct WeightsPlace {
  std::int64_t pid = 0;
  std::int64_t fd = -1;  // -1: there is none
  std::array<std::uint64_t, 2> nonce{};
};

// The differences between a version's bulk and an older version's: blocks of kChangedBlock bytes at
// offset block * kChangedBlock, one after another; the last block of a bulk may be shorter.
inline constexpr std::size_t kChangedBlock = 4096;
struct WeightsChanges {
  std::uint64_t base = 0;  // the older version
  std::vector<std::uint32_t> blocks;
  BulkPiece bytes;
  std::uint32_t checksum = 0;  // crc32c of the whole new bulk
};

struct HeldVersion {
  std::shared_ptr<const WeightsVersion> about;  // may be null
  std::uint64_t run = 0;                        // of its publisher; a later run has a higher number
  WeightsPlace place;
  std::shared_ptr<const void> memory;             // keeps the place
  std::shared_ptr<const WeightsChanges> changes;  // null if they are not known
};

// A version without a place.
HeldVersion held_version(std::uint64_t version, std::vector<std::byte> head, BulkPiece bulk);

// None if the two differ in names, types or shapes of arrays, or more than half of the bulk
// differs. Compares every byte. Requires bulks of one piece each.
std::optional<WeightsChanges> find_changes(const WeightsVersion& older,
                                           const WeightsVersion& newer);
// Applies the changes to `older`. DATA_LOSS if they do not belong to it: blocks beyond the bulk, or
// another checksum; RESOURCE_EXHAUSTED if there is no memory.
Result<HeldVersion> apply_changes(const WeightsVersion& older, std::uint64_t version,
                                  const std::shared_ptr<const WeightsChanges>& changes);

}  // namespace reverie
