// Binds structured/structured_writer.h.
//
// A step with the structure of an earlier one needs no allocation: its nest is matched against the
// remembered one, and only the leaves that a pattern uses are read.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/bind.h"
#include "python/bindings/client.h"
#include "python/bindings/columns.h"
#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "python/bindings/values.h"
#include "python/bindings/writer_support.h"
#include "reverie/base/fork.h"
#include "reverie/structured/structured_writer.h"

namespace reverie::python {
namespace {

// A configuration as the package passes it; its numbers are those of the enumerations.
using ColumnTuple = std::tuple<std::string, LeafIndex, std::optional<std::int64_t>,
                               std::optional<std::int64_t>, std::optional<std::int64_t>>;
using ConditionTuple = std::tuple<int, LeafIndex, int, std::int64_t, std::int64_t, bool>;
using PriorityTuple = std::tuple<double, std::optional<LeafIndex>, double>;
using ConfigTuple = std::tuple<std::vector<ColumnTuple>, std::string, std::string,
                               std::vector<ConditionTuple>, PriorityTuple>;

std::vector<ItemPattern> patterns_of(const std::vector<ConfigTuple>& configs) {
  std::vector<ItemPattern> patterns;
  for (const auto& [columns, structure, table, conditions, priority] : configs) {
    ItemPattern& pattern = patterns.emplace_back();
    for (const auto& [name, leaf, start, stop, step] : columns) {
      pattern.columns.push_back({name, leaf, start, stop, step});
    }
    pattern.structure = structure;
    pattern.table = table;
    for (const auto& [left, leaf, comparison, value, modulo, is_inverse] : conditions) {
      pattern.conditions.push_back({static_cast<PatternCondition::Left>(left), leaf,
                                    static_cast<PatternCondition::Comparison>(comparison), value,
                                    modulo, is_inverse});
    }
    const auto& [constant, error_leaf, max_weight] = priority;
    pattern.priority = {constant, error_leaf, max_weight};
  }
  return patterns;
}

class PyStructuredWriter {
 public:
  // `explain`: None, or a function that is called with an error of append() and None, and returns
  // the error to raise; see bind_writer.cc.
  PyStructuredWriter(const ClientHandle& client, std::vector<ItemPattern> patterns,
                     const TrajectoryWriterOptions& options, nb::object explain)
      : service_(client.service()),
        table_(patterns.empty() ? std::string() : patterns.front().table),
        writer_(unwrap(StructuredWriter::open(service_, std::move(patterns), options))),
        explain_(std::move(explain)),
        waiting_(*service_, table_),
        wait_(waiting_.options()) {}
  PyStructuredWriter(const PyStructuredWriter&) = delete;
  PyStructuredWriter& operator=(const PyStructuredWriter&) = delete;
  ~PyStructuredWriter() { abandon(*writer_, fork_guard_); }

  void append(nb::handle step, nb::handle partial_step, nb::handle timeout_s) {
    try {
      append_step(step, partial_step, timeout_s);
    } catch (const nb::python_error& error) {
      if (explain_.is_none()) throw;
      raise_object(explain_(error.value(), nb::none()));
    }
  }

