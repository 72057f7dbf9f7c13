// HeldVersion: a version of weights as a peer has it, where others of its host map it, and how it
// differs from the one before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/rpc/message.h"

namespace reverie {

struct WeightsVersion {
  std::uint64_t version = 0;
  // What was published. Its bulk is one piece, which keeps the memory.
  Payload value;
};

// Memory that other processes of the host open by /proc.
struct WeightsPlace {
  std::int64_t pid = 0;
  std::int64_t fd = -1;  // -1: there is none
  std::array<std::uint64_t, 2> nonce{};
};

// What of a version's bulk differs from an older version's: blocks of kChangedBlock bytes, from
// offset block * kChangedBlock on, one behind the other; the last of a bulk may be shorter.
inline constexpr std::size_t kChangedBlock = 4096;
struct WeightsChanges {
  std::uint64_t base = 0;  // the older version
  std::vector<std::uint32_t> blocks;
  BulkPiece bytes;
  std::uint32_t checksum = 0;  // crc32c of the whole new bulk
};

struct HeldVersion {
  std::shared_ptr<const WeightsVersion> about;  // null for none
  WeightsPlace place;
  std::shared_ptr<const void> memory;             // keeps the place
  std::shared_ptr<const WeightsChanges> changes;  // null where nothing is known of them
};

// A version without a place.
HeldVersion held_version(std::uint64_t version, std::vector<std::byte> head, BulkPiece bulk);

// None where the two have not arrays of the same names, types and shapes, or more than half of the
// bulk differs. Compares every byte. Requires bulks of one piece each.
std::optional<WeightsChanges> find_changes(const WeightsVersion& older,
                                           const WeightsVersion& newer);
// `older` with the changes. DATA_LOSS if that is not what the changes were found in: for blocks
// beyond the bulk, another checksum; RESOURCE_EXHAUSTED without memory.
Result<HeldVersion> apply_changes(const WeightsVersion& older, std::uint64_t version,
                                  const std::shared_ptr<const WeightsChanges>& changes);

}  // namespace reverie
