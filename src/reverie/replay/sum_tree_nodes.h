// How a SumTree lies in memory, and the code that walks it: shared by sum_tree.cc and the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/replay/slot.h"

namespace reverie::sum_tree {

inline constexpr std::size_t kFanout = 16;
inline constexpr std::size_t kSegmentSlots = kFanout * kFanout * kFanout;

// 4096 slots and the two levels of nodes above them. Node n of a level has its 16 children at
// [16 n, 16 n + 16) of the level below. `below` are exclusive running sums over the children of a
// node, `sums` the children's own sums. They lie apart, for a search reads only the first.
struct alignas(64) Segment {
  float weights[kSegmentSlots] = {};
  double group_below[kFanout * kFanout] = {};
  double group_sums[kFanout * kFanout] = {};
  double node_below[kFanout] = {};
  double node_sums[kFanout] = {};
};

// 16 numbers of a node: two cache lines.
struct alignas(128) Fan {
  double values[kFanout] = {};
};

// One level of the top. Level 0 has the segments as children, level k + 1 the nodes of level k.
struct Level {
  std::vector<Fan> below;
  std::vector<Fan> sums;
  std::vector<std::uint8_t> dirty;  // one a node; all 0 between calls
};

struct Tree {
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<std::uint8_t> dirty;  // one a segment; all 0 between calls
  std::vector<Level> levels;        // none while one segment is enough
  double total = 0;
};

struct Kernels {
  const char* name;
  void (*find)(const Tree& tree, const double* masses, std::size_t count, Slot* slots,
               float* weights);
  void (*update)(Tree& tree, const Slot* slots, const float* weights, std::size_t count);
  // Makes the running sums of one node anew; returns its sum.
  double (*fold)(const double* sums, double* below);
};

const Kernels& portable_kernels();
// Null where the processor, or the compiler's target, has no AVX2.
const Kernels* avx2_kernels();

// The slot to answer where rounding led a search to a slot of weight 0: it carried the mass past
// the end of some node above, so the answer is the last slot with a weight under that node.
// Requires tree.total > 0.
Slot last_weighty_slot_near(const Tree& tree, Slot slot);

// Children lie along the mass in lanes: those at 0, 4, 8, 12 first, then 1, 5, 9, 13, and so on.
// Four lanes are summed side by side, with one vector addition a step.
inline constexpr std::size_t kLanes = 4;

}  // namespace reverie::sum_tree
