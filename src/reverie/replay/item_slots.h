// ItemSlots: a table's items in memory, found by a dense slot number.
//
//     keyed           [ trajectory, draws, generation | key, priority, time, version ]   64 bytes
//     not keyed       [ trajectory, draws, generation ]                                  32 bytes
//
// In a keyed table an item is one cache line, else half of one. Items are in segments of some
// hundreds, so growing never moves an item, and segments in slabs, which use large pages once there
// are many: draws hit random places. A freed slot is reused first. Each occupant of a slot has its
// own generation: slot and generation together are the ticket that tells an item from its
// successors in the slot.
//
// In a table that is not keyed an item may be *lean*: its trajectory holds no share in what it
// refers to, since the table holds one share for many items. One bit per slot marks it. In a keyed
// table such a bit marks items that are *redelivered*: a draw of theirs was undone because its
// reader went away. Those bits take memory from the first such item on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "reverie/record/item.h"
#include "reverie/sum_tree/segmented_array.h"
#include "reverie/sum_tree/slot.h"
#include "reverie/tensor/slab_allocator.h"

namespace reverie {

// The part of an item that a draw needs.
struct alignas(32) BriefItem {
  Trajectory trajectory;           // empty: the slot is free
  std::int32_t times_sampled = 0;  // in a free slot: the next free one
  std::uint32_t generation = 0;    // from 1 on while the slot is in use

  Ticket ticket(Slot slot) const { return {slot, generation}; }
};
static_assert(sizeof(BriefItem) == 32);

struct alignas(64) StoredItem : BriefItem {
  ItemKey key = 0;
  double priority = 0;
  std::int64_t inserted_at_ns = 0;
  std::int64_t version = 0;
};
static_assert(sizeof(StoredItem) == 64);

// One slot as it was when its table was frozen. Plain: the table's pin keeps what it refers to.
struct SlotRecord {
  TrajectoryView trajectory;       // no layout: the slot was free
  std::int32_t times_sampled = 0;  // in a free slot: the next free one
  std::uint32_t generation = 0;
  bool is_redelivered = false;
  // Zeros if the table is not keyed.
  ItemKey key = 0;
  double priority = 0;
  std::int64_t inserted_at_ns = 0;
  std::int64_t version = 0;
};

// Not thread-safe.
class ItemSlots {
 public:
  static constexpr std::size_t kSegmentSlots = 512;  // 32 KiB at most: few page faults under a lock
  static constexpr std::size_t kMaxSlots = kNoSlot;

  // If `memory` is null, it makes its own slabs. `memory` outlives this.
  explicit ItemSlots(bool is_keyed, Allocator* memory = nullptr)
      : slot_shift_(is_keyed ? 6 : 5),
        slabs_(memory == nullptr ? SlabAllocator::make(segment_bytes()) : nullptr),
        memory_(memory == nullptr ? *slabs_ : *memory) {}
  ItemSlots(const ItemSlots&) = delete;
  ItemSlots& operator=(const ItemSlots&) = delete;
  ~ItemSlots() {
    for (std::size_t slot = 0; slot < segments_.size() * kSegmentSlots; ++slot) {
      std::destroy_at(&(*this)[static_cast<Slot>(slot)]);
    }
  }

  bool is_keyed() const { return slot_shift_ == 6; }
  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const {
    return segments_.size() * segment_bytes() + lean_.memory_bytes() + redelivered_.memory_bytes();
  }

  BriefItem& operator[](Slot slot) { return *reinterpret_cast<BriefItem*>(place_of(slot)); }
  const BriefItem& operator[](Slot slot) const {
    return *reinterpret_cast<const BriefItem*>(place_of(slot));
  }
  // The item with key and times. Requires is_keyed().
  StoredItem& whole(Slot slot) { return static_cast<StoredItem&>((*this)[slot]); }
  const StoredItem& whole(Slot slot) const { return static_cast<const StoredItem&>((*this)[slot]); }
  void prefetch(Slot slot) const { __builtin_prefetch(&(*this)[slot]); }