  void append_step(nb::handle step, nb::handle partial_step, nb::handle timeout_s) {
    const InUse in_use(calls_);
    const bool is_partial = flag_argument("partial_step", partial_step);
    const LeavesOfCall leaves(leaves_);
    check_writer_open(*writer_);
    auto& [nest, places] = steps_.flatten(step, leaves_);
    if (places.empty()) places = learn(*nest);
    values_.begin(leaves_.size());
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i] == Py_None || !writer_->uses(places[i])) continue;
      if (values_.add(places[i], leaves_[i])) continue;
      leaves_.hold();
      values_.add_any(places[i], nest->path(i), leaves_[i]);
    }
    step_.clear();
    for (const ColumnValue& value : values_.values()) step_.push_back({value.column, value.value});
    const TimePoint until = python::deadline(timeout_s);
    // With room in the queue the call never waits: releasing the lock would cost more.
    if (!writer_->may_wait()) {
      unwrap(writer_->append(step_, is_partial, until, wait_));
    } else {
      leaves_.hold();
      unwrap(without_gil([&] { return writer_->append(step_, is_partial, until, wait_); }));
    }
  }

  // For bind_ends().
  void check_here() const { unwrap(fork_guard_.check("writer")); }
  StructuredWriter& writer() const { return *writer_; }
  OneCallAtATime& calls() { return calls_; }
  const WaitOptions& wait_options() const { return wait_; }
  void on_episode_end(bool) {}

  bool step_is_open() const {
    check_here();
    InUse::check(calls_);
    return writer_->step_is_open();
  }

 private:
  // The flat places of the leaves of a structure that is new, by visiting order.
  std::vector<ColumnId> learn(const Nest& nest) {
    const std::size_t count = nest.leaf_count();
    if (count == 0) {
      raise(invalid_argument("the step has no leaves; give it at least one array"));
    }
    if (writer_->leaf_count() == 0) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < count; ++i) names.push_back(nest.path(nest.leaf_of_column(i)));
      unwrap(writer_->set_leaves(std::move(names)));
    } else if (count != writer_->leaf_count()) {
      raise(invalid_argument(
          "the step has {} leaves, but earlier steps had {}; leave one out by giving None for it",
          count, writer_->leaf_count()));
    }
    std::vector<ColumnId> places(count);
    for (std::size_t i = 0; i < count; ++i) {
      places[nest.leaf_of_column(i)] = static_cast<ColumnId>(i);
    }
    return places;
  }

  OneCallAtATime calls_{"writer"};
  std::shared_ptr<ReplayService> service_;
  std::string table_;  // of the first configuration, to report on a long wait
  std::unique_ptr<StructuredWriter> writer_;
  nb::object explain_;
  ForkGuard fork_guard_;
  Waiting waiting_;
  WaitOptions wait_;

  Leaves leaves_;
  Values values_;
  NestCache<std::vector<ColumnId>> steps_;
  std::vector<LeafValue> step_;
};

void init_writer(PyStructuredWriter* self, const ClientHandle& client,
                 const std::vector<ConfigTuple>& configs, nb::handle chunk_length,
                 nb::handle max_in_flight_items, nb::handle codec, nb::object explain) {
  unwrap(client.check());
  TrajectoryWriterOptions options;
  options.chunks.codec = codec_argument(codec);
  options.chunks.chunk_length = chunk_length_argument("chunk_length", chunk_length);
  // The service checks the patterns' tables, as with Reverb's writer.
  options.validate_items = false;
  options.max_in_flight_items = integer_argument<std::size_t>(
      "max_in_flight_items", max_in_flight_items, 1, std::numeric_limits<std::uint32_t>::max());
  Waiting waiting(*client.service(), "");
  const WaitOptions wait = waiting.options();
  options.seed = unwrap(without_gil([&] { return client.next_seed(wait); }));
  new (self) PyStructuredWriter(client, patterns_of(configs), options, std::move(explain));
}

}  // namespace

void bind_structured_writer(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyStructuredWriter> type(m, "StructuredWriter", "See ``reverie.structured``.");
  type.def("__init__", &init_writer, "client"_a, "configs"_a, nb::kw_only(),
           "chunk_length"_a = nb::none(), "max_in_flight_items"_a.none() = 1000,
           "codec"_a.none() = "auto", "explain"_a = nb::none(),
           nb::sig("def __init__(self, client: Client, "
                   "configs: collections.abc.Sequence[tuple[typing.Any, ...]], *, "
                   "chunk_length: int | None = None, max_in_flight_items: int = 1000, "
                   "codec: str = 'auto', "
                   "explain: collections.abc.Callable[[BaseException, typing.Any], BaseException]"
                   " | None = None"
                   ") -> None"))
      .def("append", &PyStructuredWriter::append, "data"_a.none(), nb::kw_only(),
           "partial_step"_a.none() = false, "timeout_s"_a = nb::none(),
           nb::sig("def append(self, data: typing.Any, *, partial_step: bool = False, "
                   "timeout_s: float | None = None) -> None"),
           R"(Appends one step, or a part of it, and makes the items that the patterns say.

Args:
    data: a nest of arrays with as many leaves as the first one; None where a leaf has no value.
    partial_step: leave the step open: the next append fills the same one, with other leaves.
    timeout_s: how long to wait where ``max_in_flight_items`` wait already: None without limit.

Raises:
    InvalidArgumentError: another number of leaves, a leaf of another shape or dtype than before,
        one that a condition or a priority cannot use, or an item that its table refuses. An item
        that was queued and is refused later is reported by the next call: an append then says
        that its step was not written, and may be repeated.
    UnsupportedTypeError: a value of a type that cannot be stored.
    NotFoundError: there is no such table; the step was written.
    DeadlineExceededError: the queue stayed full: nothing was written.
    FailedPreconditionError: a leaf came in this open step already, or the writer is closed.)")
      .def_prop_ro("step_is_open", &PyStructuredWriter::step_is_open,
                   "Whether the last append was a partial step.");
  bind_ends(type);
}

}  // namespace reverie::python
