// TableCore: one table as a state machine, without lock, thread or clock.
//
//     key --KeyMap--> slot --+--> BriefItem or StoredItem (ItemSlots)
//                            +--> sampler  (draws)
//                            +--> remover  (evicts)
//                            +--> extensions
//     RateLimiter decides when; Limbo frees what is removed
//
// Semantics: Reverb's (Cassirer et al. 2021, section 3), so an item is inserted first and the
// remover picks a victim afterwards, which may be the new item itself. Differs: an item that a
// selector cannot hold is refused alone, before anything changes; a queue regains its place when an
// item is deleted (rate_limiter.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/replay/chunk_store.h"
#include "reverie/replay/extension.h"
#include "reverie/replay/item_slots.h"
#include "reverie/replay/limbo.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/replay/registry.h"
#include "reverie/replay/table_image.h"
#include "reverie/replay/table_rules.h"
#include "reverie/selectors/selector.h"
#include "reverie/service/sample_batch.h"
#include "reverie/sum_tree/key_map.h"

namespace reverie {

// What an operation leaves to do once the lock is released.
struct Aftermath {
  Garbage garbage;
  bool has_freed_bytes = false;
  std::shared_ptr<SlabAllocator> growing;  // wants populate_ahead(); mostly null
};

// Not thread-safe.
class TableCore final : private TableAccess {
 public:
  // NOT_FOUND and INVALID_ARGUMENT name the option, its value and the bound. `item_memory` is where
  // items are kept; null: the table's own slabs. Both outlive it.
  static Result<std::unique_ptr<TableCore>> make(TableOptions options, const Registry& registry,
                                                 ChunkStore& chunks,
                                                 Allocator* item_memory = nullptr);
  ~TableCore();

  const TableOptions& options() const { return options_; }
  // The immutable part; needs no lock.
  const std::shared_ptr<const TableRules>& shared_rules() const { return rules_; }
  const TableRules& rules() const { return *rules_; }
  const RateLimiter& limiter() const { return limiter_; }
  std::size_t size() const override { return state_->slots.size(); }
  double max_priority() const { return max_priority_; }

  // --- Inserts
  bool can_insert() const { return limiter_.can_insert(1); }
  // Whether the store's budget allows this item now, or insert() makes room for it.
  bool has_room(const Item& item) const {
    if (!chunks_.max_bytes() || makes_room()) return true;
    return chunks_.has_room(ChunkStore::new_bytes(item.trajectory.view()));
  }
  // Requires a checked item and can_insert(). An existing key only gets the new priority.
  // RESOURCE_EXHAUSTED if there is no memory: the item and the table are unchanged.
  Status insert(Item&& item, TimePoint now, Aftermath& after);
  // Inserts items without key and version, with the largest priority so far, as one-by-one inserts
  // would; but in a full table new items take the slots of those that leave, and selectors are
  // updated once for all. The caller keeps what they refer to until the call returns. Returns how
  // many items were inserted: all; or 0, without effect, if the limiter refuses that many, there is
  // no memory, or they are more than max_size. Requires rules().takes_views().
  std::size_t insert_views(std::span<const TrajectoryView> items, TimePoint now, Aftermath& after);
  // The slot of the item of the last insert(), and the items that it evicted.
  Slot inserted_slot() const { return inserted_slot_; }
  std::span<const Slot> evicted() const { return evicted_; }

  // --- Samples
  // How many draws the limiter allows now.
  std::int64_t sample_allowance() const { return size() == 0 ? 0 : limiter_.sample_allowance(); }
  // Draws up to `count` items into `batch`, as many as are allowed; returns how many. With
  // `distinct` no item that is in `batch` already; the probabilities are then those of a single
  // draw (distinct_probabilities.h). The caller pins.
  std::size_t sample(std::size_t count, bool distinct, TimePoint now, SampleBatch& batch,
                     Aftermath& after);
  // Adds up to `count` items to `batch` in the remover's order, after the first `skip`: with Fifo
  // the oldest first. The sampler draws nothing, and nothing is counted. Returns how many; O(skip +
  // count). The caller pins.
  std::size_t read(std::size_t skip, std::size_t count, SampleBatch& batch);
  // The probability of the least likely item in a single draw now; 0 if the sampler cannot tell.
  double least_probability();
  // The total weight of the items; see Selector::mass().
  double sampler_mass() { return state_->sampler->mass(); }
  // Undoes draws [begin, end) of `batch`, the last first; see ReplayService::hand_back(). Returns
  // how many items can be drawn again: not those that were deleted or evicted since.
  std::size_t take_back(const SampleBatch& batch, std::size_t begin, std::size_t end, TimePoint now,
                        Aftermath& after);
  std::uint64_t pin() { return limbo_.pin(); }
  void unpin(std::uint64_t pin, Aftermath& after) {
    limbo_.unpin(pin, after.garbage);
    after.has_freed_bytes |= after.garbage.has_states();
  }

