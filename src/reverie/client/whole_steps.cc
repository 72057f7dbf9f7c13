#include "reverie/client/whole_steps.h"

#include <algorithm>
#include <utility>

namespace reverie {

void WholeSteps::keep(const TrajectoryWriter& writer, std::span<const ColumnId> columns,
                      std::string structure) {
  for (const ColumnId column : columns) {
    columns_.push_back({writer.column_name(column), column, {}, false, /*stepwise=*/true});
  }
  structure_ = std::move(structure);
}

Status WholeSteps::refusal(std::span<const std::string> names) const {
  for (const std::string& name : names) {
    const bool is_known = std::ranges::any_of(
        columns_, [&](const TrajectoryColumn& column) { return column.name == name; });
    if (is_known) continue;
    return invalid_argument(
        "the step has {}, which earlier steps lack; all steps of this writer must have the same "
        "structure",
        name.empty() ? std::string("the array") : "column '" + name + "'");
  }
  return invalid_argument(
      "the step has {} columns in another structure than earlier steps, which had {}; all steps of "
      "this writer must have the same",
      names.size(), columns_.size());
}

Result<std::span<const TrajectoryColumn>> WholeSteps::last(std::int64_t count,
                                                           std::int64_t available,
                                                           StepIndex next_step) {
  if (count > available) {
    return invalid_argument("num_timesteps is {}, but {} steps were appended", count, available);
  }
  range_ = {next_step - static_cast<StepIndex>(count), static_cast<std::uint32_t>(count)};
  for (TrajectoryColumn& column : columns_) column.ranges = {&range_, 1};
  return std::span<const TrajectoryColumn>(columns_);
}

}  // namespace reverie
