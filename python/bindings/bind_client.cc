// Binds what a client does through service/replay_service.h.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/batch.h"
#include "python/bindings/bind.h"
#include "python/bindings/checkpoints.h"
#include "python/bindings/client.h"
#include "python/bindings/convert.h"
#include "python/bindings/external.h"
#include "python/bindings/nest.h"
#include "python/bindings/table_info.h"
#include "python/bindings/values.h"
#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/base/format.h"
#include "reverie/client/insert_step.h"
#include "reverie/gather/batch.h"
#include "reverie/service/time_limit.h"

namespace reverie::python {
namespace {

// The elements of a flat, contiguous array of exactly this type, which the package ensures.
template <typename T>
std::span<const T> flat(nb::handle array, DType dtype) {
  auto* const given = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (!PyArray_Check(array.ptr()) || PyArray_NDIM(given) != 1 ||
      dtype_of(PyArray_DESCR(given)) != dtype || !PyArray_ISCARRAY_RO(given)) {
    raise_type_error(format("this takes flat, contiguous arrays of {}, got {}", dtype_name(dtype),
                            shown(array)));
  }
  return {static_cast<const T*>(PyArray_DATA(given)),
          static_cast<std::size_t>(PyArray_SIZE(given))};
}
std::span<const std::uint64_t> flat_keys(nb::handle array) {
  return flat<std::uint64_t>(array, DType::kUInt64);
}
std::span<const double> flat_priorities(nb::handle array) {
  return flat<double>(array, DType::kFloat64);
}

template <typename T>
std::vector<T> copy_of(std::span<const T> values) {
  return {values.begin(), values.end()};
}

nb::object sample_batch(const ClientHandle& self, nb::handle table, nb::handle batch_size,
                        nb::handle timeout_s, nb::handle beta, nb::handle weights,
                        nb::handle distinct, nb::handle pad, nb::handle out) {
  unwrap(self.check());
  SampleRequest request;
  request.table = text_argument("table", table);
  request.count = integer_argument<std::size_t>("batch_size", batch_size, 1, kBatchMax);
  request.min_count = request.count;
  request.distinct = flag_argument("distinct", distinct);
  const BatchOptions options{flag_argument("pad", pad), nullptr, self.files().get()};
  request.deadline = deadline(timeout_s);
  const Weighing weighing = weighing_argument(beta, weights);
  nb::object batch = nb::borrow(out);
  if (out.is_none()) {
    batch = nb::cast(PyBatch());
  } else if (!nb::isinstance<PyBatch>(out)) {
    raise_type_error(
        format("out is {}; it must be a Batch of an earlier call, or None", shown(out)));
  }
  auto& filled = nb::cast<PyBatch&>(batch);
  const InUse in_use(filled.calls);
  DrawnBatch drawn;
  drawn.batch = filled.lend();
  request.batch = std::move(filled.samples);
  const std::string_view name = request.table;
  Waiting waiting(*self.service(), name);
  const WaitOptions wait = waiting.options();
  const Status status =
      draw_briefly(*self.service(), std::move(request), {options, weighing, self.on_corrupt()},
                   wait, self.local() != nullptr, drawn);
  if (status.ok()) {
    take_or_hand_back(filled, *self.service(), name, drawn);
    return batch;
  }
  nb::object error = make_error(status);
  if (!drawn.samples.empty() && status.code() == StatusCode::kDeadlineExceeded) {
    take_or_hand_back(filled, *self.service(), name, drawn);
    error.attr("batch") = batch;
  }
  raise_object(error);
}

// One item: (key, probability, table size, priority, times sampled), columns, their paths, which of
// them are squeezed, and their structure.
nb::tuple sample_one(const ClientHandle& self, nb::handle table, nb::handle timeout_s) {
  unwrap(self.check());
  SampleRequest request;
  request.table = text_argument("table", table);
  request.deadline = deadline(timeout_s);
  Waiting waiting(*self.service(), request.table);
  const WaitOptions wait = waiting.options();
  DrawnBatch drawn;
  std::vector<bool> is_squeezed;
  unwrap(draw_briefly(*self.service(), std::move(request),
                      {{false, nullptr, self.files().get()}, {}, self.on_corrupt()}, wait,
                      self.local() != nullptr, drawn));
  for (const LayoutColumn& column : drawn.samples.trajectories()[0].layout->columns()) {
    is_squeezed.push_back(column.squeezed);
  }
  nb::list columns;
  nb::list paths;
  nb::list squeezed;
  for (std::size_t i = 0; i < drawn.batch.columns.size(); ++i) {
    BatchColumn& column = drawn.batch.columns[i];
    // A batch of one: its leading axis is dropped.
    const auto shape = std::span<const std::int64_t>(column.spec.shape).subspan(1);
    columns.append(column_array(column.spec.dtype, shape, std::move(column.bytes)));
    paths.append(column.spec.name);
    squeezed.append(static_cast<bool>(is_squeezed[i]));
  }
  const SampleBatch& samples = drawn.samples;
  return nb::make_tuple(
      nb::make_tuple(samples.keys()[0], samples.probabilities()[0], samples.table_sizes()[0],
                     samples.priorities()[0], samples.times_sampled()[0]),
      columns, paths, squeezed, drawn.batch.structure);
}

// Inserts one step as an item into each table.
void insert(const ClientHandle& self, nb::handle data, nb::dict priorities, nb::handle timeout_s) {
  unwrap(self.check());
  const TimePoint until = deadline(timeout_s);
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  // Held: a priority's __float__, or another thread during a wait, may change the dict.
  std::vector<std::pair<nb::object, nb::object>> given;
  for (auto [table, priority] : priorities) {
    given.emplace_back(nb::borrow(table), nb::borrow(priority));
  }
  if (given.empty()) raise(invalid_argument("priorities is empty; name at least one table"));
  std::vector<InsertTarget> targets;
  for (const auto& [table, priority] : given) {
    InsertTarget& target = targets.emplace_back();
    target.table = text_argument("a table in priorities", table);
    if (priority.is_none()) continue;
    target.priority =
        number_argument(format("the priority for table '{}'", target.table), priority);
  }
  Leaves leaves;
  const auto nest = Nest::of(data, leaves);
  leaves.hold();
  Values values;
  values.begin(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::size_t leaf = nest->leaf_of_column(i);
    values.add_any(static_cast<ColumnId>(i), nest->path(leaf), leaves[leaf]);
  }
  std::vector<NamedValue> step;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    step.push_back({nest->path(nest->leaf_of_column(i)), values.values()[i].value});
    bytes += values.values()[i].value.bytes.size();
  }
  Waiting waiting(*self.service(), targets.front().table);
  const bool is_brief = self.local() != nullptr && bytes <= kBriefBytes;
  unwrap(without_gil_in_waits(is_brief, waiting.options(), [&](const WaitOptions& wait) -> Status {
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t seed, self.next_seed(wait, &time));
    Random random(seed);
    return insert_step(*self.service(), step, nest->text(), targets, until, random, wait,
                       &self.step_kinds());
  }));
}