  // --- By key or ticket. Require checked priorities. Return how many were found.
  std::size_t update_by_ticket(std::span<const std::uint64_t> tickets,
                               std::span<const double> priorities, TimePoint now);
  std::size_t update_by_key(std::span<const ItemKey> keys, std::span<const double> priorities,
                            TimePoint now);
  // The items that the latest of these two calls found.
  std::span<const Slot> updated_slots() const { return slots_; }
  std::span<const double> updated_priorities() const { return values_; }
  std::size_t erase(std::span<const ItemKey> keys, TimePoint now, Aftermath& after);
  // Undoes `draws` draws of an item, removes it, and counts it. Returns the keys of its chunks;
  // empty if there is no such item: it is counted if it may have left with its last sample.
  std::vector<ChunkKey> erase_corrupt(ItemKey key, std::size_t draws, TimePoint now,
                                      Aftermath& after);
  std::int64_t corrupt_items() const { return corrupt_items_; }
  // The item's priority and ticket, if it is there.
  struct Found {
    double priority;
    Ticket ticket;
  };
  std::optional<Found> find(ItemKey key) const;

  void reset(Aftermath& after);

  // Everything except what the surrounding Table counts.
  TableInfo info() const;
  std::map<std::string, double> extension_summary(std::size_t index, TimePoint now) const;

  // The table's memory besides the data of its chunks.
  std::size_t memory_bytes() const;

  // --- Changes from a log (store_log.h), applied again (table_replay.cc). DATA_LOSS for a change
  // that this table cannot have made. Random generators do not advance.
  Status replay_insert(Item&& item, Slot slot, std::span<const Slot> evicted, TimePoint now,
                       Aftermath& after);
  Status replay_updates(std::span<const Slot> slots, std::span<const double> priorities,
                        TimePoint now);
  // Draws these slots, one after another. `on_draw` gets each draw as a batch of one, before its
  // item is removed.
  Status replay_samples(std::span<const Slot> slots, TimePoint now, Aftermath& after,
                        const std::function<void(const SampleBatch&)>& on_draw = {});
  // Counts samples of items that stay; negative if samples were undone.
  Status replay_draws(std::int64_t count);

  // --- Checkpoints (table_freeze.cc).
 private:
  struct State;

 public:
  // The table as it was, until thaw().
  struct Frozen {
    TableImage image;
    std::shared_ptr<State> state;
    std::unique_ptr<SelectorState> sampler;  // null if it has no state; read without the lock
    std::unique_ptr<SelectorState> remover;
    std::uint64_t pin = 0;
  };
  // FAILED_PRECONDITION if the table is frozen already, RESOURCE_EXHAUSTED if there is no memory.
  // Costs a directory of pointers.
  Result<Frozen> freeze(std::int64_t calendar_offset_ns);
  // The next records, at most a segment's, in order; empty at the end. not_kept() if the table
  // changed without memory to keep it as it was.
  static Result<std::vector<SlotRecord>> next_frozen(Frozen& frozen);
  static Status not_kept(const Frozen& frozen);
  void thaw(Frozen& frozen, Aftermath& after);
  // Restores an unused table from `table`; takes its trajectories. DATA_LOSS for an impossible
  // state, FAILED_PRECONDITION if the table was used, or refuses an item that the stored one took;
  // after an error the table must not be used.
  Status restore(RestoredTable& table, TimePoint now, std::int64_t calendar_offset_ns);

 private:
  Status check_restored(const SlotRecord& record, const TrajectoryView& trajectory,
                        const TableImage& image) const;

  TableCore(std::shared_ptr<const TableRules> rules, RateLimiter limiter, ChunkStore& chunks,
            std::unique_ptr<Selector> sampler, std::unique_ptr<Selector> remover,
            std::vector<std::unique_ptr<TableExtension>> extensions, Allocator* item_memory);

  // TableAccess, for the extensions.
  TimePoint now() const override { return now_; }
  const StoredItem& item(Slot slot) const override { return state_->slots.whole(slot); }
  Status set_priority(Slot slot, double priority) override;

