// shrink(): the shortest list of faults under which a run still fails.
//
//     faults of a seed   [ a b c d e f g h ]     the run fails
//     without the half   [ e f g h ]             it still does: go on with these
//     without a quarter  [ e f ]                 ... until each that is left is needed
//
// A simulation draws its faults first, as a list; the run is then a function of its seed and that
// list. Leaving out a fault changes the situation for the others, so fewer faults are not "the same
// run, only less": each list is run again, and counts if it fails, for whatever reason.
//
// Source: Zeller and Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing Input" (ddmin).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace reverie::sim {

// A subset of `faults`, in order, for which `fails` is still true, but false if any single one is
// left out. Requires fails(faults). O(n^2) runs at worst; a few dozen are usual.
template <typename Fault>
std::vector<Fault> shrink(std::vector<Fault> faults,
                          const std::function<bool(const std::vector<Fault>&)>& fails) {
  std::size_t part = std::max<std::size_t>(1, faults.size() / 2);
  while (!faults.empty()) {
    bool is_shorter = false;
    for (std::size_t begin = 0; begin < faults.size();) {
      const std::size_t end = std::min(begin + part, faults.size());
      std::vector<Fault> rest;
      rest.reserve(faults.size());
      rest.insert(rest.end(), faults.begin(), faults.begin() + static_cast<std::ptrdiff_t>(begin));
      rest.insert(rest.end(), faults.begin() + static_cast<std::ptrdiff_t>(end), faults.end());
      if (fails(rest)) {
        faults = std::move(rest);
        is_shorter = true;
      } else {
        begin = end;
      }
    }
    if (part == 1 && !is_shorter) break;
    part = std::max<std::size_t>(1, part / 2);
  }
  return faults;
}

}  // namespace reverie::sim
