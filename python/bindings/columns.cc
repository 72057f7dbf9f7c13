#include "python/bindings/columns.h"

#include <cstring>
#include <optional>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Set once by bind_columns; owned by the module.
nb::handle picked_type;

nb::object make_picked(nb::handle owner, const ColumnHistory& history, StepRange range,
                       bool is_squeezed) {
  nb::object object = nb::inst_alloc(picked_type);
  new (nb::inst_ptr<PickedColumn>(object))
      PickedColumn{nb::borrow(owner), &history, range, {}, is_squeezed};
  nb::inst_mark_ready(object);
  return object;
}

nb::object make_picked(nb::handle owner, const ColumnHistory& history,
                       const std::vector<StepIndex>& steps, bool is_squeezed) {
  std::vector<StepRange> ranges;
  for (const StepIndex step : steps) {
    if (!ranges.empty() && ranges.back().begin + ranges.back().length == step) {
      ++ranges.back().length;
    } else {
      ranges.push_back({step, 1});
    }
  }
  if (ranges.empty()) return make_picked(owner, history, StepRange{}, is_squeezed);
  nb::object object = make_picked(owner, history, ranges.front(), is_squeezed);
  if (ranges.size() > 1) nb::inst_ptr<PickedColumn>(object)->many = std::move(ranges);
  return object;
}

// Rows begin, begin + step, ...: `count` of them.
struct Slice {
  Py_ssize_t begin = 0;
  Py_ssize_t step = 1;
  Py_ssize_t count = 0;
};

Slice unpack(nb::handle key, Py_ssize_t count) {
  Slice slice;
  Py_ssize_t stop = 0;
  if (PySlice_Unpack(key.ptr(), &slice.begin, &stop, &slice.step) < 0) raise_pending();
  slice.count = PySlice_AdjustIndices(count, &slice.begin, &stop, slice.step);
  return slice;
}

// Rows picked by a Python index: a single one, a slice, or a list.
struct Pick {
  bool is_one = false;
  Slice slice;
  std::vector<Py_ssize_t> list;
};

Py_ssize_t checked_index(nb::handle index, Py_ssize_t count, std::string_view name) {
  const Py_ssize_t given = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (given == -1 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    const bool is_beyond = PyErr_ExceptionMatches(PyExc_IndexError) != 0;
    PyErr_Clear();
    const std::string text = shown(index);
    if (is_beyond) {
      raise(out_of_range("{} has {} steps; index {} is out of range", column_text(name), count,
                         text));
    }
    raise_type_error(format("{} is indexed with {}; give it an int, a slice or a list of ints",
                            column_text(name), text));
  }
  const Py_ssize_t row = given < 0 ? given + count : given;
  if (row < 0 || row >= count) {
    raise(
        out_of_range("{} has {} steps; index {} is out of range", column_text(name), count, given));
  }
  return row;
}

Pick pick_rows(nb::handle key, Py_ssize_t count, std::string_view name) {
  Pick pick;
  if (PySlice_Check(key.ptr())) {
    pick.slice = unpack(key, count);
    return pick;
  }
  if (PyIndex_Check(key.ptr()) != 0) {
    pick.is_one = true;
    pick.slice = {checked_index(key, count, name), 1, 1};
    return pick;
  }
  if (PyUnicode_Check(key.ptr()) || PySequence_Check(key.ptr()) == 0) {
    raise_type_error(format("{} is indexed with a {}; give it an int, a slice or a list of ints",
                            column_text(name), type_name_of(key.ptr())));
  }
  for (nb::handle index : nb::borrow(key)) {
    if (PyIndex_Check(index.ptr()) == 0) {
      raise_type_error(format("{} is indexed with a list that holds a {}; all must be ints",
                              column_text(name), type_name_of(index.ptr())));
    }
    pick.list.push_back(checked_index(index, count, name));
  }
  return pick;
}