  // A free slot, with a new generation; kNoSlot, without effect, if there is no memory. Requires
  // size() < kMaxSlots.
  Slot take() {
    if (first_free_ != kNoSlot) will_change(first_free_);
    Slot slot = first_free_;
    if (slot == kNoSlot) {
      if (used_ == reach() && !add_segment()) return kNoSlot;
      slot = used_++;
    } else {
      first_free_ = static_cast<Slot>((*this)[slot].times_sampled);
    }
    begin_generation((*this)[slot]);
    ++size_;
    return slot;
  }
  // Gives a slot in use to another occupant. Requires will_change() before, and that the item's
  // trajectory was moved out.
  BriefItem& retake(Slot slot) {
    BriefItem& item = (*this)[slot];
    begin_generation(item);
    return item;
  }
  // Makes tickets of `before`, which this replaces, stale here. Requires that no slot was taken.
  void continue_generations(const ItemSlots& before) {
    // Lower than all that can wrap: a slot must not run out of generations above it.
    first_generation_ = newest_generation_ = before.newest_generation_ % (1u << 31);
  }
  // Requires that the item's trajectory was moved out.
  void give_back(Slot slot) {
    will_change(slot);
    set_redelivered(slot, false);
    (*this)[slot].times_sampled = static_cast<std::int32_t>(first_free_);
    first_free_ = slot;
    --size_;
  }
  // Never in a table that is not keyed.
  bool is_redelivered(Slot slot) const {
    return slot / kBits < redelivered_.capacity() &&
           ((redelivered_[slot / kBits] >> (slot % kBits)) & 1) != 0;
  }
  bool has_redelivered() const { return redelivered_.capacity() > 0; }
  // Call will_change() before. No effect in a table that is not keyed, or if there is no memory for
  // the mark.
  void set_redelivered(Slot slot, bool is_redelivered) {
    if (slot / kBits >= redelivered_.capacity()) {
      if (!is_redelivered || !is_keyed()) return;
      try {
        redelivered_.reach(slot / kBits, 0);
      } catch (const std::bad_alloc&) {
        return;
      }
    }
    set_bit(redelivered_, slot, is_redelivered);
  }
  // Slots below this need no more memory.
  Slot reach() const { return static_cast<Slot>(segments_.size() * kSegmentSlots); }
  // Whether the slot's item is lean. Requires a slot below reach(). Never in a keyed table.
  bool is_lean(Slot slot) const {
    return !is_keyed() && ((lean_[slot / kBits] >> (slot % kBits)) & 1) != 0;
  }
  void set_lean(Slot slot, bool is_lean) { set_bit(lean_, slot, is_lean); }
  // The memory of the slots, null if memory was given. After slot 0 of a segment was taken it is
  // time to call populate_ahead(), not under a lock.
  static bool begins_segment(Slot slot) { return slot % kSegmentSlots == 0; }
  const std::shared_ptr<SlabAllocator>& slabs() const { return slabs_; }

  // The item of a ticket, null if it is gone.
  BriefItem* find(Ticket ticket) {
    if (ticket.slot >= used_) return nullptr;
    BriefItem& item = (*this)[ticket.slot];
    return item.generation == ticket.generation && !item.trajectory.empty() ? &item : nullptr;
  }
  // Whether a ticket is older than all occupants here: from an object that this one replaced.
  bool predates_reset(Ticket ticket) const { return ticket.generation <= first_generation_; }
  // All slots that were ever in use are below this.
  Slot used() const { return used_; }

  // --- Checkpoints. Between freeze() and thaw() each segment is copied as it was: in order by
  // next_frozen(), or earlier by the first change to one of its slots. If there is no memory for a
  // copy, the copies are given up, and the change is made.

  // The numbers besides the slots.
  struct Numbers {
    Slot used = 0;
    Slot first_free = kNoSlot;
    std::uint32_t first_generation = 0;
    std::uint32_t newest_generation = 0;
  };
  Numbers numbers() const { return {used_, first_free_, first_generation_, newest_generation_}; }
  // Only one freeze at a time.
  void freeze() { frozen_ = std::make_unique<Frozen>(used_); }
  void thaw() { frozen_.reset(); }
  // Call before any change of a slot's item, except those that take() and give_back() make.
  void will_change(Slot slot) {
    if (frozen_) [[unlikely]] {
      keep(slot / kSegmentSlots);
    }
  }
  // The next records, at most a segment's; empty at the end, and if the copies were given up.
  // Requires freeze().
  std::vector<SlotRecord> next_frozen() {
    Frozen& frozen = *frozen_;
    if (frozen.next < frozen.copies.size()) keep(frozen.next);
    if (frozen.next >= frozen.copies.size()) return {};
    return std::move(frozen.copies[frozen.next++]);
  }
  // Requires freeze().
  bool has_given_up() const { return frozen_->is_given_up; }
  void give_up_frozen() {
    frozen_->is_given_up = true;
    frozen_->copies = {};
  }
  // Restores an empty object: first `numbers`, then restore_slot() for each slot below their end,
  // in order. False if there is no memory. Requires that take() was never called.
  bool restore(const Numbers& numbers) {
    while (reach() < numbers.used) {
      if (!add_segment()) return false;
    }
    used_ = numbers.used;
    first_free_ = numbers.first_free;
    first_generation_ = numbers.first_generation;
    newest_generation_ = numbers.newest_generation;
    return true;
  }
  // Ignores the record's trajectory and takes `trajectory`, its equal, or empty.
  void restore_slot(Slot slot, const SlotRecord& record, Trajectory trajectory) {
    BriefItem& item = (*this)[slot];
    if (!trajectory.empty()) ++size_;
    item.trajectory = std::move(trajectory);
    item.times_sampled = record.times_sampled;
    item.generation = record.generation;
    if (!is_keyed()) return;
    StoredItem& stored = whole(slot);
    stored.key = record.key;
    stored.priority = record.priority;
    stored.inserted_at_ns = record.inserted_at_ns;
    stored.version = record.version;
    if (record.is_redelivered) set_redelivered(slot, true);
  }

