// The memory layout of a SumTree, and code to walk it: shared by sum_tree.cc and the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/sum_tree/random_lanes.h"
#include "reverie/sum_tree/slot.h"

namespace reverie::sum_tree {

// Children of a node; for the lowest nodes, the groups, these are the 16 weights of a cache line.
inline constexpr std::size_t kFanout = 16;
inline constexpr std::size_t kSegmentGroups = kFanout * kFanout;
inline constexpr std::size_t kSegmentSlots = kSegmentGroups * kFanout;

// The children of a node share the mass in four lanes: those at 0, 4, 8, 12 first, then 1, 5, 9,
// 13, and so on. Four lanes are summed side by side, with one vector addition per step.
inline constexpr std::size_t kLanes = 4;

// The position of the `rank`-th child in the order of the mass. Its own inverse.
constexpr std::size_t child_at(std::size_t rank) {
  return rank % kLanes * kLanes + rank / kLanes;
}

// 4096 slots and the two levels of nodes above them. group_sums[g] is the sum of the weights [16 g,
// 16 g + 16), node_sums[n] that of the group_sums [16 n, 16 n + 16), and node_below are the
// exclusive running sums over node_sums. The groups, which are many, have no running sums in
// memory: a search computes them on the fly, and an update touches three cache lines, not five.
struct alignas(128) Segment {
  float weights[kSegmentSlots] = {};
  double group_sums[kSegmentGroups] = {};
  double node_sums[kFanout] = {};
  double node_below[kFanout] = {};
};

// 16 numbers of a node: two cache lines.
struct alignas(128) Fan {
  double values[kFanout] = {};
};

// One level of the top. Level 0 has the segments as children, level k + 1 the nodes of level k.
struct Level {
  std::vector<Fan> below;
  std::vector<Fan> sums;
  std::vector<std::uint8_t> dirty;  // one for each node; all 0 between calls
};

struct Tree {
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<std::uint8_t> dirty;  // one for each segment; all 0 between calls
  std::vector<Level> levels;        // empty while one segment is enough; the last has one node
  double total = 0;
};

// A call of refresh() takes at most this many groups.
inline constexpr std::size_t kRefreshMax = 1024;

struct Kernels {
  const char* name;
  // See SumTree.
  void (*find)(const Tree& tree, const double* masses, std::size_t count, Slot* slots,
               float* weights);
  void (*draw)(const Tree& tree, RandomLanes& random, std::size_t count, Slot* slots,
               double* probabilities);
  // Recomputes all sums above these groups. A group may occur twice.
  void (*refresh)(Tree& tree, const std::uint32_t* groups, std::size_t count);
};

const Kernels& portable_kernels();
// Null if the processor, or the compiler's target, has no AVX2.
const Kernels* avx2_kernels();
// Null if it has no AVX-512 (F, BW, DQ, VL).
const Kernels* avx512_kernels();

// The slot to return if rounding led a search to a slot of weight 0: the mass was carried past the
// end of some node above, so the result is the last slot with a weight under that node. Requires
// tree.total > 0.
Slot last_positive_slot_near(const Tree& tree, Slot slot);

}  // namespace reverie::sum_tree
