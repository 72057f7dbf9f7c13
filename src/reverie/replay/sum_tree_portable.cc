// The primitives of a SumTree in plain C++, for any processor. They add in the same order as the
// vector ones, and so give the same answers.
#include "reverie/replay/sum_tree_walk.h"

namespace reverie::sum_tree {
namespace {

struct Portable {
  template <typename T>
  static inline double run(const T* values, double* below) {
    double lane[4][kLanes];  // inclusive within a lane
    for (std::size_t l = 0; l < kLanes; ++l) {
      lane[0][l] = static_cast<double>(values[l]);
      lane[1][l] = lane[0][l] + static_cast<double>(values[4 + l]);
      lane[2][l] = lane[1][l] + static_cast<double>(values[8 + l]);
      lane[3][l] = lane[2][l] + static_cast<double>(values[12 + l]);
    }
    double base[kLanes];
    base[0] = 0;
    for (std::size_t l = 1; l < kLanes; ++l) base[l] = base[l - 1] + lane[3][l - 1];
    for (std::size_t l = 0; l < kLanes; ++l) {
      below[l] = base[l];
      below[4 + l] = base[l] + lane[0][l];
      below[8 + l] = base[l] + lane[1][l];
      below[12 + l] = base[l] + lane[2][l];
    }
    return base[3] + lane[3][3];
  }

  // A binary search: along the mass, the strides of the halves are 2 and 1 lane, then 2 and 1
  // within the lane, which lie 2, 1, 8 and 4 apart.
  static inline std::size_t pick(const double* below, double mass) {
    std::size_t child = below[2] <= mass ? 2 : 0;
    child += below[child + 1] <= mass ? 1 : 0;
    child += below[child + 8] <= mass ? 8 : 0;
    child += below[child + 4] <= mass ? 4 : 0;
    return child;
  }

  static inline std::size_t pick_weight(const float* weights, double mass) {
    double below[kFanout];
    run(weights, below);
    return pick(below, mass);
  }

  static inline double fold(const double* sums, double* below) { return run(sums, below); }

  static inline double add_up(const float* weights) {
    double below[kFanout];
    return run(weights, below);
  }
};

[[gnu::flatten]] void find(const Tree& tree, const double* masses, std::size_t count, Slot* slots,
                           float* weights) {
  find_all<Portable>(tree, masses, count, slots, weights);
}

[[gnu::flatten]] void update(Tree& tree, const Slot* slots, const float* weights,
                             std::size_t count) {
  update_all<Portable>(tree, slots, weights, count);
}

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kKernels = {"portable", find, update, Portable::fold};
  return kKernels;
}

}  // namespace reverie::sum_tree
