// ItemSlots: where a table's items lie, one cache line each, found by a dense slot number.
//
// Items live in segments of some hundreds, so growing never moves one, and segments in slabs, which
// are in large pages once there are many: draws land all over them. A freed slot is the next to be
// given out. Each occupant of a slot has its own generation: slot and generation together
// are the ticket that tells an item from its successors in the same place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "reverie/record/item.h"
#include "reverie/replay/slot.h"
#include "reverie/tensor/slab_allocator.h"

namespace reverie {

struct alignas(64) StoredItem {
  Trajectory trajectory;  // empty: the slot is free
  ItemKey key = 0;
  double priority = 0;
  std::int64_t inserted_at_ns = 0;
  std::int64_t version = 0;
  std::int32_t times_sampled = 0;
  std::uint32_t generation = 0;  // from 1 on while the slot is in use

  Ticket ticket(Slot slot) const { return {slot, generation}; }
};
static_assert(sizeof(StoredItem) == 64);

// Not thread-safe.
class ItemSlots {
 public:
  static constexpr std::size_t kSegmentSlots =
      512;  // 32 KiB: few pages to be faulted in under a lock
  static constexpr std::size_t kMaxSlots = kNoSlot;

  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const { return segments_.size() * sizeof(Segment); }

  StoredItem& operator[](Slot slot) {
    return (*segments_[slot / kSegmentSlots])[slot % kSegmentSlots];
  }
  const StoredItem& operator[](Slot slot) const {
    return (*segments_[slot / kSegmentSlots])[slot % kSegmentSlots];
  }
  void prefetch(Slot slot) const { __builtin_prefetch(&(*this)[slot]); }

  // A free slot, with a generation of its own. Requires size() < kMaxSlots.
  Slot take() {
    Slot slot = first_free_;
    if (slot == kNoSlot) {
      slot = used_++;
      if (slot / kSegmentSlots == segments_.size()) add_segment();
    } else {
      first_free_ = static_cast<Slot>((*this)[slot].key);  // a free slot's key links to the next
    }
    StoredItem& item = (*this)[slot];
    item.generation = std::max(item.generation, first_generation_) + 1;
    if (item.generation == 0) item.generation = 1;
    newest_generation_ = std::max(newest_generation_, item.generation);
    ++size_;
    return slot;
  }
  // Tickets of `before`, whose place these slots take, are stale here. Requires that none is taken.
  void continue_generations(const ItemSlots& before) {
    first_generation_ = newest_generation_ = before.newest_generation_;
  }
  // Requires that the item's trajectory was taken out.
  void give_back(Slot slot) {
    (*this)[slot].key = first_free_;
    first_free_ = slot;
    --size_;
  }
  // Where the slots lie. Slot 0 of a segment is the time to populate_ahead(), not under a lock.
  static bool begins_segment(Slot slot) { return slot % kSegmentSlots == 0; }
  const std::shared_ptr<SlabAllocator>& slabs() const { return slabs_; }

  // The item of a ticket, null when it is gone.
  StoredItem* find(Ticket ticket) {
    if (ticket.slot >= used_) return nullptr;
    StoredItem& item = (*this)[ticket.slot];
    return item.generation == ticket.generation && !item.trajectory.empty() ? &item : nullptr;
  }
  // Slots below this one were in use at some time.
  Slot used() const { return used_; }

 private:
  using Segment = std::array<StoredItem, kSegmentSlots>;
  struct Destroy {
    void operator()(Segment* segment) const { std::destroy_at(segment); }
  };

  void add_segment() {
    buffers_.push_back(slabs_->allocate(sizeof(Segment)).value());
    segments_.emplace_back(new (buffers_.back().data()) Segment);
  }

  std::shared_ptr<SlabAllocator> slabs_ = SlabAllocator::make(sizeof(Segment));
  std::vector<Buffer> buffers_;  // of the segments
  std::vector<std::unique_ptr<Segment, Destroy>> segments_;
  std::size_t size_ = 0;
  Slot used_ = 0;
  Slot first_free_ = kNoSlot;
  std::uint32_t first_generation_ = 0;   // of no occupant here: generations begin above
  std::uint32_t newest_generation_ = 0;  // of any occupant
};

}  // namespace reverie
