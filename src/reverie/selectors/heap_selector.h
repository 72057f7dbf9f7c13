// MinHeap and MaxHeap: the lowest or the highest priority first; among equals the one that was
// inserted or updated longest ago, and before these the one that returned last.
//
// An indexed binary heap over slots: heap_ holds {rank, renewed, slot}, place_ where each slot is.
// 28 bytes per slot; insert, update and erase are O(log n).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "reverie/selectors/selector.h"
#include "reverie/sum_tree/segmented_array.h"

namespace reverie {

class HeapSelector : public Selector {
 public:
  bool holds_all(std::span<const double> priorities) const override {
    return has_no_nan(priorities);
  }
  void reserve(Slot reach) final {
    heap_.reach(reach - 1, {});
    place_.reach(reach - 1, kNoSlot);
  }
  void insert(Slot slot, double priority) final {
    heap_.reach(size_, {});
    place_.reach(slot, kNoSlot);
    rise(size_++, {rank(priority), ++clock_, slot});
  }
  void insert_again(Slot slot, double priority) final {
    heap_.reach(size_, {});
    place_.reach(slot, kNoSlot);
    rise(size_++, {rank(priority), returned_--, slot});
  }
  void update(std::span<const Slot> slots, std::span<const double> priorities) final {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      settle(place_[slots[i]], {rank(priorities[i]), ++clock_, slots[i]});
    }
  }
  void erase(Slot slot) final {
    const std::size_t place = place_[slot];
    const Entry last = heap_[--size_];
    if (place < size_) settle(place, last);
  }
  std::size_t size() const final { return size_; }
  std::optional<double> least_probability() final { return 1.0; }
  double mass() final { return size() > 0 ? 1.0 : 0.0; }
  void draw(std::span<Slot> slots, std::span<double> probabilities) final {
    if (slots.empty()) return;
    std::fill(slots.begin(), slots.end(), heap_[0].slot);
    std::fill(probabilities.begin(), probabilities.end(), 1.0);
  }
  // Walks the heap best first without changing it: the next best is a child of those taken
  // already.
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) final {
    const auto after = [this](std::size_t a, std::size_t b) { return heap_[b].before(heap_[a]); };
    std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(after)> frontier(after);
    if (size_ > 0) frontier.push(0);
    std::size_t count = 0;
    while (count < slots.size() && !frontier.empty()) {
      const std::size_t best = frontier.top();
      frontier.pop();
      slots[count] = heap_[best].slot;
      probabilities[count++] = 1.0;
      for (const std::size_t child : {2 * best + 1, 2 * best + 2}) {
        if (child < size_) frontier.push(child);
      }
    }
    return count;
  }
  std::size_t memory_bytes() const final {
    return sizeof(*this) + heap_.memory_bytes() + place_.memory_bytes();
  }

  // Contains the clock, then the heap in its order: slot, time of renewal, priority.
  std::unique_ptr<SelectorState> freeze() final {
    return std::make_unique<State>(heap_.freeze(), size_, clock_, sign_);
  }
  void thaw() final { heap_.thaw(); }
  Status restore(ByteReader& state, const SlotChecks& slots) final {
    const std::uint64_t clock = state.u64();
    // Earlier versions counted from 0, with no number left for items that return.
    const std::uint64_t shift = clock < kStart ? kStart : 0;
    clock_ = clock + shift;
    const std::size_t count = state.count64(sizeof(Slot) + 2 * sizeof(double));
    for (std::size_t i = 0; i < count; ++i) {
      const Slot slot = state.u32();
      const std::uint64_t renewed = state.u64();
      const Entry entry{rank(state.f64()), renewed + shift, slot};
      REVERIE_RETURN_IF_ERROR(slots.take(slot));
      const bool is_heap = i == 0 || !entry.before(heap_[(i - 1) / 2]);
      if (!is_heap || std::isnan(entry.rank) || renewed == 0 || renewed > clock) {
        return data_loss("a heap's order is broken at place {} of {}", i, count);
      }
      heap_.reach(size_, {});
      place_.reach(slot, kNoSlot);
      put(size_++, entry);
      returned_ = std::min(returned_, entry.renewed - 1);
    }
    return {};
  }

 protected:
  // The rank is `sign` times the priority; the lowest rank is at the top.
  explicit HeapSelector(double sign) : sign_(sign) {}

 private:
  struct Entry {
    double rank = 0;
    std::uint64_t renewed = 0;
    Slot slot = kNoSlot;
    bool before(const Entry& other) const {
      return rank != other.rank ? rank < other.rank : renewed < other.renewed;
    }
  };

  class State final : public SelectorState {
   public:
    State(std::shared_ptr<const SegmentedArray<Entry>::Frozen> heap, std::size_t size,
          std::uint64_t clock, double sign)
        : heap_(std::move(heap)), size_(size), clock_(clock), sign_(sign) {}
    bool write(ByteWriter& out) const override {
      return heap_->read([&] {
        out.u64(clock_).u64(size_);
        for (std::size_t i = 0; i < size_; ++i) {
          const Entry& entry = (*heap_)[i];
          out.u32(entry.slot).u64(entry.renewed).f64(sign_ * entry.rank);
        }
      });
    }

   private:
    const std::shared_ptr<const SegmentedArray<Entry>::Frozen> heap_;
    const std::size_t size_;
    const std::uint64_t clock_;
    const double sign_;
  };

  // Times of renewal count up from here, those of items that return count down.
  static constexpr std::uint64_t kStart = std::uint64_t{1} << 63;

  double rank(double priority) const { return sign_ * priority; }
  void put(std::size_t place, const Entry& entry) {
    heap_.write(place) = entry;
    place_[entry.slot] = static_cast<Slot>(place);
  }
  // Puts the entry in its position, moving up from `place`, which is free.
  void rise(std::size_t place, const Entry& entry) {
    while (place > 0 && entry.before(heap_[(place - 1) / 2])) {
      put(place, heap_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    put(place, entry);
  }
  // The same, in either direction.
  void settle(std::size_t place, const Entry& entry) {
    if (place > 0 && entry.before(heap_[(place - 1) / 2])) return rise(place, entry);
    while (true) {
      std::size_t child = 2 * place + 1;
      if (child >= size_) break;
      if (child + 1 < size_ && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(entry)) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, entry);
  }

  const double sign_;
  SegmentedArray<Entry> heap_;
  SegmentedArray<Slot> place_;
  std::size_t size_ = 0;
  std::uint64_t clock_ = kStart;
  std::uint64_t returned_ = kStart;  // the next one
};

class MinHeap final : public HeapSelector {
 public:
  MinHeap() : HeapSelector(1.0) {}
  std::string_view name() const override { return "MinHeap"; }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<MinHeap>(); }
};

class MaxHeap final : public HeapSelector {
 public:
  MaxHeap() : HeapSelector(-1.0) {}
  std::string_view name() const override { return "MaxHeap"; }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<MaxHeap>(); }
};

}  // namespace reverie