// Inserts rows as one chunk, and items over ranges of them. Returns the items' keys.
nb::object insert_rows_of(const ClientHandle& self, nb::handle data, nb::handle table,
                          nb::handle begins, nb::handle ends, nb::handle priorities,
                          nb::handle external_type, nb::handle timeout_s) {
  unwrap(self.check());
  const std::string name(text_argument("table", table));
  const TimePoint until = deadline(timeout_s);
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  const auto begin = copy_of(flat<std::uint32_t>(begins, DType::kUInt32));
  const auto end = copy_of(flat<std::uint32_t>(ends, DType::kUInt32));
  std::vector<double> given;
  if (!priorities.is_none()) given = copy_of(flat_priorities(priorities));
  std::vector<RowsItem> items(std::max<std::size_t>(1, begin.size()));
  if (begin.size() != end.size() || (!priorities.is_none() && given.size() != items.size())) {
    raise(invalid_argument("{} begins, {} ends, {} priorities: give as many of each", begin.size(),
                           end.size(), given.size()));
  }
  for (std::size_t i = 0; i < begin.size(); ++i) items[i] = {begin[i], end[i], {}};
  for (std::size_t i = 0; i < given.size(); ++i) items[i].priority = given[i];
  Leaves leaves;
  const auto nest = Nest::of(data, leaves);
  leaves.hold();
  Values values;
  values.begin(leaves.size());
  std::vector<RowsColumn> columns;
  std::vector<std::vector<std::int64_t>> shapes(leaves.size());
  std::vector<std::size_t> arrays;  // columns whose values are in `values`
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::size_t leaf = nest->leaf_of_column(i);
    auto column = external_column(leaves[leaf], external_type, nest->path(leaf), shapes[i]);
    if (!column) {
      values.add_any(static_cast<ColumnId>(i), nest->path(leaf), leaves[leaf]);
      arrays.push_back(i);
      column = RowsColumn{nest->path(leaf), {}};
    }
    columns.push_back(std::move(*column));
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    columns[arrays[i]].value = values.values()[i].value;
  }
  if (begin.empty() && !columns.empty() && !columns[0].value.shape.empty()) {
    items[0].end = static_cast<std::uint32_t>(std::min<std::int64_t>(columns[0].value.shape[0],
                                                                     INT32_MAX));  // all rows
  }
  std::vector<ItemKey> keys;
  Waiting waiting(*self.service(), name);
  const WaitOptions wait = waiting.options();
  unwrap(without_gil([&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t seed, self.next_seed(wait, &time));
    Random random(seed);
    return insert_rows(*self.service(), name, columns, nest->text(), items, until, random, wait,
                       keys);
  }));
  return copy_to_array(std::span<const std::uint64_t>(keys));
}