 private:
  static constexpr Slot kBits = 64;
  using Bits = SegmentedArray<std::uint64_t, 64>;  // by slot

  static void set_bit(Bits& bits, Slot slot, bool value) {
    const std::uint64_t bit = std::uint64_t{1} << (slot % kBits);
    std::uint64_t& word = bits[slot / kBits];
    word = value ? word | bit : word & ~bit;
  }

  std::size_t segment_bytes() const { return kSegmentSlots << slot_shift_; }
  std::byte* place_of(Slot slot) const {
    return const_cast<std::byte*>(segments_[slot / kSegmentSlots].data()) +
           ((slot % kSegmentSlots) << slot_shift_);
  }

  struct Frozen {
    explicit Frozen(Slot slot_count)
        : used(slot_count), copies((slot_count + kSegmentSlots - 1) / kSegmentSlots) {}
    Slot used;
    std::size_t next = 0;                         // the first not returned yet
    std::vector<std::vector<SlotRecord>> copies;  // empty: not copied yet, or returned
    bool is_given_up = false;
  };

  void keep(std::size_t segment) {
    Frozen& frozen = *frozen_;
    if (segment < frozen.next || segment >= frozen.copies.size()) return;
    std::vector<SlotRecord>& copy = frozen.copies[segment];
    if (!copy.empty()) return;
    const std::size_t begin = segment * kSegmentSlots;
    const std::size_t end = std::min<std::size_t>(begin + kSegmentSlots, frozen.used);
    try {
      copy.resize(end - begin);
    } catch (const std::bad_alloc&) {
      give_up_frozen();
      return;
    }
    for (std::size_t i = begin; i < end; ++i) {
      const auto slot = static_cast<Slot>(i);
      const BriefItem& item = (*this)[slot];
      SlotRecord& record = copy[i - begin];
      record.trajectory = item.trajectory.view();
      record.times_sampled = item.times_sampled;
      record.generation = item.generation;
      if (!is_keyed()) continue;
      const StoredItem& stored = whole(slot);
      record.key = stored.key;
      record.priority = stored.priority;
      record.inserted_at_ns = stored.inserted_at_ns;
      record.version = stored.version;
      record.is_redelivered = is_redelivered(slot);
    }
  }

  void begin_generation(BriefItem& item) {
    item.generation = std::max(item.generation, first_generation_) + 1;
    if (item.generation == 0) item.generation = first_generation_ + 1;
    newest_generation_ = std::max(newest_generation_, item.generation);
  }

  // False if there is no memory.
  bool add_segment() {
    Result<Buffer> memory = memory_.allocate(segment_bytes());
    if (!memory.ok()) return false;
    try {
      if (!is_keyed()) lean_.reach((reach() + kSegmentSlots - 1) / kBits, 0);
      segments_.push_back(std::move(memory).value());
    } catch (const std::bad_alloc&) {
      return false;
    }
    std::byte* const begin = segments_.back().data();
    for (std::size_t i = 0; i < kSegmentSlots; ++i) {
      std::byte* const place = begin + (i << slot_shift_);
      if (is_keyed()) {
        new (place) StoredItem;
      } else {
        new (place) BriefItem;
      }
    }
    return true;
  }

  const int slot_shift_;                        // log2 of the size of a slot
  const std::shared_ptr<SlabAllocator> slabs_;  // null if memory was given
  Allocator& memory_;
  std::vector<Buffer> segments_;
  Bits lean_;         // empty if keyed
  Bits redelivered_;  // empty if not keyed, and until the first is
  std::size_t size_ = 0;
  Slot used_ = 0;
  Slot first_free_ = kNoSlot;
  std::uint32_t first_generation_ = 0;   // generations here are above it
  std::uint32_t newest_generation_ = 0;  // of any occupant
  std::unique_ptr<Frozen> frozen_;
};

}  // namespace reverie
