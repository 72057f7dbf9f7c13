// Tested in structured_writer_test.cc.
#include "reverie/structured/item_pattern.h"

#include <algorithm>
#include <cmath>

namespace reverie {
namespace {

Status check_column(const PatternColumn& column) {
  const auto refuse = [&](std::string_view what) {
    return invalid_argument("column '{}': {}", column.name, what);
  };
  if (!column.start && !column.stop) {
    return refuse("at least one of start and stop must be given, as in [-3:] or [-1]");
  }
  if (column.start && *column.start >= 0) {
    return refuse(format("start is {}; it must be < 0: rows are counted back from the newest step",
                         *column.start));
  }
  if (column.stop && *column.stop > 0) {
    return refuse(format("stop is {}; it must be <= 0: rows are counted back from the newest step",
                         *column.stop));
  }
  if (column.stop && !column.start && *column.stop == 0) {
    return refuse("stop is 0; it must be < 0 where there is no start");
  }
  if (column.start && column.stop && *column.stop <= *column.start) {
    return refuse(format("stop is {}; it must be > start, {}", *column.stop, *column.start));
  }
  if (column.step && !column.start) {
    return refuse(format("step is {}, but there is no start; a step needs one", *column.step));
  }
  if (column.step && *column.step <= 0) {
    return refuse(format("step is {}; it must be > 0", *column.step));
  }
  if (std::min(column.start.value_or(0), column.stop.value_or(0)) < -kPatternReachMax) {
    return refuse(format("it reaches back more than {} steps", kPatternReachMax));
  }
  return {};
}

Status check_pattern(const ItemPattern& pattern) {
  if (pattern.columns.empty()) {
    return invalid_argument("the pattern has no columns; it needs at least one");
  }
  if (pattern.table.empty()) return invalid_argument("the table's name is empty");
  for (const PatternColumn& column : pattern.columns) {
    REVERIE_RETURN_IF_ERROR(check_column(column));
  }
  for (const PatternCondition& condition : pattern.conditions) {
    if (condition.comparison != PatternCondition::Comparison::kModuloEqual) continue;
    if (condition.modulo <= 0) {
      return invalid_argument("a condition has the remainder of a division by {}; it must be > 0",
                              condition.modulo);
    }
    if (condition.value < 0) {
      return invalid_argument("a condition wants the remainder {}; it must be >= 0",
                              condition.value);
    }
  }
  const PatternPriority& priority = pattern.priority;
  if (std::isnan(priority.constant)) {
    return invalid_argument("the priority is NaN; it must be a number");
  }
  if (!std::isfinite(priority.max_weight)) {
    return invalid_argument("max_priority_weight is {}; it must be finite", priority.max_weight);
  }
  return {};
}

}  // namespace

std::uint64_t PatternColumn::length() const {
  if (!start) return 1;
  const auto span = static_cast<std::uint64_t>(stop.value_or(0) - *start);
  const auto stride = static_cast<std::uint64_t>(step.value_or(1));
  return (span - 1) / stride + 1;
}

bool PatternCondition::holds(std::int64_t left_value) const {
  bool is_so = false;
  switch (comparison) {
    case Comparison::kEqual:
      is_so = left_value == value;
      break;
    case Comparison::kAtLeast:
      is_so = left_value >= value;
      break;
    case Comparison::kModuloEqual:
      is_so = left_value % modulo == value;
      break;
  }
  return is_so != is_inverse;
}

std::uint64_t ItemPattern::reach() const {
  std::uint64_t longest = 0;
  for (const PatternColumn& column : columns) longest = std::max(longest, column.reach());
  return longest;
}

Status check_patterns(std::span<const ItemPattern> patterns) {
  if (patterns.empty()) {
    return invalid_argument("there are no configurations; a structured writer needs at least one");
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (const Status status = check_pattern(patterns[i]); !status.ok()) {
      return status.with_context(format("Invalid configuration at position {}", i));
    }
  }
  return {};
}

}  // namespace reverie
