// Binds client/trajectory_writer.h.
//
// A step or trajectory with the structure of an earlier one needs no allocation: its nest is
// matched against the remembered one, whose columns are known.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/bind.h"
#include "python/bindings/client.h"
#include "python/bindings/columns.h"
#include "python/bindings/convert.h"
#include "python/bindings/history_nest.h"
#include "python/bindings/nest.h"
#include "python/bindings/python_api.h"
#include "python/bindings/values.h"
#include "python/bindings/writer_support.h"
#include "reverie/base/fork.h"
#include "reverie/base/format.h"
#include "reverie/client/whole_steps.h"

namespace reverie::python {
namespace {

ChunkOptions chunk_options(nb::handle num_keep_alive_refs, std::string_view length_name,
                           nb::handle length, CodecChoice codec) {
  ChunkOptions options;
  options.codec = codec;
  options.num_keep_alive_refs =
      integer_argument<std::uint32_t>("num_keep_alive_refs", num_keep_alive_refs, 1);
  options.chunk_length = chunk_length_argument(length_name, length);
  return options;
}

// ("obs", "position") or "obs/position".
std::string column_path(nb::handle path) {
  if (PyUnicode_Check(path.ptr())) return std::string(text_argument("path", path));
  const nb::object parts = nb::steal(PySequence_List(path.ptr()));
  if (!parts.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    raise_type_error(
        format("path is {}; it must be a str such as 'obs/position', or its parts", shown(path)));
  }
  std::string joined;
  for (nb::handle part : parts) {
    if (!joined.empty()) joined += '/';
    joined += str_of(part);
  }
  return joined;
}

// What is known about a structure of steps: its columns in visiting order, and whether the history
// has them all.
struct StepNote {
  std::vector<ColumnId> columns;
  bool is_merged = false;
};

class Writer {
 public:
  // `explain`: None, or a function that is called with an error of append() or create_item() and
  // the trajectory, None for append(). It returns the error to raise.
  Writer(const ClientHandle& client, TrajectoryWriterOptions options, nb::object explain)
      : core_(std::make_shared<WriterCore>()),
        codec_(options.chunks.codec),
        explain_(std::move(explain)),
        waiting_(*client.service(), "") {
    core_->service = client.service();
    wait_ = waiting_.options();
    options.seed = unwrap(without_gil([&] { return client.next_seed(wait_); }));
    core_->writer = unwrap(TrajectoryWriter::open(client.service(), options));
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { abandon(writer(), fork_guard_); }

  void append(nb::handle step, nb::handle partial_step) {
    explained(nb::none(), [&] {
      const InUse in_use(*core_);
      const LeavesOfCall leaves(leaves_);
      const bool is_partial = flag_argument("partial_step", partial_step);
      auto& [nest, note] = steps_.flatten(step, leaves_);
      write(*nest, note, is_partial);
    });
  }

  // As append, for Reverb's writer, which returns the cells that were written.
  nb::object append_cells(nb::handle step, nb::handle partial_step) {
    nb::object cells;
    explained(nb::none(), [&] {
      const InUse in_use(*core_);
      const LeavesOfCall leaves(leaves_);
      const bool is_partial = flag_argument("partial_step", partial_step);
      auto& [nest, note] = steps_.flatten(step, leaves_);
      const StepIndex row = writer().next_step();
      write(*nest, note, is_partial);
      cells = cells_of(*nest, note, row);
    });
    return cells;
  }

  // As append, for writers whose steps must all have the same columns.
  void append_whole(nb::handle step) {
    const InUse in_use(*core_);
    const LeavesOfCall leaves(leaves_);
    auto& [nest, note] = steps_.flatten(step, leaves_);
    if (!whole_.empty() && whole_.structure() != nest->text()) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < nest->leaf_count(); ++i) names.push_back(nest->path(i));
      raise(whole_.refusal(names));
    }
    write(*nest, note, false);
    if (!whole_.empty()) return;
    std::vector<ColumnId> columns;
    for (std::size_t i = 0; i < nest->leaf_count(); ++i) {
      columns.push_back(note.columns[nest->leaf_of_column(i)]);
    }
    whole_.keep(writer(), columns, nest->text());
  }