// Updates by ticket and by key, copied, since the caller may write to the arrays
// meanwhile.
class Updates {
 public:
  Updates(nb::handle tickets, nb::handle ticket_priorities, nb::handle keys,
          nb::handle key_priorities)
      : by_ticket_(copy_of(flat_keys(tickets))),
        by_ticket_priorities_(copy_of(flat_priorities(ticket_priorities))),
        by_key_(copy_of(flat_keys(keys))),
        by_key_priorities_(copy_of(flat_priorities(key_priorities))) {}

  std::size_t count() const { return by_ticket_.size() + by_key_.size(); }
  // The result views this object.
  MutateRequest request(std::string_view table) const {
    MutateRequest request;
    request.table = table;
    request.tickets = by_ticket_;
    request.ticket_priorities = by_ticket_priorities_;
    request.keys = by_key_;
    request.key_priorities = by_key_priorities_;
    return request;
  }

 private:
  const std::vector<std::uint64_t> by_ticket_;
  const std::vector<double> by_ticket_priorities_;
  const std::vector<std::uint64_t> by_key_;
  const std::vector<double> by_key_priorities_;
};

nb::tuple mutate(const ClientHandle& self, nb::handle table, nb::handle deletes, nb::handle tickets,
                 nb::handle ticket_priorities, nb::handle keys, nb::handle key_priorities,
                 nb::handle timeout_s) {
  unwrap(self.check());
  const std::string_view name = text_argument("table", table);
  const auto deleted = copy_of(flat_keys(deletes));
  const Updates updates(tickets, ticket_priorities, keys, key_priorities);
  MutateRequest request = updates.request(name);
  request.deletes = deleted;
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  Waiting waiting(*self.service(), request.table);
  const bool is_brief = self.local() != nullptr && deleted.size() + updates.count() <= kBriefItems;
  const MutateResult result = without_gil_in_waits(
      is_brief, time.limit(waiting.options()),
      [&](const WaitOptions& wait) { return mutate_and_wait(*self.service(), request, wait); });
  unwrap(time.outcome(result.status));
  return nb::make_tuple(result.updated, result.deleted, result.missing);
}

// Sends priorities by ticket or by key, without waiting for the store.
void update(const ClientHandle& self, nb::handle table, nb::handle tickets,
            nb::handle ticket_priorities, nb::handle keys, nb::handle key_priorities,
            nb::handle timeout_s) {
  unwrap(self.check());
  const std::string_view name = text_argument("table", table);
  const Updates updates(tickets, ticket_priorities, keys, key_priorities);
  const MutateRequest request = updates.request(name);
  const TimePoint until = deadline(timeout_s);
  Waiting waiting(self.updates().service(), request.table);
  const bool is_brief = self.local() != nullptr && updates.count() <= kBriefItems;
  unwrap(without_gil_in_waits(is_brief, waiting.options(), [&](const WaitOptions& wait) {
    return self.updates().update(request, until, wait);
  }));
}

void flush(const ClientHandle& self, nb::handle timeout_s) {
  unwrap(self.check());
  const TimePoint until = deadline(timeout_s);
  Waiting waiting(self.updates().service(), "");
  const WaitOptions wait = waiting.options();
  unwrap(without_gil([&] { return self.updates().flush(until, wait); }));
}

