// Fifo and Lifo: the order of insertion, oldest or newest first. Updates do not change it.
//
// A doubly linked list over slots, 8 bytes per slot.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "reverie/selectors/selector.h"
#include "reverie/sum_tree/segmented_array.h"

namespace reverie {

class ListSelector : public Selector {
 public:
  explicit ListSelector(bool is_oldest_first) : is_oldest_first_(is_oldest_first) {}

  bool is_oldest_first() const final { return is_oldest_first_; }
  bool holds_all(std::span<const double> priorities) const override {
    return has_no_nan(priorities);
  }
  void reserve(Slot reach) final { links_.reach(reach - 1, {}); }
  void insert(Slot slot, double) final {
    links_.reach(slot, {});
    links_.write(slot) = {newest_, kNoSlot};
    (newest_ == kNoSlot ? oldest_ : links_.write(newest_).newer) = slot;
    newest_ = slot;
    ++size_;
  }
  void update(std::span<const Slot>, std::span<const double>) final {}
  void erase(Slot slot) final {
    const Links links = links_[slot];
    (links.older == kNoSlot ? oldest_ : links_.write(links.older).newer) = links.newer;
    (links.newer == kNoSlot ? newest_ : links_.write(links.newer).older) = links.older;
    --size_;
  }
  // Moves the whole run to the other end.
  void renew_oldest(std::span<const Slot> slots) final {
    if (slots.empty() || slots.size() == size_) return;
    const Slot first = slots.front();
    const Slot last = slots.back();
    const Slot next = links_[last].newer;
    links_.write(next).older = kNoSlot;
    links_.write(newest_).newer = first;
    links_.write(first).older = newest_;
    links_.write(last).newer = kNoSlot;
    oldest_ = next;
    newest_ = last;
  }
  std::size_t size() const final { return size_; }
  void draw(std::span<Slot> slots, std::span<double> probabilities) final {
    std::fill(slots.begin(), slots.end(), first());
    std::fill(probabilities.begin(), probabilities.end(), 1.0);
  }
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) final {
    const std::size_t count = std::min(slots.size(), size_);
    Slot slot = first();
    for (std::size_t i = 0; i < count; ++i, slot = after(slot)) slots[i] = slot;
    std::fill_n(probabilities.begin(), count, 1.0);
    return count;
  }
  std::optional<double> least_probability() final { return 1.0; }
  double mass() final { return size() > 0 ? 1.0 : 0.0; }
  std::size_t memory_bytes() const final { return sizeof(*this) + links_.memory_bytes(); }
  // Contains the slots, oldest first.
  std::unique_ptr<SelectorState> freeze() final {
    return std::make_unique<State>(links_.freeze(), oldest_, size_);
  }
  void thaw() final { links_.thaw(); }
  Status restore(ByteReader& state, const SlotChecks& slots) final {
    const std::size_t count = state.count64(sizeof(Slot));
    for (std::size_t i = 0; i < count; ++i) {
      const Slot slot = state.u32();
      REVERIE_RETURN_IF_ERROR(slots.take(slot));
      insert(slot, 0);
    }
    return {};
  }

 protected:
  struct Links {
    Slot older = kNoSlot;
    Slot newer = kNoSlot;
  };
  Slot oldest_ = kNoSlot;
  Slot newest_ = kNoSlot;
  // Inserts a slot as if it had been inserted before all others.
  void insert_oldest(Slot slot) {
    links_.reach(slot, {});
    links_.write(slot) = {kNoSlot, oldest_};
    (oldest_ == kNoSlot ? newest_ : links_.write(oldest_).older) = slot;
    oldest_ = slot;
    ++size_;
  }

 private:
  class State final : public SelectorState {
   public:
    State(std::shared_ptr<const SegmentedArray<Links>::Frozen> links, Slot oldest, std::size_t size)
        : links_(std::move(links)), oldest_(oldest), size_(size) {}
    bool write(ByteWriter& out) const override {
      return links_->read([&] {
        out.u64(size_);
        for (Slot slot = oldest_; slot != kNoSlot; slot = (*links_)[slot].newer) out.u32(slot);
      });
    }

   private:
    const std::shared_ptr<const SegmentedArray<Links>::Frozen> links_;
    const Slot oldest_;
    const std::size_t size_;
  };

  Slot first() const { return is_oldest_first_ ? oldest_ : newest_; }
  Slot after(Slot slot) const { return is_oldest_first_ ? links_[slot].newer : links_[slot].older; }

  const bool is_oldest_first_;
  SegmentedArray<Links> links_;
  std::size_t size_ = 0;
};

class Fifo final : public ListSelector {
 public:
  Fifo() : ListSelector(/*is_oldest_first=*/true) {}
  std::string_view name() const override { return "Fifo"; }
  void insert_again(Slot slot, double) override { insert_oldest(slot); }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<Fifo>(); }
};

class Lifo final : public ListSelector {
 public:
  Lifo() : ListSelector(/*is_oldest_first=*/false) {}
  std::string_view name() const override { return "Lifo"; }
  std::unique_ptr<Selector> make_empty() override { return std::make_unique<Lifo>(); }
};

}  // namespace reverie