// Raises unless each step has a cell.
void check_cells(const ColumnHistory& history, StepRange range) {
  const TrajectoryWriter& writer = *history.core->writer;
  for (std::uint32_t i = 0; i < range.length; ++i) {
    const StepIndex step = range.begin + i;
    if (writer.has_cell(history.column, step)) continue;
    const Status why = writer.cell(history.column, step).status();
    raise(invalid_argument(
        "{} has no value to refer to {} steps back: {}", column_text(history.name()),
        history.core->history_begin + history.core->history_length() - step, why.message()));
  }
}

nb::object history_item(nb::handle self, const ColumnHistory& history, nb::handle key) {
  InUse::check(*history.core);
  const StepIndex begin = history.core->history_begin;
  const auto length = static_cast<Py_ssize_t>(history.core->history_length());
  const auto stretch = [&](Py_ssize_t first, Py_ssize_t count, bool is_one) {
    const StepRange range{begin + static_cast<StepIndex>(first), static_cast<std::uint32_t>(count)};
    check_cells(history, range);
    return make_picked(self, history, range, is_one);
  };
  if (PySlice_Check(key.ptr())) {  // the common case, without an allocation
    const Slice slice = unpack(key, length);
    if (slice.step == 1 || slice.count <= 1) return stretch(slice.begin, slice.count, false);
  }
  const Pick pick = pick_rows(key, length, history.name());
  if (pick.is_one) return stretch(pick.slice.begin, 1, true);
  std::vector<StepIndex> steps;
  for (Py_ssize_t i = 0; i < pick.slice.count; ++i) {
    steps.push_back(begin + static_cast<StepIndex>(pick.slice.begin + i * pick.slice.step));
  }
  for (const Py_ssize_t row : pick.list) steps.push_back(begin + static_cast<StepIndex>(row));
  for (const StepIndex step : steps) check_cells(history, {step, 1});
  return make_picked(self, history, steps, false);
}

std::vector<StepIndex> steps_of(const PickedColumn& column) {
  std::vector<StepIndex> steps;
  for (const StepRange& range : column.ranges()) {
    for (std::uint32_t i = 0; i < range.length; ++i) steps.push_back(range.begin + i);
  }
  return steps;
}

nb::object picked_item(const PickedColumn& column, nb::handle key) {
  InUse::check(*column.history->core);
  const std::vector<StepIndex> steps = steps_of(column);
  const Pick pick = pick_rows(key, static_cast<Py_ssize_t>(steps.size()), column.history->name());
  std::vector<StepIndex> picked;
  for (Py_ssize_t i = 0; i < pick.slice.count; ++i) {
    picked.push_back(steps[static_cast<std::size_t>(pick.slice.begin + i * pick.slice.step)]);
  }
  for (const Py_ssize_t row : pick.list) picked.push_back(steps[static_cast<std::size_t>(row)]);
  return make_picked(column.owner, *column.history, picked, pick.is_one);
}

// One entry per step: the cell as a squeezed column, or None.
nb::list history_cells(nb::handle self, const ColumnHistory& history) {
  InUse::check(*history.core);
  nb::list cells;
  const StepIndex begin = history.core->history_begin;
  const std::size_t length = history.core->history_length();
  for (std::size_t i = 0; i < length; ++i) {
    if (history.core->writer->has_cell(history.column, begin + i)) {
      cells.append(make_picked(self, history, StepRange{begin + i, 1}, true));
    } else {
      cells.append(nb::none());
    }
  }
  return cells;
}

nb::list picked_cells(const PickedColumn& column) {
  nb::list cells;
  for (const StepIndex step : steps_of(column)) {
    cells.append(make_picked(column.owner, *column.history, StepRange{step, 1}, true));
  }
  return cells;
}

bool is_expired(const PickedColumn& column) {
  InUse::check(*column.history->core);
  for (const StepIndex step : steps_of(column)) {
    if (!column.history->core->writer->has_cell(column.history->column, step)) return true;
  }
  return false;
}

const TensorSpec& spec_of(const PickedColumn& column) {
  const TensorSpec* const spec = column.history->spec();
  if (spec == nullptr) {
    raise(failed_precondition("{} has no value yet", column_text(column.history->name())));
  }
  return *spec;
}