  void create_item(nb::handle table, nb::handle priority, nb::handle trajectory, nb::handle version,
                   nb::handle timeout_s) {
    explained(trajectory, [&] {
      const InUse in_use(*core_);
      const LeavesOfCall leaves(leaves_);
      auto& [nest, columns] = items_.flatten(trajectory, leaves_);
      const std::size_t count = leaves_.size();
      if (columns.size() != count) columns.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t leaf = nest->leaf_of_column(i);
        const PickedColumn& picked = picked_column(nest->path(leaf), leaves_[leaf]);
        columns[i] = {nest->path(leaf), picked.history->column, picked.ranges(),
                      picked.is_squeezed};
      }
      create(text_argument("table", table), priority, columns, nest->text(),
             integer_argument("version", version, std::numeric_limits<std::int64_t>::min()),
             timeout_s);
    });
  }

  // An item over the last steps of a writer of whole steps.
  void create_whole_item(nb::handle table, nb::handle num_timesteps, nb::handle priority,
                         nb::handle timeout_s) {
    check_open();
    const InUse in_use(*core_);
    const auto available = static_cast<std::int64_t>(core_->history_length());
    const std::int64_t count = integer_argument("num_timesteps", num_timesteps, 1);
    const std::span<const TrajectoryColumn> columns =
        unwrap(whole_.last(count, available, writer().next_step()));
    create(text_argument("table", table), priority, columns, whole_.structure(), /*version=*/0,
           timeout_s);
  }

  // A nest of the caller's own, which programs narrow in place. Its columns are the same each time.
  nb::object history() {
    check_here();
    InUse::check(*core_);
    if (history_.empty()) {
      raise(failed_precondition("the writer has no history before the first append"));
    }
    std::vector<nb::object> columns;
    columns.reserve(history_.structure().leaves.size());
    for (const std::size_t column : history_.structure().leaves) {
      columns.push_back(column_history(column));
    }
    return fold(history_.structure().text, columns);
  }

  std::size_t episode_steps() const {
    check_here();
    InUse::check(*core_);
    return writer().episode_steps();
  }

  // For bind_ends().
  void check_here() const { unwrap(fork_guard_.check("writer")); }
  TrajectoryWriter& writer() const { return *core_->writer; }
  OneCallAtATime& calls() const { return *core_; }
  const WaitOptions& wait_options() const { return wait_; }
  void on_episode_end(bool clears) {
    if (clears) core_->history_begin = writer().next_step();
  }

  void configure(nb::handle path, nb::handle num_keep_alive_refs, nb::handle max_chunk_length,
                 nb::handle codec) {
    const InUse in_use(*core_);
    const ChunkOptions options =
        chunk_options(num_keep_alive_refs, "max_chunk_length", max_chunk_length,
                      codec.is_none() ? codec_ : codec_argument(codec));
    if (options.chunk_length.value_or(1) > options.num_keep_alive_refs) {
      raise(invalid_argument("max_chunk_length is {}; it must be at most num_keep_alive_refs, {}",
                             *options.chunk_length, options.num_keep_alive_refs));
    }
    const std::string name = column_path(path);
    unwrap(writer().configure(name, options).with_context(column_text(name)));
  }

 private:
  // Runs `call`, which was given `trajectory` or None.
  template <typename Call>
  void explained(nb::handle trajectory, const Call& call) const {
    try {
      call();
    } catch (const nb::python_error& error) {
      if (explain_.is_none()) throw;
      raise_object(explain_(error.value(), trajectory));
    }
  }

  void check_open() const { check_writer_open(writer()); }

