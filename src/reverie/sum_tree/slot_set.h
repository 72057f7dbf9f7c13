// SlotSet: a set of slots that also finds the r-th of them.
//
// One bit per slot, with counts of the bits in each 4,096 slots and in each 262,144: a rank is
// found by walking over some dozens of each (at 10 million slots 39 + 64 + 64 steps), and an insert
// touches one word and two counts.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reverie/sum_tree/segmented_array.h"
#include "reverie/sum_tree/slot.h"

namespace reverie {

// Not thread-safe.
class SlotSet {
 public:
  std::size_t size() const { return size_; }
  bool contains(Slot slot) const {
    return slot / kWordSlots < words_.capacity() &&
           (words_[slot / kWordSlots] >> (slot % kWordSlots) & 1) != 0;
  }
  // Allocates the memory that slots below `reach` need. Requires reach > 0.
  void reserve(Slot reach) {
    const Slot last = reach - 1;
    words_.reach(last / kWordSlots, 0);
    if (last / kRunSlots >= runs_.size()) runs_.resize(last / kRunSlots + 1);
    if (last / kStretchSlots >= stretch_counts_.size())
      stretch_counts_.resize(last / kStretchSlots + 1);
  }
  // Requires !contains(slot).
  void insert(Slot slot) {
    reserve(slot + 1);
    words_[slot / kWordSlots] |= std::uint64_t{1} << (slot % kWordSlots);
    ++runs_[slot / kRunSlots];
    ++stretch_counts_[slot / kStretchSlots];
    ++size_;
  }
  // Requires contains(slot).
  void erase(Slot slot) {
    words_[slot / kWordSlots] &= ~(std::uint64_t{1} << (slot % kWordSlots));
    --runs_[slot / kRunSlots];
    --stretch_counts_[slot / kStretchSlots];
    --size_;
  }
  // The slot that has `rank` slots of the set below it. Requires rank < size().
  Slot select(std::size_t rank) const {
    std::size_t stretch = 0;
    while (rank >= stretch_counts_[stretch]) rank -= stretch_counts_[stretch++];
    std::size_t run = stretch * (kStretchSlots / kRunSlots);
    while (rank >= runs_[run]) rank -= runs_[run++];
    std::size_t word = run * (kRunSlots / kWordSlots);
    for (;; ++word) {
      const auto ones = static_cast<std::size_t>(std::popcount(words_[word]));
      if (rank < ones) break;
      rank -= ones;
    }
    std::uint64_t bits = words_[word];
    while (rank-- > 0) bits &= bits - 1;
    return static_cast<Slot>(word * kWordSlots + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  std::size_t memory_bytes() const {
    return words_.memory_bytes() +
           (runs_.capacity() + stretch_counts_.capacity()) * sizeof(runs_[0]);
  }

 private:
  static constexpr std::size_t kWordSlots = 64;
  static constexpr std::size_t kRunSlots = 4'096;
  static constexpr std::size_t kStretchSlots = 262'144;

  SegmentedArray<std::uint64_t, 512> words_;
  std::vector<std::uint32_t> runs_;
  std::vector<std::uint32_t> stretch_counts_;
  std::size_t size_ = 0;
};

}  // namespace reverie
