// Tested in trajectory_writer_test.cc.
#include "reverie/client/item_builder.h"

#include <algorithm>
#include <limits>

namespace reverie {
namespace {

// A column that shares no run with one of the latest gets its own run, which is correct too.
constexpr std::size_t kRunsCompared = 8;

bool same_steps(std::span<const StepRange> a, std::span<const StepRange> b) {
  return std::ranges::equal(a, b, [](const StepRange& x, const StepRange& y) {
    return x.begin == y.begin && x.length == y.length;
  });
}

}  // namespace

Result<Trajectory> ItemBuilder::build(const NewItem& item, const StepBuffer& steps) {
  runs_.clear();
  rows_.clear();
  pieces_.clear();
  places_.clear();
  if (item.columns.empty()) {
    return invalid_argument("the item for table '{}' has no columns; it needs at least one",
                            item.table);
  }
  for (const TrajectoryColumn& column : item.columns) {
    const Run* run = nullptr;
    REVERIE_RETURN_IF_ERROR(find_run(column, steps, &run));
    if (column.squeezed && run->length != 1) [[unlikely]] {
      return invalid_argument(
          "column '{}' of the item is squeezed but has {} rows; only one row can be squeezed",
          column.name, run->length);
    }
    REVERIE_RETURN_IF_ERROR(steps.check_cells(
        column.column, run->steps,
        std::span(rows_).subspan(run->rows_begin, run->rows_end - run->rows_begin)));
    places_.push_back({steps.chunk_column(column.column), run->piece_begin, run->piece_end});
  }
  const Ref<const Layout>& layout = layouts_.find(
      item, places_,
      [&](ColumnId column) -> const TensorSpec& { return *steps.column_spec(column); });
  return Trajectory(layout, pieces_);
}

Status ItemBuilder::find_run(const TrajectoryColumn& column, const StepBuffer& steps,
                             const Run** run) {
  if (column.column >= steps.column_count()) [[unlikely]] {
    return invalid_argument("column '{}' of the item refers to column {}; the writer has {}",
                            column.name, column.column, steps.column_count());
  }
  ColumnGroup* const group = steps.group_of(column.column);
  if (!group) [[unlikely]] {
    return invalid_argument(
        "column '{}' has no values yet; append some before an item refers to it",
        steps.column_name(column.column));
  }
  const std::size_t compared = std::min(runs_.size(), kRunsCompared);
  for (auto known = runs_.end() - static_cast<std::ptrdiff_t>(compared); known != runs_.end();
       ++known) {
    if (known->group == group && same_steps(known->steps, column.ranges)) {
      *run = &*known;
      return {};
    }
  }
  Run& found = runs_.emplace_back();
  found.group = group;
  found.steps = column.ranges;
  found.rows_begin = rows_.size();
  found.piece_begin = static_cast<std::uint16_t>(pieces_.size());
  REVERIE_RETURN_IF_ERROR(steps.find_rows(column.column, column.ranges, rows_, pieces_));
  found.rows_end = rows_.size();
  if (pieces_.size() > std::numeric_limits<std::uint16_t>::max()) {
    return invalid_argument(
        "column '{}' brings the item to {} pieces of chunks; the bound is 65535; use a larger "
        "chunk_length",
        column.name, pieces_.size());
  }
  found.piece_end = static_cast<std::uint16_t>(pieces_.size());
  found.length = 0;
  for (const StepRange& range : column.ranges) found.length += range.length;
  if (found.length == 0) {
    return invalid_argument("column '{}' of the item has no rows; it needs at least one",
                            column.name);
  }
  *run = &found;
  return {};
}

void ItemBuilder::note_use() {
  for (const Run& run : runs_) {
    for (std::size_t i = run.rows_begin; i < run.rows_end; ++i) run.group->use_rows(rows_[i]);
  }
}

}  // namespace reverie
