// Column histories, with which a user refers back to earlier steps, and the rows picked from them.
//
//     writer.history["obs"][-3:]
//     nest of ColumnHistory  -> PickedColumn (reverie.TrajectoryColumn)
//
// They read from the writer each time and copy nothing, so a history stays current.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/one_call.h"
#include "reverie/client/trajectory_writer.h"

namespace reverie::python {

namespace nb = nanobind;

// A C++ writer and what Python must remember about it; shared by the Python writer and its
// histories.
struct WriterCore : OneCallAtATime {
  WriterCore() : OneCallAtATime("writer") {}

  std::shared_ptr<ReplayService> service;
  std::unique_ptr<TrajectoryWriter> writer;
  StepIndex history_begin = 0;  // first step that histories show

  std::size_t history_length() const {
    return static_cast<std::size_t>(writer->next_step() - history_begin) +
           (writer->step_is_open() ? 1 : 0);
  }
};

// The steps of one column since the episode began.
struct ColumnHistory {
  std::shared_ptr<WriterCore> core;
  ColumnId column = 0;

  std::string_view name() const { return core->writer->column_name(column); }
  // Null before the column's first value.
  const TensorSpec* spec() const { return core->writer->column_spec(column); }
};

// Rows of one column, in any order.
struct PickedColumn {
  nb::object owner;  // keeps `history` alive
  const ColumnHistory* history = nullptr;
  StepRange one;
  std::vector<StepRange> many;  // instead of `one` unless empty
  bool is_squeezed = false;

  std::span<const StepRange> ranges() const {
    if (!many.empty()) return many;
    return {&one, one.length > 0 ? std::size_t{1} : 0};
  }
  std::size_t row_count() const {
    std::size_t rows = 0;
    for (const StepRange& range : ranges()) rows += range.length;
    return rows;
  }
};

nb::object make_history(std::shared_ptr<WriterCore> core, ColumnId column);

// The cell of a ColumnHistory at `step`, as a squeezed column. Requires a cell that was set.
nb::object make_cell(nb::handle history, StepIndex step);

// The column behind `object`, or null if it is not a column.
const PickedColumn* as_picked_column(PyObject* object);

}  // namespace reverie::python
