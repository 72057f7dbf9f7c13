// Saves a TableCore to a checkpoint and restores it.
#include <algorithm>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "reverie/record/table_difference.h"
#include "reverie/replay/table_core.h"

namespace reverie {
namespace {

// DATA_LOSS unless the free slots are in one list that begins with `first`.
Status check_free_list(std::span<const SlotRecord> records, std::span<const std::uint8_t> is_in,
                       Slot first) {
  std::size_t left =
      records.size() - static_cast<std::size_t>(std::count(is_in.begin(), is_in.end(), 1));
  // A cyclic list would be longer than the number of free slots.
  for (Slot slot = first; slot != kNoSlot;) {
    if (slot >= records.size() || is_in[slot] != 0 || left-- == 0) {
      return data_loss("the list of free slots is broken at slot {}", slot);
    }
    slot = static_cast<Slot>(records[slot].times_sampled);
  }
  if (left > 0) return data_loss("{} free slots are in no list", left);
  return {};
}

// The occupied slots, sorted by their items' times of insertion.
std::vector<Slot> by_time(std::span<const SlotRecord> records,
                          std::span<const std::uint8_t> is_in) {
  std::vector<Slot> slots;
  for (std::size_t slot = 0; slot < records.size(); ++slot) {
    if (is_in[slot] != 0) slots.push_back(static_cast<Slot>(slot));
  }
  std::stable_sort(slots.begin(), slots.end(), [&](Slot a, Slot b) {
    return records[a].inserted_at_ns < records[b].inserted_at_ns;
  });
  return slots;
}

Status restore_selector(Selector& selector, const std::optional<std::vector<std::byte>>& state,
                        std::span<const SlotRecord> records, std::span<const std::uint8_t> is_in) {
  if (!state) {
    for (const Slot slot : by_time(records, is_in)) selector.insert(slot, records[slot].priority);
    return {};
  }
  ByteReader in(*state);
  const SlotChecks checks(is_in);
  REVERIE_RETURN_IF_ERROR(selector.restore(in, checks));
  if (!in.is_done()) {
    return data_loss("the state of selector '{}' has {} bytes, which is not the expected size",
                     selector.name(), state->size());
  }
  return checks.finish();
}

}  // namespace

Result<TableCore::Frozen> TableCore::freeze(std::int64_t calendar_offset_ns) {
  if (is_frozen_) {
    return failed_precondition(
        "table '{}' is in a checkpoint that is being written; wait for that one", options_.name);
  }
  Frozen frozen;
  frozen.state = state_;
  try {
    TableImage& image = frozen.image;
    image.options = options_;
    image.has_records = state_->slots.is_keyed();
    image.limiter = limiter_.counts();
    image.max_priority = max_priority_;
    image.num_deleted_episodes = num_deleted_episodes_;
    image.num_unique_samples = num_unique_samples_;
    image.corrupt_items = corrupt_items_;
    image.slots = state_->slots.numbers();
    for (const auto& extension : extensions_) {
      image.extension_states.push_back(extension->save(calendar_offset_ns));
    }
    state_->slots.freeze();
    frozen.sampler = state_->sampler->freeze();
    frozen.remover = state_->remover->freeze();
    frozen.pin = limbo_.pin();
  } catch (const std::bad_alloc&) {
    state_->slots.thaw();
    state_->sampler->thaw();
    state_->remover->thaw();
    return resource_exhausted("table '{}': there is no memory to begin a checkpoint; free some",
                              options_.name);
  }
  is_frozen_ = true;
  return frozen;
}

Result<std::vector<SlotRecord>> TableCore::next_frozen(Frozen& frozen) {
  std::vector<SlotRecord> records = frozen.state->slots.next_frozen();
  if (frozen.state->slots.has_given_up()) return not_kept(frozen);
  return records;
}

Status TableCore::not_kept(const Frozen& frozen) {
  return resource_exhausted(
      "table '{}' changed while its checkpoint was written, and there was no memory to keep it as "
      "it was; free memory, or save while fewer items are inserted and drawn",
      frozen.image.options.name);
}

void TableCore::thaw(Frozen& frozen, Aftermath& after) {
  frozen.state->slots.thaw();
  frozen.state->sampler->thaw();
  frozen.state->remover->thaw();
  limbo_.unpin(frozen.pin, after.garbage);
  // A state that was reset meanwhile is freed with the rest.
  after.has_freed_bytes |= frozen.state != state_;
  after.garbage.add(std::move(frozen.state));
  is_frozen_ = false;
}

Status TableCore::restore(RestoredTable& table, TimePoint now, std::int64_t calendar_offset_ns) {
  now_ = now;
  const TableImage& image = table.image;
  ItemSlots& slots = state_->slots;
  const std::vector<SlotRecord>& records = table.records;
  if (slots.used() != 0 || limiter_.counts().inserts != 0) {
    return failed_precondition(
        "table '{}' holds or held items; a checkpoint can only be restored into an unused store",
        options_.name);
  }
  if (records.size() != image.slots.used || table.trajectories.size() != records.size() ||
      image.has_records != slots.is_keyed()) {
    return data_loss("table '{}' has {} slots and {} items, and its image says {}", options_.name,
                     records.size(), table.trajectories.size(), image.slots.used);
  }
  std::vector<std::uint8_t> is_in(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) is_in[i] = table.trajectories[i].empty() ? 0 : 1;
  REVERIE_RETURN_IF_ERROR(check_free_list(records, is_in, image.slots.first_free));

  if (!slots.restore(image.slots)) return no_memory();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const SlotRecord& record = records[i];
    const auto slot = static_cast<Slot>(i);
    if (is_in[i] != 0) {
      REVERIE_RETURN_IF_ERROR(check_restored(record, table.trajectories[i].view(), image));
      if (options_.is_keyed && !state_->keys.insert(record.key, slot)) {
        return data_loss("table '{}' has two items of key {}", options_.name, record.key);
      }
    }
    slots.restore_slot(slot, record, std::move(table.trajectories[i]));
    if (is_in[i] != 0 && !count_in(slots[slot].trajectory)) return no_memory();
  }
  const RateLimiter::Counts& counts = image.limiter;
  if (counts.inserts - counts.deletes != static_cast<std::int64_t>(slots.size())) {
    return data_loss("table '{}' has {} items, and its limiter counts {} inserts and {} deletes",
                     options_.name, slots.size(), counts.inserts, counts.deletes);
  }
  limiter_.set_counts(counts);
  has_evicted_ = counts.deletes > 0;  // which of them were evictions is not recorded
  REVERIE_RETURN_IF_ERROR(restore_selector(*state_->sampler, table.sampler, records, is_in)
                              .with_context(format("table '{}', sampler", options_.name)));
  REVERIE_RETURN_IF_ERROR(restore_selector(*state_->remover, table.remover, records, is_in)
                              .with_context(format("table '{}', remover", options_.name)));
  // As take_slot() does when it begins a segment; this one may be half full.
  if (slots.reach() > 0) {
    state_->sampler->reserve(slots.reach());
    state_->remover->reserve(slots.reach());
  }
  if (rules_->check_priority(image.max_priority).ok()) {
    max_priority_ = image.max_priority;
  } else {
    // The highest that the stored table has seen; this one's selectors may hold less.
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (is_in[i] != 0) max_priority_ = std::max(max_priority_, records[i].priority);
    }
  }
  num_deleted_episodes_ = image.num_deleted_episodes;
  num_unique_samples_ = image.num_unique_samples;
  corrupt_items_ = image.corrupt_items;
  for (std::size_t e = 0; e < extensions_.size(); ++e) {
    const bool is_known = e < image.options.extensions.size() &&
                          e < image.extension_states.size() &&
                          image.options.extensions[e] == options_.extensions[e];
    for (const Slot slot : by_time(records, is_in)) {
      if (is_known) {
        extensions_[e]->on_restore(*this, slot);
      } else {
        extensions_[e]->on_insert(*this, slot);
      }
    }
    if (!is_known) continue;
    REVERIE_RETURN_IF_ERROR(extensions_[e]
                                ->restore(image.extension_states[e], calendar_offset_ns)
                                .with_context(format("table '{}', extension '{}'", options_.name,
                                                     extensions_[e]->name())));
  }
  // If this table is smaller than the stored one.
  Aftermath after;
  if (image.options.max_size > options_.max_size) {
    while (size() > static_cast<std::size_t>(options_.max_size)) evict(after);
  }
  while (is_over_bytes()) evict(after);
  return {};
}

