// StepBuffer: the steps that a writer writes, and those that items can still refer to.
//
// Knows columns, types and steps, and which ColumnGroup keeps a column's rows; knows no service.
// A state machine without lock or clock: TrajectoryWriter is the shell around it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/client/column_group.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/gather/row_reader.h"

namespace reverie {

// Not thread-safe. Calls that TrajectoryWriter has too mean the same here.
class StepBuffer {
 public:
  static Result<std::unique_ptr<StepBuffer>> make(ChunkOptions options, Allocator& allocator,
                                                  std::uint64_t seed);

  ColumnId column(std::string_view name);
  Status configure(std::string_view name, ChunkOptions options);
  Status append(std::span<const ColumnValue> values, bool partial_step);
  void end_episode(bool clear_buffers);
  void note_flush();

  StepIndex next_step() const { return step_; }
  bool step_is_open() const { return step_is_open_; }
  StepIndex episode_begin() const { return episode_begin_; }
  std::size_t column_count() const { return columns_.size(); }
  std::string_view column_name(ColumnId column) const { return columns_[column]->name; }
  const TensorSpec* column_spec(ColumnId column) const {
    return columns_[column]->group ? &columns_[column]->spec : nullptr;
  }
  bool has_cell(ColumnId column, StepIndex step) const;
  Result<TensorView> cell(ColumnId column, StepIndex step) const;

  // --- For items.
  // Null before the column's first value.
  ColumnGroup* group_of(ColumnId column) const { return columns_[column]->group; }
  std::uint16_t chunk_column(ColumnId column) const { return columns_[column]->index; }
  // Appends the rows of each range to `rows` and their pieces to `pieces`, merging neighbours. Does
  // not check the column's own cells. Requires group_of(column).
  Status find_rows(ColumnId column, std::span<const StepRange> steps,
                   std::vector<ColumnGroup::Rows>& rows, std::vector<Piece>& pieces) const;
  // Whether the column has all cells of the rows that find_rows gave for `steps`.
  Status check_cells(ColumnId column, std::span<const StepRange> steps,
                     std::span<const ColumnGroup::Rows> rows) const {
    const Column& c = *columns_[column];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::uint64_t bad_row = 0;
      if (!c.group->are_set(c.index, rows[i], &bad_row)) [[unlikely]] {
        return missing(column, steps[i].begin + (bad_row - rows[i].begin),
                       ColumnGroup::Lookup::kUnset);
      }
    }
    return {};
  }

 private:
  static constexpr StepIndex kNoStep = ~StepIndex{0};

  struct Column {
    std::string name;
    TensorSpec spec;
    std::size_t element_count = 0;
    std::size_t row_bytes = 0;     // of rows of fixed size
    StepIndex given_in = kNoStep;  // the step for which a value was last accepted
    ColumnGroup* group = nullptr;  // null before the first value
    std::uint32_t group_index = 0;
    std::uint16_t index = 0;  // in the group's chunks
  };

  StepBuffer(ChunkOptions options, Allocator& allocator, std::uint64_t seed);

  Status accept(const ColumnValue& value);
  Status accept_first(ColumnId id, const TensorView& value);
  Status refuse(const Column& column, const TensorView& value) const;
  Status make_room(std::span<const ColumnValue> values);
  void take_back(std::span<const ColumnValue> accepted);
  void finish_step();
  void join_group(Column& column);
  const ChunkOptions& options_of(std::string_view name) const;
  Status missing(ColumnId column, StepIndex step, ColumnGroup::Lookup why) const;

  ChunkOptions default_options_;
  Allocator& allocator_;
  Random random_;
  std::vector<std::unique_ptr<Column>> columns_;  // by pointer: callers hold names and specs
  std::map<std::string, ColumnId, std::less<>> ids_;
  std::map<std::string, ChunkOptions, std::less<>> configured_;
  std::vector<std::unique_ptr<ColumnGroup>> groups_;

  StepIndex step_ = 0;
  bool step_is_open_ = false;
  StepIndex episode_begin_ = 0;
  EpisodeId episode_;

  mutable Ref<const Chunk> unpacked_;  // the encoded chunk that cell() read last
  mutable RowReader reader_;           // of that chunk

  // Used during an append; kept to reuse the memory.
  std::vector<ColumnId> new_columns_;   // columns that got their first value
  bool has_varying_ = false;            // whether a value of varying size was accepted
  std::vector<std::size_t> var_bytes_;  // in this append, by group
};

}  // namespace reverie
