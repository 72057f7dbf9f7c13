// BatchPlan: what the items of a batch have in common, checked before a byte is copied.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/trajectory.h"

namespace reverie {

struct PlannedColumn {
  const LayoutColumn* like = nullptr;  // of the first item
  std::size_t element_count = 0;       // of one row
  std::size_t row_bytes = 0;           // 0 for rows of varying size
  std::uint32_t rows = 0;              // of an item in the batch; shorter items are padded
  bool is_variable = false;

  // [B, T, ...], or [B, ...] when squeezed.
  Shape shape(std::size_t item_count) const;
};

struct BatchPlan {
  std::vector<PlannedColumn> columns;
  // Rows of each item's longest column, with `pad`; else empty.
  std::vector<std::int64_t> lengths;

  // INVALID_ARGUMENT, naming the column, if items differ in columns, types or shapes, or, without
  // `pad`, in length. Requires at least one item.
  static Result<BatchPlan> make(std::span<const TrajectoryView> items, bool pad);
};

}  // namespace reverie
