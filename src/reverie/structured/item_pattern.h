// ItemPattern: declares which items a structured writer makes of its steps.
//
//     leaf 0 "obs"     . . . o o o        columns    {"window": obs[-3:], "last": reward[-1]}
//     leaf 1 "reward"  . . . . . r        conditions step_index >= 2, reward == 1, ...
//                                newest   table, priority
//
// Steps are counted back from the newest one: start -3 and no stop are the last three. A column
// without a start is the single row that `stop` names, squeezed.
//
// Source: the pattern language of dm-reverb 0.14's StructuredWriter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"

namespace reverie {

// A leaf of the steps, by its index in flat order.
using LeafIndex = std::uint32_t;

// One column of the items: rows of a leaf.
struct PatternColumn {
  std::string name;  // path in the item's nest
  LeafIndex leaf = 0;
  std::optional<std::int64_t> start = {};  // first row, < 0
  std::optional<std::int64_t> stop = {};   // one past the last row, <= 0; < 0 without a start
  std::optional<std::int64_t> step = {};   // > 0, and only with a start

  bool is_squeezed() const { return !start; }
  // How many steps the oldest row is back. Requires a column that check_patterns accepts.
  std::uint64_t reach() const { return static_cast<std::uint64_t>(-(start ? *start : *stop)); }
  // The number of rows of an item. Requires the same.
  std::uint64_t length() const;
};

// When to make an item: a quantity, and a condition on it.
struct PatternCondition {
  enum class Left {
    kStepIndex,          // of the newest step in its episode, from 0
    kStepsSinceApplied,  // steps with a used leaf since its last item, or the writer's start
    kIsEndEpisode,       // 1 while the episode ends, else 0
    kLeaf,               // the newest value of `leaf`: a whole number or a boolean
  };
  enum class Comparison { kEqual, kAtLeast, kModuloEqual };

  Left left = Left::kStepIndex;
  LeafIndex leaf = 0;
  Comparison comparison = Comparison::kEqual;
  std::int64_t value = 0;   // left == value, left >= value, left % modulo == value
  std::int64_t modulo = 1;  // > 0
  bool is_inverse = false;

  bool holds(std::int64_t left_value) const;
};

// The priority of the items: a constant, or w max|e| + (1 - w) mean|e| over the column that is made
// of `error_leaf`. If there are several such columns the last one is used; if there is none, the
// priority is 0.
struct PatternPriority {
  double constant = 1.0;
  std::optional<LeafIndex> error_leaf = {};
  double max_weight = 0;  // w
};

struct ItemPattern {
  std::vector<PatternColumn> columns;
  std::string structure;  // see Layout::structure
  std::string table;
  std::vector<PatternCondition> conditions;
  PatternPriority priority;

  // How many steps the oldest row of any column is back.
  std::uint64_t reach() const;
};

// How many steps a pattern may reach back.
inline constexpr std::int64_t kPatternReachMax = std::int64_t{1} << 31;

// INVALID_ARGUMENT, "Invalid configuration at position i: ...", for the first pattern that cannot
// make items, and for an empty list of patterns.
Status check_patterns(std::span<const ItemPattern> patterns);

}  // namespace reverie
