// NumberSet: a set of numbers from a growing sequence, kept as runs.
//
//     [ 5 6 7 8 9 ] . [ 11 12 ]      two runs; in the ordinary case there is one
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reverie {

// Not thread-safe. Runs are searched from the end, where additions happen.
class NumberSet {
 public:
  // Beyond this many runs the oldest is forgotten.
  static constexpr std::size_t kRunsMax = 1024;

  // No effect for 2^64 - 1: a run that contains it would have no end.
  void add(std::uint64_t number) {
    if (number == UINT64_MAX) return;
    std::size_t at = runs_.size();
    while (at > 0 && runs_[at - 1].begin > number) --at;
    // runs_[at - 1] begins at or below the number, runs_[at] above it.
    const bool joins_left = at > 0 && runs_[at - 1].end >= number;
    if (joins_left && runs_[at - 1].end > number) return;  // known
    const bool joins_right = at < runs_.size() && runs_[at].begin == number + 1;
    if (joins_left && joins_right) {
      runs_[at - 1].end = runs_[at].end;
      runs_.erase(place(at));
    } else if (joins_left) {
      runs_[at - 1].end = number + 1;
    } else if (joins_right) {
      runs_[at].begin = number;
    } else {
      runs_.insert(place(at), {number, number + 1});
      if (runs_.size() > kRunsMax) runs_.erase(runs_.begin());
    }
  }

  bool contains(std::uint64_t number) const {
    for (std::size_t at = runs_.size(); at > 0; --at) {
      if (runs_[at - 1].begin <= number) return number < runs_[at - 1].end;
    }
    return false;
  }

  // Forgets all numbers below `number`.
  void drop_below(std::uint64_t number) {
    std::size_t gone = 0;
    while (gone < runs_.size() && runs_[gone].end <= number) ++gone;
    runs_.erase(runs_.begin(), place(gone));
    if (!runs_.empty() && runs_.front().begin < number) runs_.front().begin = number;
  }

  struct Run {
    std::uint64_t begin;
    std::uint64_t end;
  };
  std::size_t run_count() const { return runs_.size(); }
  // In order and disjoint; no run touches the next.
  const std::vector<Run>& runs() const { return runs_; }
  // Adds a run. Requires that it begins after all numbers in the set, and does not touch them.
  void append(Run run) { runs_.push_back(run); }

 private:
  std::vector<Run>::iterator place(std::size_t index) {
    return runs_.begin() + static_cast<std::ptrdiff_t>(index);
  }

  std::vector<Run> runs_;
};

}  // namespace reverie