  // Writes the leaves that were found, according to `nest`.
  void write(const Nest& nest, StepNote& note, bool partial_step) {
    if (note.columns.empty()) {
      note.columns = learn(nest);
    } else if (!note.is_merged) {  // its first append was refused: another may have come before it
      history_.check(nest);
    }
    values_.begin(leaves_.size());
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i] == Py_None) continue;  // a step may lack columns
      if (values_.add(note.columns[i], leaves_[i])) continue;
      leaves_.hold();
      values_.add_any(note.columns[i], nest.path(i), leaves_[i]);
    }
    unwrap(writer().append(values_.values(), partial_step));
    if (note.is_merged) return;
    history_.merge(nest, note.columns);
    note.is_merged = true;
  }

  // The cells of `row`, which was just written, nested as the step; None for columns that it lacks.
  nb::object cells_of(const Nest& nest, const StepNote& note, StepIndex row) {
    std::vector<nb::object> cells;
    cells.reserve(leaves_.size());
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const std::size_t leaf = nest.leaf_of_column(i);
      cells.push_back(leaves_[leaf] == Py_None
                          ? nb::none()
                          : make_cell(column_history(note.columns[leaf]), row));
    }
    return fold(nest.text(), cells);
  }

  nb::object column_history(std::size_t column) {
    if (column >= column_histories_.size()) column_histories_.resize(column + 1);
    if (!column_histories_[column].is_valid()) {
      column_histories_[column] = make_history(core_, static_cast<ColumnId>(column));
    }
    return column_histories_[column];
  }

  // The columns of a structure that is new, by visiting order.
  std::vector<ColumnId> learn(const Nest& nest) {
    check_open();
    if (nest.leaf_count() == 0) {
      raise(invalid_argument("the step has no columns; give it at least one array"));
    }
    history_.check(nest);
    std::vector<ColumnId> columns;
    for (std::size_t i = 0; i < nest.leaf_count(); ++i) {
      columns.push_back(writer().column(nest.path(i)));
    }
    return columns;
  }

  const PickedColumn& picked_column(const std::string& path, PyObject* leaf) const {
    const PickedColumn* const picked = as_picked_column(leaf);
    if (picked == nullptr) {
      raise_type_error(
          format("{} of the trajectory is a {}; give it rows of the writer's history, such as "
                 "writer.history['name'][-1:]",
                 column_text(path), type_name_of(leaf)));
    }
    if (picked->history->core != core_) {
      raise(invalid_argument("{} of the trajectory refers to rows of another writer",
                             column_text(path)));
    }
    return *picked;
  }

  void create(std::string_view table, nb::handle priority,
              std::span<const TrajectoryColumn> columns, const std::string& structure,
              std::int64_t version, nb::handle timeout_s) {
    NewItem item{table, {}, columns, structure, version};
    if (!priority.is_none()) item.priority = number_argument("priority", priority);
    const TimePoint until = python::deadline(timeout_s);
    if (waited_table_ != table) {
      waited_table_ = table;
      waiting_.set_table(waited_table_);
    }
    // A call that does not wait keeps the lock: releasing it would cost more.
    if (!writer().may_wait(table)) {
      unwrap(writer().create_item(item, until, wait_));
    } else {
      leaves_.hold();
      unwrap(without_gil([&] { return writer().create_item(item, until, wait_); }));
    }
  }

  std::shared_ptr<WriterCore> core_;
  ForkGuard fork_guard_;
  CodecChoice codec_;  // for columns that are not configured
  nb::object explain_;
  Waiting waiting_;
  WaitOptions wait_;
  std::string waited_table_;  // of the last item, to report on a wait

  Leaves leaves_;
  Values values_;
  NestCache<StepNote> steps_;
  NestCache<std::vector<TrajectoryColumn>> items_;

  HistoryNest history_;
  std::vector<nb::object> column_histories_;  // by ColumnId, each made on request

  WholeSteps whole_;
};

void init_trajectory_writer(Writer* self, const ClientHandle& client,
                            nb::handle num_keep_alive_refs, nb::handle validate_items,
                            nb::handle chunk_length, nb::handle max_in_flight_items,
                            nb::handle codec, nb::object explain) {
  unwrap(client.check());
  TrajectoryWriterOptions options;
  options.chunks =
      chunk_options(num_keep_alive_refs, "chunk_length", chunk_length, codec_argument(codec));
  options.validate_items = flag_argument("validate_items", validate_items);
  options.max_in_flight_items =
      integer_argument<std::size_t>("max_in_flight_items", max_in_flight_items, 1);
  new (self) Writer(client, options, std::move(explain));
}

}  // namespace