Shape shape_of(const PickedColumn& column) {
  Shape shape = spec_of(column).shape;
  if (!column.is_squeezed) {
    shape.insert(shape.begin(), static_cast<std::int64_t>(column.row_count()));
  }
  return shape;
}

nb::tuple to_tuple(std::span<const std::int64_t> shape) {
  nb::list extents;
  for (const std::int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

nb::object to_array(const PickedColumn& column) {
  InUse::check(*column.history->core);
  const TrajectoryWriter& writer = *column.history->core->writer;
  const DType dtype = spec_of(column).dtype;
  const Shape shape = shape_of(column);
  nb::object array;
  std::byte* to = nullptr;
  if (!has_variable_size(dtype)) {
    array = new_array(dtype, shape);
    to = array_data(array);
  }
  std::vector<std::byte> text;
  for (const StepIndex step : steps_of(column)) {
    const TensorView cell = unwrap(writer.cell(column.history->column, step));
    if (has_variable_size(dtype)) {
      text.insert(text.end(), cell.bytes.begin(), cell.bytes.end());
    } else if (!cell.bytes.empty()) {
      std::memcpy(to, cell.bytes.data(), cell.bytes.size());
      to += cell.bytes.size();
    }
  }
  return has_variable_size(dtype) ? array_of_text(dtype, shape, text) : array;
}

// One column from cells, the results of iterating over a history or a column.
void init_picked(PickedColumn* self, nb::handle references, nb::handle squeezed, nb::handle path) {
  const bool squeeze = flag_argument("squeeze", squeezed);
  std::vector<StepIndex> steps;
  nb::object owner;
  const ColumnHistory* history = nullptr;
  std::string name;
  if (!path.is_none()) name = PyUnicode_Check(path.ptr()) ? str_of(path) : shown(path);
  const nb::object cells = nb::steal(PySequence_List(references.ptr()));
  if (!cells.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    raise_type_error(format("data_references is {}; it must be a list of cells of a history",
                            shown(references)));
  }
  for (nb::handle reference : cells) {
    const PickedColumn* const cell = as_picked_column(reference.ptr());
    if (cell == nullptr) {
      raise(invalid_argument("{} refers to a {}; all references must be cells of one history",
                             column_text(name), type_name_of(reference.ptr())));
    }
    if (history != nullptr &&
        (history->core != cell->history->core || history->column != cell->history->column)) {
      raise(invalid_argument("{} refers to cells of '{}' and of '{}'; take them from one column",
                             column_text(name), history->name(), cell->history->name()));
    }
    history = cell->history;
    owner = cell->owner;
    for (const StepIndex step : steps_of(*cell)) steps.push_back(step);
  }
  if (history == nullptr) raise(invalid_argument("{} has no references", column_text(name)));
  if (squeeze && steps.size() != 1) {
    raise(invalid_argument("{} has {} rows; only a single one can be squeezed", column_text(name),
                           steps.size()));
  }
  const nb::object made = make_picked(owner, *history, steps, squeeze);
  new (self) PickedColumn(*nb::inst_ptr<PickedColumn>(made));
}

// The slots for `history[...]` and `column[...]`, without nanobind's dispatch.
template <typename F>
PyObject* guarded(F&& f) {
  try {
    return f().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

PyObject* history_subscript(PyObject* self, PyObject* key) {
  return guarded([&] { return history_item(self, *nb::inst_ptr<ColumnHistory>(self), key); });
}

PyObject* picked_subscript(PyObject* self, PyObject* key) {
  return guarded([&] { return picked_item(*nb::inst_ptr<PickedColumn>(self), key); });
}

Py_ssize_t history_length(PyObject* self) {
  try {
    const WriterCore& core = *nb::inst_ptr<ColumnHistory>(self)->core;
    InUse::check(core);
    return static_cast<Py_ssize_t>(core.history_length());
  } catch (nb::python_error& error) {
    error.restore();
    return -1;
  }
}

const PyType_Slot kHistorySlots[] = {
    {Py_mp_subscript, reinterpret_cast<void*>(history_subscript)},
    {Py_mp_length, reinterpret_cast<void*>(history_length)},
    {0, nullptr},
};

const PyType_Slot kPickedSlots[] = {
    {Py_mp_subscript, reinterpret_cast<void*>(picked_subscript)},
    {0, nullptr},
};

}  // namespace

nb::object make_history(std::shared_ptr<WriterCore> core, ColumnId column) {
  return nb::cast(ColumnHistory{std::move(core), column});
}

nb::object make_cell(nb::handle history, StepIndex step) {
  return make_picked(history, *nb::inst_ptr<ColumnHistory>(history), StepRange{step, 1}, true);
}

const PickedColumn* as_picked_column(PyObject* object) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != picked_type.ptr()) return nullptr;
  return nb::inst_ptr<PickedColumn>(object);
}

void bind_columns(nb::module_& m) {
  using namespace nb::literals;

  nb::class_<ColumnHistory>(m, "ColumnHistory", nb::type_slots(kHistorySlots), nb::is_final(),
                            R"(The steps of one column since the episode began.

``history[-1]`` is the newest step as a squeezed column, ``history[-3:]`` the last three as a
column of three rows, ``history[[0, 2]]`` any rows; the rules are those of a Python list. Only the
last ``num_keep_alive_refs`` steps can be referred to.)")
      .def(
          "__iter__",
          [](nb::handle self) {
            return nb::iter(history_cells(self, nb::cast<const ColumnHistory&>(self)));
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[TrajectoryColumn | None]"),
          "The cells, oldest first; None where a step has none or it has expired.")
      .def("__repr__", [](const ColumnHistory& self) {
        return format("<ColumnHistory {} of {} steps>",
                      self.spec() ? spec_text(*self.spec()) : std::string(self.name()),
                      self.core->history_length());
      });

  auto picked = nb::class_<PickedColumn>(m, "TrajectoryColumn", nb::type_slots(kPickedSlots),
                                         nb::is_final(), nb::pooled(),
                                         R"(Rows of one column, to make an item of.

Comes from indexing a column of ``writer.history``. Refers to the writer's rows and copies nothing,
except in :meth:`numpy`.)");
  picked_type = picked;
  picked
      .def("__init__", &init_picked, "data_references"_a.none(), nb::kw_only(),
           "squeeze"_a.none() = false, "path"_a = nb::none(),
           nb::sig("def __init__(self, data_references: collections.abc.Iterable[TrajectoryColumn],"
                   " *, squeeze: bool = False, path: object = None) -> None"),
           "One column from cells of a history.")
      .def("__len__", &PickedColumn::row_count, "How many rows there are.")
      .def(
          "__iter__", [](const PickedColumn& self) { return nb::iter(picked_cells(self)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[TrajectoryColumn]"),
          "The rows, each a column of one.")
      .def_prop_ro(
          "is_squeezed", [](const PickedColumn& self) { return self.is_squeezed; },
          "Whether this is one row without its leading axis.")
      .def_prop_ro(
          "shape", [](const PickedColumn& self) { return to_tuple(shape_of(self)); },
          nb::sig("def shape(self) -> tuple[int, ...]"),
          "``(rows, ...)``, or the shape of the row when squeezed.")
      .def_prop_ro(
          "dtype", [](const PickedColumn& self) { return numpy_dtype(spec_of(self).dtype); },
          nb::sig("def dtype(self) -> numpy.dtype"), "The element type of the rows.")
      .def_prop_ro("expired", &is_expired,
                   "Whether a row can no longer be referred to: see ``num_keep_alive_refs``.")
      .def("numpy", &to_array, nb::sig("def numpy(self) -> numpy.ndarray"),
           "A copy of the rows.\n\nRaises:\n    FailedPreconditionError: a row has expired.")
      .def("__repr__", [](const PickedColumn& self) {
        return format("<TrajectoryColumn {} of {} rows{}>",
                      self.history->spec() ? spec_text(*self.history->spec())
                                           : std::string(self.history->name()),
                      self.row_count(), self.is_squeezed ? ", squeezed" : "");
      });
}

}  // namespace reverie::python
