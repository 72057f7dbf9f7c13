// TableImage: what a table is beside its items and selectors, as plain values; TableSnapshot: all
// of a table at one moment, read while the table goes on.
//
//     auto snapshots = service.freeze();                  all tables at one moment
//     while (!(records = snapshots[0]->next()).empty())   a segment's at most, under the lock
//     snapshots[0]->write_sampler(out)                    without it
//
// The lock is held for one segment of slots at a time. A change to a segment that was not copied
// out yet copies it first (item_slots.h, segmented_array.h).
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
  // Whether slots say key, priority, time and version.
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

// What a table is restored from. Times are the store's own (TimePoint).
struct RestoredTable {
  TableImage image;
  std::vector<SlotRecord> records;       // of each slot below image.slots.used
  std::vector<Trajectory> trajectories;  // of these; empty where a slot is free
  // Without one, or for a selector of other options, items are inserted in the order of their
  // times.
  std::optional<std::vector<std::byte>> sampler;
  std::optional<std::vector<std::byte>> remover;
};

// One thread.
class TableSnapshot {
 public:
  virtual ~TableSnapshot() = default;  // releases what it kept
  virtual const TableImage& image() const = 0;
  // The next slots in order, as they were; none at the end. What the records refer to lives as long
  // as this object.
  virtual std::vector<SlotRecord> next() = 0;
  // Nothing, and false, where the selector has no state of its own.
  virtual bool write_sampler(ByteWriter& out) const = 0;
  virtual bool write_remover(ByteWriter& out) const = 0;
};

}  // namespace reverie
