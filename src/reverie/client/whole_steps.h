// WholeSteps: items over the last steps of a writer, all columns of them.
//
// For writers whose steps all have the same columns, as Reverb's first one. The first step says
// which they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/client/trajectory_writer.h"

namespace reverie {

// Used by one thread, that of the writer.
class WholeSteps {
 public:
  bool empty() const { return columns_.empty(); }
  // How the columns of a step fold into what was written.
  const std::string& structure() const { return structure_; }

  // Keeps the columns of the first step, in the order in which `structure` folds them.
  void keep(const TrajectoryWriter& writer, std::span<const ColumnId> columns,
            std::string structure);
  // Why a step of these columns, of another structure than the first, is refused.
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
