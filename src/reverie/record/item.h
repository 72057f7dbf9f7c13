// Item: what a table orders, samples and removes.
#pragma once

#include <cstdint>
#include <optional>

#include "reverie/record/trajectory.h"

namespace reverie {

using ItemKey = std::uint64_t;

// An item as a writer makes it.
struct Item {
  ItemKey key = 0;
  // No value: the largest priority that the table has seen.
  std::optional<double> priority;
  Trajectory trajectory;
  std::int64_t version = 0;  // of the weights that acted; the store only carries it
};

// An item's slot in its table, and which occupant of that slot it is. An update with a ticket needs
// no look-up by key, and a stale ticket is recognised.
struct Ticket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;

  std::uint64_t packed() const { return (std::uint64_t{generation} << 32) | slot; }
  static Ticket unpack(std::uint64_t packed) {
    return {static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
  }
};

}  // namespace reverie
