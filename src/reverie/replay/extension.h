// TableExtension: code that runs with each operation of a table, atomically with it.
//
// Hooks are called under the table's lock, so they see and change one consistent state, and must be
// short: no I/O, no waiting, no call back into the store. An extension stores what it knows about
// an item by slot; a slot is reused after on_delete.
//
// Included: extensions/statistics.h, extensions/priority_diffusion.h. A user's own extension is
// registered by name (registry.h) and may be in a shared library (plugin.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/replay/item_slots.h"

namespace reverie {

// A table as its extensions see it. Valid during a hook.
class TableAccess {
 public:
  virtual std::size_t size() const = 0;
  virtual TimePoint now() const = 0;
  // Requires a slot that is in use.
  virtual const StoredItem& item(Slot slot) const = 0;
  // Changes an item's priority without calling on_update again. INVALID_ARGUMENT if a selector
  // cannot hold it; then the old one stays.
  virtual Status set_priority(Slot slot, double priority) = 0;

 protected:
  ~TableAccess() = default;
};

class TableExtension {
 public:
  virtual ~TableExtension() = default;

  // The name that it is registered under.
  virtual std::string_view name() const = 0;

  // After the item is in the table and its selectors.
  virtual void on_insert(TableAccess&, Slot) {}
  // After times_sampled went up, before a removal that the sample causes.
  virtual void on_sample(TableAccess&, Slot) {}
  // After the new priority is in place; through a mutate, or an insert of an existing key.
  virtual void on_update(TableAccess&, Slot, double /*old_priority*/) {}
  // While the item is still there.
  virtual void on_delete(TableAccess&, Slot) {}
  // Called instead of on_delete for each item.
  virtual void on_reset() {}

  // --- Checkpoints. What an extension can recompute from the items needs no state. The state to
  // keep in a checkpoint. Called under the lock too. Times as nanoseconds since 1970: a TimePoint
  // plus `calendar_offset_ns`.
  virtual std::string save(std::int64_t /*calendar_offset_ns*/) const { return {}; }
  // Called instead of on_insert for each item of a checkpoint, in the order of their times of
  // insertion.
  virtual void on_restore(TableAccess& table, Slot slot) { on_insert(table, slot); }
  // Called once, after these, with the result of save(). DATA_LOSS for an impossible state.
  virtual Status restore(std::string_view /*state*/, std::int64_t /*calendar_offset_ns*/) {
    return {};
  }

  // Figures for people, by name. Called under the lock too.
  virtual std::map<std::string, double> summary(TimePoint /*now*/) const { return {}; }
};

}  // namespace reverie
