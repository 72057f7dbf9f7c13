// TableImage: the state of a table besides its items and selectors, as plain values; TableSnapshot:
// all of a table at one moment, read while the table is in use.
//
//     auto snapshots = service.freeze();                  all tables at one moment
//     while (!(records = snapshots[0]->next()).empty())   at most a segment, under the lock
//     snapshots[0]->write_sampler(out)                    without the lock
//
// The lock is held for one segment of slots at a time. A change to a segment that was not copied
// yet copies it first (item_slots.h, segmented_array.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/codec/byte_stream.h"
#include "reverie/record/table_info.h"
#include "reverie/record/trajectory.h"
#include "reverie/replay/item_slots.h"
#include "reverie/replay/rate_limiter.h"

namespace reverie {

struct TableImage {
  TableOptions options;
  // Whether slots contain key, priority, time and version.
  bool has_records = true;
  RateLimiter::Counts limiter;
  double max_priority = 1.0;
  std::int64_t num_deleted_episodes = 0;
  std::int64_t num_unique_samples = 0;
  std::int64_t missing_updates = 0;
  std::int64_t corrupt_items = 0;
  ItemSlots::Numbers slots;
  std::vector<std::string> extension_states;  // one per extension
};

// What a table is restored from. Times are on the store's clock (TimePoint).
struct RestoredTable {
  TableImage image;
  std::vector<SlotRecord> records;       // of each slot below image.slots.used
  std::vector<Trajectory> trajectories;  // of the same slots; empty if a slot is free
  // Without it, or if the selector has other options, items are inserted in the order of their
  // times.
  std::optional<std::vector<std::byte>> sampler;
  std::optional<std::vector<std::byte>> remover;
};

// Not thread-safe.
class TableSnapshot {
 public:
  virtual ~TableSnapshot() = default;  // releases what it kept
  virtual const TableImage& image() const = 0;
  // Each may be RESOURCE_EXHAUSTED: the table changed without memory to keep it as it was.

  // The next slots in order, as they were; empty at the end. What the records refer to lives as
  // long as this object.
  virtual Result<std::vector<SlotRecord>> next() = 0;
  // False, without output, if the selector has no state.
  virtual Result<bool> write_sampler(ByteWriter& out) const = 0;
  virtual Result<bool> write_remover(ByteWriter& out) const = 0;
};

}  // namespace reverie