// The checkpoint's own table took each of its items. So one that this table refuses is damaged only
// if that table would have refused it too.
Status TableCore::check_restored(const SlotRecord& record, const TrajectoryView& trajectory,
                                 const TableImage& image) const {
  const TableOptions& theirs = image.options;
  bool is_damaged = true;
  Status status = check_trajectory(trajectory);
  if (status.ok() && options_.signature && options_.checks_items) {
    status = check_signature(trajectory, *options_.signature);
    is_damaged = status.ok() || (theirs.checks_items && theirs.signature == options_.signature);
  }
  if (status.ok() && state_->slots.is_keyed()) {
    status = rules_->check_priority(record.priority);
    is_damaged = status.ok() || (is_same_component(theirs.sampler, options_.sampler) &&
                                 is_same_component(theirs.remover, options_.remover));
  }
  if (status.ok() && (record.times_sampled < 0 || record.generation == 0 ||
                      record.generation > image.slots.newest_generation)) {
    status = data_loss("times_sampled is {} and generation {} of at most {}", record.times_sampled,
                       record.generation, image.slots.newest_generation);
  }
  if (status.ok()) return {};
  const std::string where = format("item {} of table '{}'", record.key, options_.name);
  if (is_damaged) return Status(StatusCode::kDataLoss, status.message()).with_context(where);
  return failed_precondition(
      "{}: {}; the checkpoint is not damaged: give the table the signature and the selectors that "
      "it has there, or give on_mismatch=\"theirs\" or \"drop\"",
      where, status.message());
}

}  // namespace reverie
