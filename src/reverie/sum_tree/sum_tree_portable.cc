// The primitives of a SumTree in plain C++, for any processor. They add and compare in the same
// order as the vector ones, and so give the same answers.
//
// Tested in sum_tree_test.cc.
#include "reverie/sum_tree/sum_tree_walk.h"

namespace reverie::sum_tree {
namespace {

struct Portable {
  // Running sums of 16 numbers: along each lane, and where each lane begins.
  struct Lanes {
    double within[kLanes][kLanes];  // exclusive; [step][lane]
    double base[kLanes];
    double total;
  };

  template <typename T>
  static inline Lanes run(const T* values) {
    Lanes lanes;
    double sum[kLanes];
    for (std::size_t l = 0; l < kLanes; ++l) {
      const auto v0 = static_cast<double>(values[l]);
      const auto v1 = static_cast<double>(values[kLanes + l]);
      const auto v2 = static_cast<double>(values[2 * kLanes + l]);
      const auto v3 = static_cast<double>(values[3 * kLanes + l]);
      lanes.within[0][l] = 0;
      lanes.within[1][l] = v0;
      lanes.within[2][l] = v0 + v1;
      lanes.within[3][l] = (v0 + v1) + v2;
      sum[l] = (v0 + v1) + (v2 + v3);
    }
    lanes.base[0] = 0;
    for (std::size_t l = 1; l < kLanes; ++l) lanes.base[l] = lanes.base[l - 1] + sum[l - 1];
    lanes.total = lanes.base[kLanes - 1] + sum[kLanes - 1];
    return lanes;
  }

  // A binary search: along the mass, the halves begin 2 lanes and 1 lane further, which is 2 places
  // and 1; then 2 steps and 1 step within the lane, which is 8 places and 4.
  static inline std::size_t step(const double* node, double* mass) {
    std::size_t child = node[2] <= *mass ? 2 : 0;
    child += node[child + 1] <= *mass ? 1 : 0;
    child += node[child + 8] <= *mass ? 8 : 0;
    child += node[child + 4] <= *mass ? 4 : 0;
    *mass -= node[child];
    return child * sizeof(double);
  }

  static inline std::size_t scan_step(const double* sums, double* mass) {
    double below[kFanout];
    fold(sums, below);
    return step(below, mass);
  }

  static inline std::size_t last_step(const float* weights, double mass) {
    const Lanes lanes = run(weights);
    std::size_t lane = lanes.base[2] <= mass ? 2 : 0;
    lane += lanes.base[lane + 1] <= mass ? 1 : 0;
    const double rest = mass - lanes.base[lane];
    std::size_t step = lanes.within[2][lane] <= rest ? 2 : 0;
    step += lanes.within[step + 1][lane] <= rest ? 1 : 0;
    return step * kLanes + lane;
  }

  static inline double fold(const double* sums, double* below) {
    const Lanes lanes = run(sums);
    for (std::size_t step = 0; step < kLanes; ++step) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        below[step * kLanes + l] = lanes.base[l] + lanes.within[step][l];
      }
    }
    return lanes.total;
  }

  template <typename T>
  static inline double add_up(const T* values) {
    return run(values).total;
  }

  static inline void fill(RandomLanes& random, double scale, double* out, std::size_t count) {
    random.fill(scale, out, count);
  }
};

[[gnu::flatten]] void find(const Tree& tree, const double* masses, std::size_t count, Slot* slots,
                           float* weights) {
  find_all<Portable>(tree, masses, count, slots, weights);
}

[[gnu::flatten]] void draw(const Tree& tree, RandomLanes& random, std::size_t count, Slot* slots,
                           double* probabilities) {
  draw_all<Portable>(tree, random, count, slots, probabilities);
}

[[gnu::flatten]] void refresh(Tree& tree, const std::uint32_t* groups, std::size_t count) {
  refresh_all<Portable>(tree, groups, count);
}

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kKernels = {"portable", find, draw, refresh};
  return kKernels;
}

}  // namespace reverie::sum_tree
