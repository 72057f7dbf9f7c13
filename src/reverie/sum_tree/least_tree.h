// The smallest of the positive weights of slots.
//
//     level 1    [ m m m .. m ]                     each the least of 16 below
//     level 0    [ w w w .. w ][ w w w .. w ] ...   infinity for no weight
//
// A change goes up until a group's least stays what it was: mostly one line, at worst one on each
// level.
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

  // 0 takes the slot out.
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

  // The least weight of all slots; kNone where all are out.
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

  // On top of a level that has outgrown one group: all but the newest group are summed up here.
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