  // A slot, with room in the selectors; kNoSlot if there is no memory.
  Slot take_slot(Aftermath& after);
  enum class KeyInsert { kDone, kThere, kNoMemory };
  KeyInsert insert_key(ItemKey key, Slot slot);
  Status no_memory() const;
  void set_checked_priority(Slot slot, double priority);
  void update(Slot slot, double priority);
  // How many samples the limiter must not wait for once the item is gone.
  std::int64_t waived(const BriefItem& item) const;
  void remove(Slot slot, Aftermath& after);
  // Returns the bytes of the item without its chunks.
  std::int64_t evict(Aftermath& after);
  // Evicts items until that many bytes are free, while the store is beyond its bound.
  void evict_for(std::int64_t bytes, Aftermath& after);
  // The part of insert_views() that may fail for lack of memory: then false, without effect. Puts
  // the items' slots into slots_, first the slots of the `leaving` items that leave.
  bool prepare_views(std::span<const TrajectoryView> items, std::size_t leaving, Aftermath& after);
  // Moves a slot's trajectory out and discharges it. True if it is lean; the slot stays marked.
  bool take_out(Slot slot, Aftermath& after) {
    BriefItem& stored = state_->slots[slot];
    if (!state_->slots.is_lean(slot)) {
      count_out(stored.trajectory);
      limbo_.remove(std::move(stored.trajectory), after.garbage);
      return false;
    }
    Ref<const Chunk> unused = chunks_.remove_shared(*stored.trajectory.view().one.chunk);
    if (unused) limbo_.remove(std::move(unused), after.garbage);
    stored.trajectory.forget();
    return true;
  }
  // insert() without the evictions. `is_new`: an item was added.
  Status put_in(Item&& item, TimePoint now, Aftermath& after, bool& is_new);
  Status check_in_use(Slot slot) const;
  // Counts draws [begin, begin + count) of slots_ and values_, and adds them to the batch.
  void add_to_batch(std::size_t begin, std::size_t count, SampleBatch& batch);
  // Fills slots_ and values_ with up to `count` draws; returns how many.
  std::size_t draw(std::size_t count, bool distinct, const SampleBatch& batch);
  // Sets the priorities of the items in slots_ to values_.
  void update_all();

  // Charges an item's chunks. False, without effect, if there is no memory.
  bool count_in(const Trajectory& trajectory);
  void count_out(const Trajectory& trajectory);
  // Parts of these: only the store's ChunkHolders, after a chunk is charged; everything but them.
  bool hold(const Trajectory& trajectory);
  void uncount(const Trajectory& trajectory);
  // Whether an insert without room in the store evicts items of this table, and does not wait: a
  // full table would wait for ever. So would one that has evicted, if no samples remove its items.
  bool makes_room() const {
    const bool is_full = size() >= static_cast<std::size_t>(options_.max_size);
    return size() > 0 && (is_full || (has_evicted_ && options_.max_times_sampled < 1));
  }
  bool is_over_bytes() const {
    return options_.max_bytes && account_->bytes() > *options_.max_bytes;
  }

  // Everything that a reset replaces: swapped out under the lock, freed after it.
  struct State {
    State(ChunkStore& chunks_of_store, const TableOptions& options, bool has_records,
          Allocator* item_memory)
        : chunk_store(chunks_of_store),
          slots(has_records, item_memory),
          owner(next_owner()),
          group(chunk_store.holders() ? chunk_store.holders()->group_of(options)
                                      : ChunkMemory::kUnheld) {}
    static std::uint32_t next_owner();
    ~State();  // discharges its items from the store's account
    void release(const Trajectory& trajectory);
    // Keeps the layout of lean items as long as this lives.
    void keep_layout(const Layout* layout);

    ChunkStore& chunk_store;
    ItemSlots slots;
    const std::uint32_t owner;       // of the chunks that lean items refer to
    const ChunkMemory::Group group;  // of this table's chunks; see ChunkHolders
    std::unordered_map<const Layout*, Ref<const Layout>> layouts;
    const Layout* last_layout = nullptr;
    KeyMap keys;
    KeyMap episodes;  // episode -> its pieces in this table
    KeyMap chunks;    // chunk -> its pieces in this table; only with max_bytes
    std::unique_ptr<Selector> sampler;
    std::unique_ptr<Selector> remover;
  };

  const std::shared_ptr<const TableRules> rules_;
  const TableOptions& options_;  // owned by the rules
  ChunkStore& chunks_;
  Allocator* const item_memory_;
  RateLimiter limiter_;
  std::shared_ptr<State> state_;
  std::vector<std::unique_ptr<TableExtension>> extensions_;
  Limbo limbo_;
  TimePoint now_;  // of the current operation
  double max_priority_ = 1.0;
  Ref<ByteAccount> account_ = make_ref<ByteAccount>();  // of this table's chunks, if max_bytes
  std::int64_t num_deleted_episodes_ = 0;
  std::int64_t num_unique_samples_ = 0;
  std::int64_t corrupt_items_ = 0;
  bool is_frozen_ = false;
  bool has_evicted_ = false;
  // The effects of the last insert.
  Slot inserted_slot_ = kNoSlot;
  std::vector<Slot> evicted_;
  // Working memory of an operation, reused.
  std::vector<Slot> slots_;
  std::vector<double> values_;
  std::vector<Trajectory> owned_;
};

}  // namespace reverie
