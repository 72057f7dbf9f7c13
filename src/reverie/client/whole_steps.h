// WholeSteps: makes items over all columns of the last steps of a writer.
//
// For writers whose steps all have the same columns, like Reverb's older Writer. The first step
// determines them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/client/trajectory_writer.h"

namespace reverie {

// Used only by the writer's thread.
class WholeSteps {
 public:
  bool empty() const { return columns_.empty(); }
  // Describes the nest that the columns of a step form.
  const std::string& structure() const { return structure_; }

  // Keeps the columns of the first step, in the order of `structure`.
  void keep(const TrajectoryWriter& writer, std::span<const ColumnId> columns,
            std::string structure);
  // The error for a step of these columns, whose structure differs from the first step's.
  Status refusal(std::span<const std::string> names) const;
  // The columns of an item over the last `count` of the `available` steps before `next_step`; valid
  // until the next call. INVALID_ARGUMENT if fewer steps are available.
  Result<std::span<const TrajectoryColumn>> last(std::int64_t count, std::int64_t available,
                                                 StepIndex next_step);

 private:
  std::vector<TrajectoryColumn> columns_;
  std::string structure_;
  StepRange range_;
};

}  // namespace reverie
