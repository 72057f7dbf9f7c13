// ItemBuilder: finds the rows of a new item, and makes its Trajectory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reverie/client/layout_cache.h"
#include "reverie/client/step_buffer.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/record/trajectory.h"

namespace reverie {

// Not thread-safe. Keeps its memory from one item to the next.
class ItemBuilder {
 public:
  // The rows that `item` names. INVALID_ARGUMENT, naming the column, if a cell is missing.
  Result<Trajectory> build(const NewItem& item, const StepBuffer& steps);
  // Tells the column groups that the rows of the last build() are in use.
  void note_use();

 private:
  // The rows and pieces shared by columns of one group over the same steps.
  struct Run {
    ColumnGroup* group;
    std::span<const StepRange> steps;
    std::size_t rows_begin;
    std::size_t rows_end;
    std::uint16_t piece_begin;
    std::uint16_t piece_end;
    std::uint64_t length;
  };

  Status find_run(const TrajectoryColumn& column, const StepBuffer& steps, const Run** run);

  LayoutCache layouts_;
  std::vector<Run> runs_;
  std::vector<ColumnGroup::Rows> rows_;
  std::vector<Piece> pieces_;
  std::vector<ColumnPlace> places_;
};

}  // namespace reverie