nb::tuple lookup(const ClientHandle& self, nb::handle table, nb::handle keys) {
  unwrap(self.check());
  const auto asked = copy_of(flat_keys(keys));
  const LookupRequest request{text_argument("table", table), asked};
  Waiting waiting(*self.service(), request.table);
  const bool is_brief = self.local() != nullptr && asked.size() <= kBriefItems;
  const LookupResult result = without_gil_in_waits(
      is_brief, waiting.options(),
      [&](const WaitOptions& wait) { return lookup_and_wait(*self.service(), request, wait); });
  unwrap(result.status);
  return nb::make_tuple(copy_to_array(std::span<const double>(result.priorities)),
                        copy_to_array(std::span<const std::uint64_t>(result.tickets)));
}

void reset(const ClientHandle& self, nb::handle table, nb::handle timeout_s) {
  unwrap(self.check());
  const std::string_view name = text_argument("table", table);
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  Waiting waiting(*self.service(), name);
  const WaitOptions wait = time.limit(waiting.options());
  unwrap(time.outcome(without_gil([&] { return reset_and_wait(*self.service(), name, wait); })));
}

nb::list info(const ClientHandle& self, nb::handle timeout_s) {
  unwrap(self.check());
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  Waiting waiting(*self.service(), "");
  const WaitOptions wait = time.limit(waiting.options());
  try {
    return table_infos(*self.service(), wait);
  } catch (nb::python_error& error) {
    if (!time.is_late() || !error.matches(PyExc_Exception)) throw;
  }
  raise(time.lateness());
}

// A client of a store in this process can ask its limiter.
Table& local_table(const ClientHandle& self, nb::handle table) {
  unwrap(self.check());
  if (!self.local()) {
    raise(
        unimplemented("a server does not report what its rate limiter permits; see server_info()"));
  }
  Table& found = *unwrap(self.local()->table(text_argument("table", table)));
  unwrap(self.local()->check_open());
  return found;
}

bool can_sample(const ClientHandle& self, nb::handle table, nb::handle count) {
  return local_table(self, table).can_sample(integer_argument("num_samples", count, 1));
}

bool can_insert(const ClientHandle& self, nb::handle table, nb::handle count) {
  return local_table(self, table).can_insert(integer_argument("num_inserts", count, 1));
}

// A report and its table.
struct NamedReport {
  std::string table;
  BlockedReport report;
};

NamedReport why_blocked(const ClientHandle& self, nb::handle table) {
  unwrap(self.check());
  const std::string name(text_argument("table", table));
  return {name, unwrap(without_gil([&] { return why_blocked_and_wait(*self.service(), name); }))};
}

void bind_report(nb::module_& m) {
  nb::class_<BlockedReport::Side>(m, "BlockedSide", nb::is_final(),
                                  "The requests of one kind that wait.")
      .def_ro("waiting", &BlockedReport::Side::waiting, "How many.")
      .def_ro("longest_wait_s", &BlockedReport::Side::longest_wait_s,
              "For how long the one that waits longest has.")
      .def_ro("longest_request", &BlockedReport::Side::longest_request, "What that one is.")
      .def_ro("reason", &BlockedReport::Side::reason,
              "Which bound holds, at which value and by how much; empty if none does.");
  nb::class_<NamedReport>(m, "BlockedReport", nb::is_final(), "Why requests of a table wait.")
      .def_ro("table", &NamedReport::table, "The name of the table.")
      .def_prop_ro(
          "inserts", [](const NamedReport& self) { return self.report.inserts; },
          "The inserts that wait.")
      .def_prop_ro(
          "samples", [](const NamedReport& self) { return self.report.samples; },
          "The samples that wait.")
      .def("__str__", [](const NamedReport& self) { return self.report.text(self.table); })
      .def("__repr__", [](const NamedReport& self) {
        return format("<BlockedReport {}>", self.report.text(self.table));
      });
}

}  // namespace

