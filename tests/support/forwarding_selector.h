// A selector that does what another one does. Tests derive from it to change one thing.
#pragma once

#include <span>
#include <utility>

#include "reverie/selectors/selector.h"

namespace reverie::testing {

// Its items keep their priorities: `Inner` does not look at them.
template <typename Inner>
class ForwardingSelector : public Selector {
 public:
  template <typename... Arguments>
  explicit ForwardingSelector(Arguments&&... arguments)
      : inner_(std::forward<Arguments>(arguments)...) {}

  void reserve(Slot reach) override { inner_.reserve(reach); }
  void insert(Slot slot, double priority) override { inner_.insert(slot, priority); }
  void update(std::span<const Slot>, std::span<const double>) override {}
  void erase(Slot slot) override { inner_.erase(slot); }
  std::size_t size() const override { return inner_.size(); }
  void draw(std::span<Slot> slots, std::span<double> probabilities) override {
    inner_.draw(slots, probabilities);
  }
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) override {
    return inner_.draw_distinct(slots, probabilities);
  }
  double mass() override { return inner_.mass(); }
  std::size_t memory_bytes() const override { return inner_.memory_bytes(); }

 private:
  Inner inner_;
};

}  // namespace reverie::testing
