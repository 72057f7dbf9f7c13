// Which item comes next: the order in which a table samples, and the one in which it evicts.
//
// A selector sees slots and priorities, never keys or data. One object serves one table, as its
// sampler or as its remover. The ones that ship: list_selector.h (Fifo, Lifo), uniform_selector.h,
// heap_selector.h (MinHeap, MaxHeap), prioritized_selector.h. A selector of your own derives from
// this class and joins tests/conformance/selector_suite.h with one line.
//
// A table calls its selectors under its lock, so no call may take long, however many items there
// are: grow by segments (segmented_array.h), never rebuild or copy the whole.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "reverie/base/status.h"
#include "reverie/replay/slot.h"

namespace reverie {

// Not thread-safe: the table that owns it locks.
class Selector {
 public:
  Selector() = default;
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;
  virtual ~Selector() = default;

  // As it is registered: "Fifo", "Prioritized".
  virtual std::string_view name() const = 0;

  // INVALID_ARGUMENT when this selector cannot hold `priority`. The table asks before it applies
  // anything, so the calls below see no other. NaN, which has no order, is refused here.
  virtual Status check_priority(double priority) const {
    if (std::isnan(priority)) [[unlikely]] {
      return invalid_argument("priority is {}; it must be a number", priority);
    }
    return {};
  }

  // Whether check_priority() lets all of these through. A batch of updates asks this; override it
  // where one look at many is faster.
  virtual bool holds_all(std::span<const double> priorities) const {
    for (const double priority : priorities) {
      if (!check_priority(priority).ok()) return false;
    }
    return true;
  }

  // Requires a slot that is not in, and a checked priority.
  virtual void insert(Slot slot, double priority) = 0;

  // The same for an item that was drawn and comes back: next in an order that has no chance.
  virtual void insert_again(Slot slot, double priority) { insert(slot, priority); }

  // Gives each slot its new priority. A slot may come twice: the last one wins.
  // Requires slots that are in, checked priorities, spans of one size.
  virtual void update(std::span<const Slot> slots, std::span<const double> priorities) = 0;

  // Requires a slot that is in.
  virtual void erase(Slot slot) = 0;

  virtual std::size_t size() const = 0;

  // Draws with replacement until both spans are full: each slot with the probability that it had.
  // A selector without chance answers the same slot each time, with probability 1.
  // Requires size() > 0, or empty spans; spans of one size.
  virtual void draw(std::span<Slot> slots, std::span<double> probabilities) = 0;

  // Draws without replacement, as if each slot drawn were taken out until the call ends: distinct
  // slots, each with the probability that it had at its own draw. Returns how many: fewer than
  // asked for when size() is smaller. What is in, and in which order, stays as it was.
  // Requires spans of one size.
  virtual std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) = 0;

  // Of the items that are in, the probability that a single draw has for the least likely one that
  // it can draw; none where the selector does not know. May look at all items when it is asked for
  // the first time. Requires size() > 0.
  virtual std::optional<double> least_probability() { return std::nullopt; }

  // An empty selector with the same options, for a table that starts afresh while the old content
  // is freed outside the lock. A random one gets a generator that continues this one's run.
  virtual std::unique_ptr<Selector> make_empty() = 0;

  // What it holds in memory, itself included.
  virtual std::size_t memory_bytes() const = 0;

 protected:
  // holds_all() of a selector that takes every number.
  static bool has_no_nan(std::span<const double> priorities) {
    bool has_nan = false;
    for (const double priority : priorities) has_nan |= std::isnan(priority);
    return !has_nan;
  }
};

}  // namespace reverie