void bind_writer(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Writer> type(m, "TrajectoryWriter", "See ``reverie.TrajectoryWriter``.");
  type.def("__init__", &init_trajectory_writer, "client"_a, "num_keep_alive_refs"_a.none(),
           nb::kw_only(), "validate_items"_a.none() = true, "chunk_length"_a = nb::none(),
           "max_in_flight_items"_a.none() = 1000, "codec"_a.none() = "auto",
           "explain"_a = nb::none(),
           nb::sig("def __init__(self, client: Client, num_keep_alive_refs: int, *, "
                   "validate_items: bool = True, chunk_length: int | None = None, "
                   "max_in_flight_items: int = 1000, codec: str = 'auto', "
                   "explain: collections.abc.Callable[[BaseException, typing.Any], BaseException]"
                   " | None = None) -> None"))
      .def("append", &Writer::append, "data"_a.none(), nb::kw_only(),
           "partial_step"_a.none() = false,
           nb::sig("def append(self, data: typing.Any, *, partial_step: bool = False) -> None"),
           R"(Appends one step, or a part of it.

Args:
    data: a nest of arrays. Columns may be left out, or be None; new ones may come later.
    partial_step: leave the step open: the next append fills the same one, with other columns.

Raises:
    InvalidArgumentError: a column has another shape or dtype than before, came in this step
        already, or the step has another structure. Nothing was written; the writer stays usable.
    UnsupportedTypeError: a value of a type that cannot be stored.
    FailedPreconditionError: the writer is closed.)")
      .def("_append_cells", &Writer::append_cells, "data"_a.none(), nb::kw_only(),
           "partial_step"_a.none() = false,
           nb::sig("def _append_cells(self, data: typing.Any, *, partial_step: bool = False) -> "
                   "typing.Any"))
      .def("append_whole", &Writer::append_whole, "data"_a.none(),
           nb::sig("def append_whole(self, data: typing.Any) -> None"),
           "Appends one step, which must have the structure of the first.")
      .def("create_item", &Writer::create_item, "table"_a.none(), "priority"_a.none(),
           "trajectory"_a.none(), nb::kw_only(), "version"_a.none() = 0, "timeout_s"_a = nb::none(),
           nb::sig("def create_item(self, table: str, priority: float | None, "
                   "trajectory: typing.Any, *, version: int = 0, timeout_s: float | None = None) "
                   "-> None"),
           R"(Makes an item of rows that were appended.

It is in its table on return, unless the rate limiter holds it back; then it is queued, in order.
The call only waits when ``max_in_flight_items`` are queued already, and, for the first item of
a table, for the table's signature.

Args:
    table: its name.
    priority: the item's; None for the largest that the table has seen, or for 1 over gRPC.
    trajectory: a nest of columns picked from ``history``.
    version: that of the weights that acted, int64: it comes back as ``Batch.versions``.
    timeout_s: how long to wait: None without limit, 0 not at all.

Raises:
    InvalidArgumentError: no rows, an expired or missing one, a priority that is no number, or
        another signature than the table's.
    NotFoundError: there is no such table.
    DeadlineExceededError: the queue stayed full, or no server sent the signature; the item was
        not made.
    FailedPreconditionError: the writer is closed.)")
      .def("create_whole_item", &Writer::create_whole_item, "table"_a.none(),
           "num_timesteps"_a.none(), "priority"_a.none(), nb::kw_only(), "timeout_s"_a = nb::none(),
           nb::sig("def create_whole_item(self, table: str, num_timesteps: int, "
                   "priority: float | None, *, timeout_s: float | None = None) -> None"),
           "Makes an item of the last steps, all columns of them.")
      .def_prop_ro("history", &Writer::history, nb::sig("def history(self) -> HistoryNest"),
                   R"(A new nest of ``ColumnHistory``: every column of any step so far.

Raises:
    FailedPreconditionError: nothing was appended yet.)")
      .def_prop_ro("episode_steps", &Writer::episode_steps,
                   "Complete steps since the episode began.")
      .def("configure", &Writer::configure, "path"_a.none(), nb::kw_only(),
           "num_keep_alive_refs"_a.none(), "max_chunk_length"_a.none(), "codec"_a = nb::none(),
           nb::sig("def configure(self, path: str | tuple[str | int, ...], *, "
                   "num_keep_alive_refs: int, max_chunk_length: int | None, "
                   "codec: str | None = None) -> None"),
           R"(Sets how one column is kept, known or to come.

Args:
    path: ``("obs", "position")``, or ``"obs/position"``.
    num_keep_alive_refs: steps that items can refer back to; >= 1.
    max_chunk_length: steps that share a chunk, at most ``num_keep_alive_refs``; None tunes it.
    codec: how full chunks of it are kept, as ``trajectory_writer`` takes it; None for what the
        writer was given.

Raises:
    InvalidArgumentError: an argument is out of range, or there is no such codec.
    FailedPreconditionError: the column has steps that were not flushed.)");
  bind_ends(type);
}

}  // namespace reverie::python
