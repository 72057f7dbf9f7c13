// LeastTree: the smallest positive weight of all slots.
//
//     level 1    [ m m m .. m ]                     each the least of 16 below
//     level 0    [ w w w .. w ][ w w w .. w ] ...   infinity for no weight
//
// A change propagates up until a group's least does not change: mostly one cache line, at worst one
// per level.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "reverie/sum_tree/segmented_array.h"
#include "reverie/sum_tree/slot.h"

namespace reverie {

// Not thread-safe.
class LeastTree {
 public:
  static constexpr float kNone = std::numeric_limits<float>::infinity();

  // Weight 0 removes the slot.
  void set(Slot slot, float weight) {
    std::size_t place = slot;
    float value = kNone;
    if (weight > 0) value = weight;
    for (std::size_t level = 0;; ++level) {
      if (level == levels_.size()) add_level();
      Level& at = levels_[level];
      at.values.reach(place, kNone);
      if (place >= at.used) at.used = place + 1;
      at.values[place] = value;
      if (at.used <= kFanout) {  // the top
        least_ = least_of(at, 0);
        return;
      }
      place /= kFanout;
      value = least_of(at, place);
      if (level + 1 < levels_.size() && place < levels_[level + 1].used &&
          levels_[level + 1].values[place] == value) {
        return;
      }
    }
  }

  // The least weight of all slots; kNone if there is none.
  float least() const { return least_; }

  std::size_t memory_bytes() const {
    std::size_t bytes = sizeof(*this) + levels_.capacity() * sizeof(Level);
    for (const Level& level : levels_) bytes += level.values.memory_bytes();
    return bytes;
  }

 private:
  static constexpr std::size_t kFanout = 16;

  struct Level {
    SegmentedArray<float> values;
    std::size_t used = 0;
  };

  static float least_of(const Level& level, std::size_t group) {
    const float* const values = &level.values[group * kFanout];
    return *std::min_element(values, values + kFanout);
  }

  // Adds a level above one that has outgrown one group, with the least of all but the newest group.
  void add_level() {
    levels_.emplace_back();
    if (levels_.size() == 1) return;
    const Level& below = levels_[levels_.size() - 2];
    Level& top = levels_.back();
    for (std::size_t group = 0; group * kFanout < below.used; ++group) {
      top.values.reach(group, kNone);
      top.values[group] = least_of(below, group);
      top.used = group + 1;
    }
  }

  std::vector<Level> levels_;
  float least_ = kNone;
};

}  // namespace reverie
