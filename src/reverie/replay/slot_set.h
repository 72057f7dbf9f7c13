// SlotSet: which slots are in, and the r-th of them.
//
// A bit a slot, with counts per segment of 4096: where every weight is zero, a draw picks a rank at
// random and finds its slot by counting. Rare, so a walk over the counts will do: 2 us at 10
// million.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/replay/slot.h"

namespace reverie {

// Not thread-safe.
class SlotSet {
 public:
  std::size_t size() const { return size_; }
  bool contains(Slot slot) const {
    return slot / kBits < segments_.size() && (word(slot) >> (slot % 64) & 1) != 0;
  }
  // Requires !contains(slot).
  void insert(Slot slot) {
    while (slot / kBits >= segments_.size()) segments_.push_back(std::make_unique<Segment>());
    segments_[slot / kBits]->words[slot % kBits / 64] |= std::uint64_t{1} << (slot % 64);
    ++segments_[slot / kBits]->count;
    ++size_;
  }
  // Requires contains(slot).
  void erase(Slot slot) {
    segments_[slot / kBits]->words[slot % kBits / 64] &= ~(std::uint64_t{1} << (slot % 64));
    --segments_[slot / kBits]->count;
    --size_;
  }
  // Requires rank < size().
  Slot select(std::size_t rank) const {
    std::size_t s = 0;
    while (rank >= segments_[s]->count) rank -= segments_[s++]->count;
    const auto& words = segments_[s]->words;
    std::size_t w = 0;
    for (;; ++w) {
      const auto ones = static_cast<std::size_t>(std::popcount(words[w]));
      if (rank < ones) break;
      rank -= ones;
    }
    std::uint64_t bits = words[w];
    while (rank-- > 0) bits &= bits - 1;
    return static_cast<Slot>(s * kBits + w * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  std::size_t memory_bytes() const {
    return segments_.size() * (sizeof(Segment) + sizeof(segments_[0]));
  }

 private:
  static constexpr std::size_t kBits = 4096;
  struct Segment {
    std::array<std::uint64_t, kBits / 64> words{};
    std::size_t count = 0;
  };
  std::uint64_t word(Slot slot) const { return segments_[slot / kBits]->words[slot % kBits / 64]; }

  std::vector<std::unique_ptr<Segment>> segments_;
  std::size_t size_ = 0;
};

}  // namespace reverie
