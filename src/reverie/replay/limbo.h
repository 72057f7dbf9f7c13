// Limbo: removed items whose chunks a sampler may still be reading.
//
//     epochs   [ 7: pins 1, removed a b ] [ 8: pins 0, removed c ] [ 9: pins 2, removed - ]
//                 ^ oldest                                            ^ pins join here
//
// A batch takes one pin for all items of a breath. Removed objects go to the newest epoch and are
// freed once no pin of that epoch or an older one is left. If there is no pin, they are freed at
// once. This takes one counter per breath; a counted pointer per item would touch every chunk
// twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "reverie/record/trajectory.h"

namespace reverie {

// Objects to destroy after the lock is released. The usual one or two need no allocation.
class Garbage {
 public:
  void add(Trajectory trajectory) {
    if (inline_count_ < inline_.size()) {
      inline_[inline_count_++] = std::move(trajectory);
    } else {
      overflow_.push_back(std::move(trajectory));
    }
  }
  void add(std::shared_ptr<void> state) { states_.push_back(std::move(state)); }
  void add(Ref<const Chunk> chunk) { chunks_.push_back(std::move(chunk)); }
  void add(Garbage&& other) {
    for (std::size_t i = 0; i < other.inline_count_; ++i) add(std::move(other.inline_[i]));
    for (Trajectory& trajectory : other.overflow_) add(std::move(trajectory));
    for (Ref<const Chunk>& chunk : other.chunks_) add(std::move(chunk));
    for (std::shared_ptr<void>& state : other.states_) add(std::move(state));
  }
  bool empty() const { return inline_count_ == 0 && chunks_.empty() && states_.empty(); }
  // Whether it has the items of a whole table, which are still charged to the store.
  bool has_states() const { return !states_.empty(); }

 private:
  std::array<Trajectory, 2> inline_;
  std::size_t inline_count_ = 0;
  std::vector<Trajectory> overflow_;
  std::vector<Ref<const Chunk>> chunks_;
  std::vector<std::shared_ptr<void>> states_;
};

// Not thread-safe: its table locks.
class Limbo {
 public:
  // Holds back everything removed from now on until unpin().
  std::uint64_t pin() {
    if (epochs_.empty() || !epochs_.back().removed.empty()) epochs_.emplace_back();
    ++epochs_.back().pins;
    return first_ + epochs_.size() - 1;
  }
  void unpin(std::uint64_t epoch, Garbage& garbage) {
    --epochs_[epoch - first_].pins;
    while (!epochs_.empty() && epochs_.front().pins == 0) {
      garbage.add(std::move(epochs_.front().removed));
      epochs_.pop_front();
      ++first_;
    }
  }
  // Takes an item, the share that a table holds in a chunk for all of its items, or all items of a
  // table at once.
  template <typename Removed>
  void remove(Removed removed, Garbage& garbage) {
    (epochs_.empty() ? garbage : epochs_.back().removed).add(std::move(removed));
  }
  bool has_pins() const { return !epochs_.empty(); }

 private:
  struct Epoch {
    std::size_t pins = 0;
    Garbage removed;
  };
  std::deque<Epoch> epochs_;
  std::uint64_t first_ = 0;  // the number of the oldest epoch
};

}  // namespace reverie