void bind_client(nb::module_& m) {
  using namespace nb::literals;
  bind_batch(m);
  bind_report(m);
  nb::class_<ClientHandle>(m, "Client", "See ``reverie.Client``.")
      .def("insert", &insert, "data"_a.none(), "priorities"_a.none(), "timeout_s"_a.none(),
           nb::sig("def insert(self, data: typing.Any, priorities: dict[str, float | None], "
                   "timeout_s: float | None) -> None"))
      .def("insert_rows", &insert_rows_of, "data"_a.none(), "table"_a.none(), "begins"_a, "ends"_a,
           "priorities"_a.none(), "external_type"_a, "timeout_s"_a.none(),
           nb::sig("def insert_rows(self, data: typing.Any, table: str, begins: numpy.ndarray, "
                   "ends: numpy.ndarray, priorities: numpy.ndarray | None, external_type: type, "
                   "timeout_s: float | None) -> numpy.ndarray"))
      .def(
          "set_files",
          [](ClientHandle& self, nb::handle files) { self.set_files(external_files(files)); },
          "files"_a.none(),
          nb::sig("def set_files(self, files: str | collections.abc.Callable[..., typing.Any] | "
                  "None) -> None"),
          "Where external columns are. Before the client is used.")
      .def("sample_batch", &sample_batch, "table"_a.none(), "batch_size"_a.none(),
           "timeout_s"_a.none(), "beta"_a.none(), "weights"_a.none(), "distinct"_a.none(),
           "pad"_a.none(), "out"_a.none(),
           nb::sig("def sample_batch(self, table: str, batch_size: int, timeout_s: float | None, "
                   "beta: float | None, weights: str, distinct: bool, pad: bool, "
                   "out: Batch | None) -> Batch"))
      .def("sample_one", &sample_one, "table"_a.none(), "timeout_s"_a.none(),
           nb::sig("def sample_one(self, table: str, timeout_s: float | None) -> "
                   "tuple[tuple[int, float, int, float, int], list[numpy.ndarray], list[str], "
                   "list[bool], str]"))
      .def("mutate", &mutate, "table"_a.none(), "deletes"_a, "tickets"_a, "ticket_priorities"_a,
           "keys"_a, "key_priorities"_a, "timeout_s"_a.none(),
           nb::sig("def mutate(self, table: str, deletes: numpy.ndarray, tickets: numpy.ndarray, "
                   "ticket_priorities: numpy.ndarray, keys: numpy.ndarray, "
                   "key_priorities: numpy.ndarray, timeout_s: float | None) -> "
                   "tuple[int, int, int]"),
           "How many items were updated, deleted, and not found.")
      .def("update", &update, "table"_a.none(), "tickets"_a, "ticket_priorities"_a, "keys"_a,
           "key_priorities"_a, "timeout_s"_a.none(),
           nb::sig("def update(self, table: str, tickets: numpy.ndarray, "
                   "ticket_priorities: numpy.ndarray, keys: numpy.ndarray, "
                   "key_priorities: numpy.ndarray, timeout_s: float | None) -> None"),
           "As mutate, but does not wait for the store: the error of one comes with the next, or "
           "with flush.")
      .def(
          "close",
          [](const ClientHandle& self) {
            unwrap(self.check());
            if (!self.local()) without_gil([&] { self.service()->close(); });
          },
          "Ends the connections, and every call that waits. Not of a store in this process.")
      .def("flush", &flush, "timeout_s"_a.none(),
           nb::sig("def flush(self, timeout_s: float | None) -> None"),
           "Waits for the updates that are under way.")
      .def("lookup", &lookup, "table"_a.none(), "keys"_a,
           nb::sig("def lookup(self, table: str, keys: numpy.ndarray) -> "
                   "tuple[numpy.ndarray, numpy.ndarray]"),
           "The priorities of items, and their tickets.")
      .def("reset", &reset, "table"_a.none(), "timeout_s"_a.none(),
           nb::sig("def reset(self, table: str, timeout_s: float | None) -> None"))
      .def("info", &info, "timeout_s"_a.none(),
           nb::sig("def info(self, timeout_s: float | None) -> list[dict[str, typing.Any]]"))
      .def("checkpoint", &client_checkpoint, "payload"_a, "timeout_s"_a.none(),
           nb::sig("def checkpoint(self, payload: bytes, timeout_s: float | None) -> str"))
      .def("loaded_checkpoint", &client_origin, "timeout_s"_a.none(),
           nb::sig("def loaded_checkpoint(self, timeout_s: float | None) -> "
                   "tuple[str, bytes] | None"))
      .def("can_sample", &can_sample, "table"_a.none(), "num_samples"_a.none(),
           nb::sig("def can_sample(self, table: str, num_samples: int) -> bool"))
      .def("can_insert", &can_insert, "table"_a.none(), "num_inserts"_a.none(),
           nb::sig("def can_insert(self, table: str, num_inserts: int) -> bool"))
      .def("why_blocked", &why_blocked, "table"_a.none(),
           nb::sig("def why_blocked(self, table: str) -> BlockedReport"));
}

}  // namespace reverie::python
