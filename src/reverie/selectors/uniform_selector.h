// Uniform: every item is equally likely, whatever its priority.
//
// A dense permutation: order_[0 .. size) holds the slots, place_ the position of each slot. 8 bytes
// per slot; a draw is one random number and one look-up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "reverie/base/random.h"
#include "reverie/selectors/selector.h"
#include "reverie/sum_tree/segmented_array.h"

namespace reverie {

class Uniform final : public Selector {
 public:
  explicit Uniform(std::optional<std::uint64_t> seed) : random_(seed) {}

  std::string_view name() const override { return "Uniform"; }
  bool holds_all(std::span<const double> priorities) const override {
    return has_no_nan(priorities);
  }
  void reserve(Slot reach) override {
    order_.reach(reach - 1, kNoSlot);
    place_.reach(reach - 1, kNoSlot);
  }
  void insert(Slot slot, double) override {
    order_.reach(size_, kNoSlot);
    place_.reach(slot, kNoSlot);
    put(slot, size_++);
  }
  void update(std::span<const Slot>, std::span<const double>) override {}
  void erase(Slot slot) override {
    const Slot last = order_[--size_];
    put(last, place_[slot]);
  }
  void replace(std::span<const Slot>, double) override {}
  std::size_t size() const override { return size_; }
  void draw(std::span<Slot> slots, std::span<double> probabilities) override {
    for (Slot& slot : slots) slot = order_[random_.below(size_)];
    std::fill(probabilities.begin(), probabilities.end(), 1.0 / static_cast<double>(size_));
  }
  // A shuffle that stops after the requested number: the order has no meaning.
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) override {
    const std::size_t count = std::min(slots.size(), size_);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t left = size_ - i;
      const std::size_t j = i + random_.below(left);
      const Slot drawn = order_[j];
      put(order_[i], j);
      put(drawn, i);
      slots[i] = drawn;
      probabilities[i] = 1.0 / static_cast<double>(left);
    }
    return count;
  }
  std::optional<double> least_probability() override { return 1.0 / static_cast<double>(size_); }
  std::unique_ptr<Selector> make_empty() override {
    return std::make_unique<Uniform>(std::optional(random_.next()));
  }
  std::size_t memory_bytes() const override {
    return sizeof(*this) + order_.memory_bytes() + place_.memory_bytes();
  }

  // Contains the generator, then the slots in their order.
  std::unique_ptr<SelectorState> freeze() override {
    return std::make_unique<State>(order_.freeze(), size_, random_);
  }
  void thaw() override { order_.thaw(); }
  Status restore(ByteReader& state, const SlotChecks& slots) override {
    REVERIE_RETURN_IF_ERROR(read_random(state, random_));
    const std::size_t count = state.count64(sizeof(Slot));
    for (std::size_t i = 0; i < count; ++i) {
      const Slot slot = state.u32();
      REVERIE_RETURN_IF_ERROR(slots.take(slot));
      insert(slot, 0);
    }
    return {};
  }

 private:
  class State final : public SelectorState {
   public:
    State(std::shared_ptr<const SegmentedArray<Slot>::Frozen> order, std::size_t size,
          const Random& random)
        : order_(std::move(order)), size_(size), random_(random) {}
    bool write(ByteWriter& out) const override {
      return order_->read([&] {
        write_random(random_, out);
        out.u64(size_);
        for (std::size_t i = 0; i < size_; ++i) out.u32((*order_)[i]);
      });
    }

   private:
    const std::shared_ptr<const SegmentedArray<Slot>::Frozen> order_;
    const std::size_t size_;
    const Random random_;
  };

  void put(Slot slot, std::size_t place) {
    order_.write(place) = slot;
    place_[slot] = static_cast<Slot>(place);
  }

  Random random_;
  SegmentedArray<Slot> order_;
  SegmentedArray<Slot> place_;
  std::size_t size_ = 0;
};

}  // namespace reverie
