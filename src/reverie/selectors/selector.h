// Selector: which item comes next, in the order in which a table samples or evicts.
//
// A selector sees slots and priorities, never keys or data. One object serves one table, as its
// sampler or as its remover. Included: list_selector.h (Fifo, Lifo), uniform_selector.h,
// heap_selector.h (MinHeap, MaxHeap), prioritized_selector.h. A selector of your own derives from
// this class and joins tests/conformance/selector_suite.h with one line.
//
// A table calls its selectors under its lock, so no call may take long, however many items there
// are: grow by segments (segmented_array.h), never rebuild or copy everything.
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

// The state of a selector when it was frozen, for a checkpoint. Read without its table's lock, by
// one thread, until the selector is thawed.
class SelectorState {
 public:
  virtual ~SelectorState() = default;
  // Writes it in the format of docs/formats/checkpoint.md. False, without output, if there was no
  // memory to keep it while its selector changed.
  [[nodiscard]] virtual bool write(ByteWriter& out) const = 0;
};

// The slots in use in a restored table, and which of them a selector has taken so far.
class SlotChecks {
 public:
  // `is_in`: one entry per slot.
  explicit SlotChecks(std::span<const std::uint8_t> is_in) : left_(is_in.begin(), is_in.end()) {
    for (const std::uint8_t in : left_) count_ += in;
  }
  // DATA_LOSS unless the slot is in use and was not taken before.
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
  // Whether the slot is in use and not yet taken.
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

  // The name that it is registered under: "Fifo", "Prioritized".
  virtual std::string_view name() const = 0;

  // INVALID_ARGUMENT if this selector cannot hold `priority`. The table checks before it applies
  // anything, so calls below get only valid ones. The default refuses NaN, which has no order.
  virtual Status check_priority(double priority) const {
    if (std::isnan(priority)) [[unlikely]] {
      return invalid_argument("priority is {}; it must be a number", priority);
    }
    return {};
  }

  // Whether check_priority() accepts all of these. Used for batches of updates; override it if
  // checking many at once is faster.
  virtual bool holds_all(std::span<const double> priorities) const {
    for (const double priority : priorities) {
      if (!check_priority(priority).ok()) return false;
    }
    return true;
  }

  // Allocates the memory that insert() of slots below `reach` needs, so that insert()
  // allocates none. May throw std::bad_alloc, without effect. Called for some hundreds of
  // slots at once.
  virtual void reserve(Slot reach) { (void)reach; }

  // Requires a slot that it does not contain, and a checked priority.
  virtual void insert(Slot slot, double priority) = 0;

  // The same for an item that was drawn and returns: in a deterministic order it comes next again.
  virtual void insert_again(Slot slot, double priority) { insert(slot, priority); }

  // Gives each slot its new priority. If a slot occurs twice, the last priority wins. Requires
  // slots that it contains, checked priorities, spans of one size.
  virtual void update(std::span<const Slot> slots, std::span<const double> priorities) = 0;

  // Requires a slot that it contains.
  virtual void erase(Slot slot) = 0;

  // A new item takes each of these slots: erase(), then insert() with `priority`, one after
  // another. Override it if that is less work. Requires distinct slots that it contains, and a
  // checked priority.
  virtual void replace(std::span<const Slot> slots, double priority) {
    for (const Slot slot : slots) {
      erase(slot);
      insert(slot, priority);
    }
  }

  // Whether draws follow the order of insertion, oldest first, regardless of priorities.
  virtual bool is_oldest_first() const { return false; }
  // replace() of the slots that draw_distinct() has just returned, if is_oldest_first().
  virtual void renew_oldest(std::span<const Slot> slots) { replace(slots, 0); }

  virtual std::size_t size() const = 0;

  // Draws with replacement until both spans are full; returns each slot with its probability. A
  // deterministic selector returns the same slot each time, with probability 1. Requires size() >
  // 0, or empty spans; spans of one size.
  virtual void draw(std::span<Slot> slots, std::span<double> probabilities) = 0;

  // Draws without replacement, as if each drawn slot were removed until the call ends: distinct
  // slots, each with its probability at its own draw. Returns how many: fewer than requested if
  // size() is smaller. The selector's contents and order do not change. Requires spans of one
  // size.
  virtual std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) = 0;

  // The smallest probability that a single draw gives to any item that can be drawn; none if the
  // selector does not know. The first call may visit all items. Requires size() > 0.
  virtual std::optional<double> least_probability() { return std::nullopt; }

  // The total weight of all items: an item of weight w is drawn with probability w /
  // mass(). Tables on several servers are sampled as one, each in proportion to its mass (a
  // client's sampling="mass"), so a selector with weights overrides this; by default each
  // item weighs 1. In a deterministic selector the next item weighs 1 and the others 0.
  // O(1).
  virtual double mass() { return static_cast<double>(size()); }

  // An empty selector with the same options, for a table that is reset while the old content is
  // freed outside the lock. A random selector passes on its generator's state.
  virtual std::unique_ptr<Selector> make_empty() = 0;

  // --- Checkpoints. A selector without these is restored by calling insert() for each item, in the
  // order of their times of insertion.

  // The current state; later draws depend on nothing else. Only one at a time: call thaw()
  // before the next. Costs no more than a directory of pointers; the state keeps nothing
  // alive.
  virtual std::unique_ptr<SelectorState> freeze() { return nullptr; }
  virtual void thaw() {}
  // Restores an empty selector with the same options. Takes each slot in use once. DATA_LOSS for an
  // impossible state; then the selector must not be used.
  virtual Status restore(ByteReader& state, const SlotChecks& slots) {
    (void)state;
    (void)slots;
    return unimplemented("selector '{}' has no state to restore", name());
  }

  // Its memory, itself included.
  virtual std::size_t memory_bytes() const = 0;

 protected:
  // holds_all() for a selector that accepts every number.
  static bool has_no_nan(std::span<const double> priorities) {
    bool has_nan = false;
    for (const double priority : priorities) has_nan |= std::isnan(priority);
    return !has_nan;
  }
};

// A random generator in a selector's state: its seed and its four words.
using RandomWords = std::array<std::uint64_t, 5>;
static_assert(sizeof(RandomWords) == sizeof(Random) && std::is_trivially_copyable_v<Random>);
inline void write_random(const Random& random, ByteWriter& out) {
  for (const std::uint64_t word : std::bit_cast<RandomWords>(random)) out.u64(word);
}
inline Status read_random(ByteReader& in, Random& random) {
  RandomWords words;
  for (std::uint64_t& word : words) word = in.u64();
  // No generator ever has this state, and none could leave it.
  if ((words[1] | words[2] | words[3] | words[4]) == 0) {
    return data_loss("the state of a random generator is all zeros");
  }
  random = std::bit_cast<Random>(words);
  return {};
}

}  // namespace reverie
