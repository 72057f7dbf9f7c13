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

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/sum_tree/slot.h"

namespace reverie {

// What a selector was when it was frozen, for a checkpoint. Read without its table's lock, by one
// thread, until the selector is thawed.
class SelectorState {
 public:
  virtual ~SelectorState() = default;
  // In the form of docs/formats/checkpoint.md.
  virtual void write(ByteWriter& out) const = 0;
};

// Which slots a restored table has, and which of them a selector has taken so far.
class SlotChecks {
 public:
  // `is_in`: one entry a slot.
  explicit SlotChecks(std::span<const std::uint8_t> is_in) : left_(is_in.begin(), is_in.end()) {
    for (const std::uint8_t in : left_) count_ += in;
  }
  // DATA_LOSS unless the slot is in and was not taken before.
  Status take(Slot slot) const {
    if (slot >= left_.size() || left_[slot] == 0) {
      return data_loss("slot {} holds no item, or comes twice in a selector", slot);
    }
    left_[slot] = 0;
    --count_;
    return {};
  }
  // DATA_LOSS unless all were taken.
  Status finish() const {
    if (count_ == 0) return {};
    return data_loss("{} items are in no place of a selector", count_);
  }
  // Slots that are in and not yet taken.
  bool is_left(Slot slot) const { return left_[slot] != 0; }
  std::size_t size() const { return left_.size(); }

 private:
  mutable std::vector<std::uint8_t> left_;
  mutable std::size_t count_ = 0;
};

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

  // Takes the memory that insert() of the slots below `reach` will need, so that those take none.
  // May throw std::bad_alloc, and holds what it held then. Asked for some hundreds of slots at
  // once.
  virtual void reserve(Slot reach) { (void)reach; }

  // Requires a slot that is not in, and a checked priority.
  virtual void insert(Slot slot, double priority) = 0;

  // The same for an item that was drawn and comes back: next in an order that has no chance.
  virtual void insert_again(Slot slot, double priority) { insert(slot, priority); }

  // Gives each slot its new priority. A slot may come twice: the last one wins.
  // Requires slots that are in, checked priorities, spans of one size.
  virtual void update(std::span<const Slot> slots, std::span<const double> priorities) = 0;

  // Requires a slot that is in.
  virtual void erase(Slot slot) = 0;

  // Another item comes into each of these slots: erase(), then insert() with `priority`, of one
  // after the other. Override it where that is less work. Requires slots that are in, none of them
  // twice, and a checked priority.
  virtual void replace(std::span<const Slot> slots, double priority) {
    for (const Slot slot : slots) {
      erase(slot);
      insert(slot, priority);
    }
  }

  // Whether draws follow the order of insertion, the oldest first, whatever priorities say.
  virtual bool is_oldest_first() const { return false; }
  // replace() of the slots that draw_distinct() has just told, where draws are in that order.
  virtual void renew_oldest(std::span<const Slot> slots) { replace(slots, 0); }

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

  // The smallest probability that a single draw gives to any item that it can draw; none where the
  // selector does not know. The first call may look at all items. Requires size() > 0.
  virtual std::optional<double> least_probability() { return std::nullopt; }

  // What all items together weigh in a draw: an item of weight w is drawn with probability w /
  // mass(). Tables on several servers are sampled as one, each in proportion to its mass (a
  // client's sampling="mass"), so a selector that weighs its items overrides this; else each
  // weighs 1. Where there is no chance, the item that comes next weighs 1 and the others nothing.
  // O(1).
  virtual double mass() { return static_cast<double>(size()); }

  // An empty selector with the same options, for a table that starts afresh while the old content
  // is freed outside the lock. A random one gets a generator that continues this one's run.
  virtual std::unique_ptr<Selector> make_empty() = 0;

  // --- Checkpoints. A selector that does not have them is restored by insert(), item after item in
  // the order of their times of insertion.

  // The state as it is now; what is drawn later depends on nothing else. One at a time: thaw()
  // comes before the next. Costs no more than a directory of pointers; the state keeps nothing
  // alive.
  virtual std::unique_ptr<SelectorState> freeze() { return nullptr; }
  virtual void thaw() {}
  // Makes an empty selector of the same options what the frozen one was. Takes each slot that is in
  // once. DATA_LOSS for what cannot be a state; the selector is useless then.
  virtual Status restore(ByteReader& state, const SlotChecks& slots) {
    (void)state;
    (void)slots;
    return unimplemented("selector '{}' has no state to restore", name());
  }

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

// A generator among a selector's state: its seed and its four words, which are all that it has.
using RandomWords = std::array<std::uint64_t, 5>;
static_assert(sizeof(RandomWords) == sizeof(Random) && std::is_trivially_copyable_v<Random>);
inline void write_random(const Random& random, ByteWriter& out) {
  for (const std::uint64_t word : std::bit_cast<RandomWords>(random)) out.u64(word);
}
inline Status read_random(ByteReader& in, Random& random) {
  RandomWords words;
  for (std::uint64_t& word : words) word = in.u64();
  // A state that no generator ever has, and that none leaves.
  if ((words[1] | words[2] | words[3] | words[4]) == 0) {
    return data_loss("the state of a random generator is all zeros");
  }
  random = std::bit_cast<Random>(words);
  return {};
}

}  // namespace reverie
