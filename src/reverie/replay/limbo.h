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
  // Whether it has the items of a whole table, which are still charged to the store.
  bool has_states() const { return !states_.empty(); }

 private:
  friend class Limbo;
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
    if (epochs_.empty() || epochs_.back().has_removed()) epochs_.emplace_back();
    ++epochs_.back().pins;
    return first_ + epochs_.size() - 1;
  }
  void unpin(std::uint64_t epoch, Garbage& garbage) {
    --epochs_[epoch - first_].pins;
    while (!epochs_.empty() && epochs_.front().pins == 0) {
      Epoch& oldest = epochs_.front();
      for (Trajectory& trajectory : oldest.removed) garbage.add(std::move(trajectory));
      for (Ref<const Chunk>& chunk : oldest.chunks) garbage.add(std::move(chunk));
      for (auto& state : oldest.states) garbage.add(std::move(state));
      epochs_.pop_front();
      ++first_;
    }
  }
  void remove(Trajectory trajectory, Garbage& garbage) {
    if (epochs_.empty()) {
      garbage.add(std::move(trajectory));
    } else {
      epochs_.back().removed.push_back(std::move(trajectory));
    }
  }
  // The share that a table holds in a chunk for all of its items.
  void remove(Ref<const Chunk> chunk, Garbage& garbage) {
    if (epochs_.empty()) {
      garbage.add(std::move(chunk));
    } else {
      epochs_.back().chunks.push_back(std::move(chunk));
    }
  }
  // A whole table's items at once.
  void remove(std::shared_ptr<void> state, Garbage& garbage) {
    if (epochs_.empty()) {
      garbage.add(std::move(state));
    } else {
      epochs_.back().states.push_back(std::move(state));
    }
  }
  bool has_pins() const { return !epochs_.empty(); }

 private:
  struct Epoch {
    std::size_t pins = 0;
    std::vector<Trajectory> removed;
    std::vector<Ref<const Chunk>> chunks;
    std::vector<std::shared_ptr<void>> states;
    bool has_removed() const { return !removed.empty() || !chunks.empty() || !states.empty(); }
  };
  std::deque<Epoch> epochs_;
  std::uint64_t first_ = 0;  // the number of the oldest epoch
};

}  // namespace reverie
