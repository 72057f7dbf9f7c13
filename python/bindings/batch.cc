#include "python/bindings/batch.h"

#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "reverie/base/format.h"
#include "reverie/client/hand_back.h"

namespace reverie::python {
namespace {

// Copies into the array of an earlier batch if it has as many elements, else into a new one.
template <typename T>
void refill(nb::object& array, std::span<const T> values) {
  if (array.is_none() || PyArray_SIZE(reinterpret_cast<PyArrayObject*>(array.ptr())) !=
                             static_cast<npy_intp>(values.size())) {
    array = copy_to_array(values);
  } else if (!values.empty()) {
    std::memcpy(array_data(array), values.data(), values.size_bytes());
  }
}

std::vector<double> ages_s(const SampleBatch& samples) {
  std::vector<double> ages;
  ages.reserve(samples.size());
  for (const std::int64_t inserted : samples.inserted_at_ns()) {
    ages.push_back(static_cast<double>(samples.drawn_at_ns() - inserted) * 1e-9);
  }
  return ages;
}

}  // namespace

bool weights_argument(nb::handle weights) {
  const std::string_view given = text_argument("weights", weights);
  if (given != "batch" && given != "buffer") {
    raise(invalid_argument(
        "weights is '{}'; it must be 'batch' or 'buffer': whose largest weight is 1", given));
  }
  return given == "buffer";
}

Weighing weighing_argument(nb::handle beta, nb::handle weights) {
  Weighing weighing;
  weighing.over_table = weights_argument(weights);
  if (beta.is_none()) return weighing;
  weighing.beta = number_argument("beta", beta);
  if (!std::isfinite(*weighing.beta) || *weighing.beta < 0) {
    raise(invalid_argument("beta is {}; it must be finite and >= 0", *weighing.beta));
  }
  return weighing;
}

namespace {

// Implements draw_briefly(). On an error, or if it raises, the samples may still be in `result`.
Status draw(ReplayService& service, SampleRequest request, const Gathering& gathering,
            const WaitOptions& wait, bool is_local, SampleResult& result, DrawnBatch& drawn) {
  const SampleRequest like = like_of(request);
  const bool reads_files = gathering.options.files != nullptr;
  if (!is_local || request.count > kBriefItems || reads_files) {
    return without_gil([&] {
      result = sample_and_wait(service, std::move(request), wait);
      return gather(service, like, result, gathering, wait, drawn);
    });
  }
  without_gil_in_waits(/*is_brief=*/true, wait, [&](const WaitOptions& briefly) {
    result = sample_and_wait(service, std::move(request), briefly);
    return true;
  });
  if (gathered_bytes(result.batch) <= kBriefBytes) {
    // Drawing again may take long.
    Gathering briefly = gathering;
    briefly.on_corrupt = OnCorrupt::kRaise;
    Status status = gather(service, like, result, briefly, wait, drawn);
    const bool is_corrupt = status.code() == StatusCode::kDataLoss && !result.batch.empty();
    if (!is_corrupt || gathering.on_corrupt == OnCorrupt::kRaise) return status;
  }
  return without_gil([&] { return gather(service, like, result, gathering, wait, drawn); });
}

}  // namespace

Status draw_briefly(ReplayService& service, SampleRequest request, const Gathering& gathering,
                    const WaitOptions& wait, bool is_local, DrawnBatch& drawn) {
  request.wants_least = gathering.weighing.beta && gathering.weighing.over_table;
  const std::string_view table = request.table;
  SampleResult result;
  const auto hand_back = [&] {
    SampleBatch& unused = drawn.samples.empty() ? result.batch : drawn.samples;
    if (unused.empty()) return;
    without_gil([&] { hand_back_of_failed_call(service, table, std::move(unused)); });
  };
  Status status;
  try {
    status = draw(service, std::move(request), gathering, wait, is_local, result, drawn);
  } catch (const nb::python_error&) {  // Ctrl-C
    hand_back();
    throw;
  }
  // A corrupt item would be drawn again.
  const bool keeps =
      status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kDataLoss;
  if (!status.ok() && !keeps) hand_back();
  return status;
}

nb::object column_array(DType dtype, std::span<const std::int64_t> shape, Buffer buffer) {
  return has_variable_size(dtype) ? array_of_text(dtype, shape, buffer.bytes())
                                  : array_from_buffer(dtype, shape, std::move(buffer));
}

Batch PyBatch::lend() {
  Batch batch;
  batch.structure = structure_;
  for (const Column& column : columns_) {
    BatchColumn& lent = batch.columns.emplace_back();
    lent.spec = column.spec;
    if (has_variable_size(column.spec.dtype)) continue;
    auto* const array = reinterpret_cast<PyArrayObject*>(column.array.ptr());
    lent.bytes =
        Buffer(array_data(column.array), static_cast<std::size_t>(PyArray_NBYTES(array)), nullptr);
  }
  return batch;
}

void PyBatch::take(DrawnBatch& drawn) {
  std::vector<Column> columns;
  std::vector<nb::object> leaves;
  for (std::size_t i = 0; i < drawn.batch.columns.size(); ++i) {
    BatchColumn& filled = drawn.batch.columns[i];
    const bool is_lent = i < columns_.size() && filled.bytes.size_bytes() > 0 &&
                         !has_variable_size(filled.spec.dtype) &&
                         filled.bytes.data() == array_data(columns_[i].array);
    nb::object array =
        is_lent ? columns_[i].array
                : column_array(filled.spec.dtype, filled.spec.shape, std::move(filled.bytes));
    leaves.push_back(array);
    columns.push_back({std::move(filled.spec), std::move(array)});
  }
  columns_ = std::move(columns);
  structure_ = std::move(drawn.batch.structure);
  data = fold(structure_, leaves);

  if (std::exchange(is_converted_, false)) weights = lengths = nb::none();
  const SampleBatch& items = drawn.samples;
  refill(keys, items.keys());
  refill(tickets, items.tickets());
  refill(probabilities, items.probabilities());
  refill(priorities, items.priorities());
  refill(times_sampled, items.times_sampled());
  refill(versions, items.versions());
  redelivered = items.redelivered().empty() ? nb::none() : flags_to_array(items.redelivered());
  if (items.shards().empty()) {
    shards = nb::none();
  } else {
    refill(shards, items.shards());
  }
  refill(ages_s, std::span<const double>(python::ages_s(items)));
  table_size = items.table_size();
  rate_limited = items.rate_limited();
  if (drawn.weights.empty()) {
    weights = nb::none();
  } else {
    refill(weights, std::span<const float>(drawn.weights));
  }
  if (drawn.batch.lengths.empty()) {
    lengths = nb::none();
  } else {
    refill(lengths, std::span<const std::int64_t>(drawn.batch.lengths));
  }
  samples = std::move(drawn.samples);
  samples.clear();
}

void take_or_hand_back(PyBatch& batch, ReplayService& service, std::string_view table,
                       DrawnBatch& drawn) {
  try {
    batch.take(drawn);
  } catch (const nb::python_error& error) {
    // A structure that cannot be read would be drawn again.
    const nb::object corrupt = make_error(data_loss("the structure cannot be read"));
    if (!error.matches(corrupt.type())) {
      without_gil([&] { hand_back_of_failed_call(service, table, std::move(drawn.samples)); });
    }
    throw;
  }
}

void PyBatch::convert(nb::handle convert) {
  if (PyCallable_Check(convert.ptr()) == 0) {
    raise_type_error(format("function is {}; it must be a function of an array", shown(convert)));
  }
  const InUse in_use(calls);
  is_converted_ = true;  // or is about to be, if `convert` raises
  std::vector<nb::object> leaves;
  for (const Column& column : columns_) {
    leaves.push_back(has_variable_size(column.spec.dtype) ? column.array : convert(column.array));
  }
  data = fold(structure_, leaves);
  if (!weights.is_none()) weights = convert(weights);
  if (!lengths.is_none()) lengths = convert(lengths);
}

namespace {

// A member, unless a call in another thread is filling the batch.
template <auto member>
auto at_rest(const PyBatch& batch) {
  InUse::check(batch.calls);
  return batch.*member;
}

nb::object redelivered_of(const PyBatch& batch) {
  nb::object marks = at_rest<&PyBatch::redelivered>(batch);
  if (!marks.is_none() || batch.keys.is_none()) return marks;
  const std::vector<std::uint8_t> none(nb::len(batch.keys), 0);
  return flags_to_array(none);
}

}  // namespace

// Views of a batch that only Python defines.
nb::object view(const char* function) {
  return nb::module_::import_("reverie.batch_views").attr(function);
}

void bind_batch(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyBatch>(m, "Batch", nb::is_final(), nb::is_generic(),
                      nb::sig("class Batch(typing.Generic[DataT])"),
                      R"(Sampled items as arrays, B of them.

The arrays own their memory and may be written to. Given as ``out`` to another ``sample_batch`` they
are filled again; until that returns the batch is in use, and other threads are refused.)")
      .def_prop_ro(
          "data", at_rest<&PyBatch::data>, nb::sig("def data(self) -> DataT"),
          "The nest that was written, of arrays ``[B, T, ...]``; ``[B, ...]`` where the column "
          "was a single row.")
      .def_prop_ro("keys", at_rest<&PyBatch::keys>, nb::sig("def keys(self) -> numpy.ndarray"),
                   "``[B]`` uint64, of the items.")
      .def_prop_ro("tickets", at_rest<&PyBatch::tickets>,
                   nb::sig("def tickets(self) -> numpy.ndarray"),
                   "``[B]`` uint64: where the items lie, for ``update_priorities``.")
      .def_prop_ro("probabilities", at_rest<&PyBatch::probabilities>,
                   nb::sig("def probabilities(self) -> numpy.ndarray"),
                   "``[B]`` float64, with which each item was drawn.")
      .def_prop_ro("priorities", at_rest<&PyBatch::priorities>,
                   nb::sig("def priorities(self) -> numpy.ndarray"), "``[B]`` float64.")
      .def_prop_ro("times_sampled", at_rest<&PyBatch::times_sampled>,
                   nb::sig("def times_sampled(self) -> numpy.ndarray"),
                   "``[B]`` int32, these draws included.")
      .def_prop_ro("ages_s", at_rest<&PyBatch::ages_s>,
                   nb::sig("def ages_s(self) -> numpy.ndarray"),
                   "``[B]`` float64, seconds since each item was inserted.")
      .def_prop_ro("versions", at_rest<&PyBatch::versions>,
                   nb::sig("def versions(self) -> numpy.ndarray"),
                   "``[B]`` int64, of the weights that acted.")
      .def_prop_ro(
          "redelivered", &redelivered_of, nb::sig("def redelivered(self) -> numpy.ndarray"),
          "``[B]`` bool: whether an earlier draw of the item was undone because its reader "
          "went away; see ``Table(undo_unsent=)``.")
      .def_prop_ro(
          "shards", at_rest<&PyBatch::shards>, nb::sig("def shards(self) -> numpy.ndarray | None"),
          "``[B]`` uint16, where each item lies, counted as the client's addresses; None for a "
          "client of one server.")
      .def_prop_ro("weights", at_rest<&PyBatch::weights>,
                   nb::sig("def weights(self) -> numpy.ndarray | None"),
                   "``[B]`` float32 importance weights; None unless ``beta`` was given.")
      .def_prop_ro("lengths", at_rest<&PyBatch::lengths>,
                   nb::sig("def lengths(self) -> numpy.ndarray | None"),
                   "``[B]`` int64, of each item's longest column; None without ``pad``.")
      .def_prop_ro("table_size", at_rest<&PyBatch::table_size>,
                   "Items in the table at the last draw.")
      .def_prop_ro("rate_limited", at_rest<&PyBatch::rate_limited>,
                   "Whether the call had to wait for the rate limiter.")
      .def("convert", &PyBatch::convert, "function"_a.none(),
           nb::sig("def convert(self, function: collections.abc.Callable[[typing.Any], "
                   "typing.Any]) -> None"),
           "Puts ``function(array)`` in the place of each array of ``data``, ``weights`` and "
           "``lengths``; text stays.")
      .def(
          "as_dict", [](nb::handle self) { return view("as_dict")(self); },
          nb::sig("def as_dict(self) -> dict[str, typing.Any]"),
          "All that there is by name: ``data``, ``keys``, ``tickets`` and so on.")
      .def(
          "items", [](nb::handle self) { return view("as_dict")(self).attr("items")(); },
          nb::sig("def items(self) -> collections.abc.ItemsView[str, typing.Any]"),
          "The items of ``as_dict``.")
      .def(
          "to",
          [](nb::handle self, nb::handle device, nb::handle output) {
            return view("to")(self, device, output);
          },
          "device"_a.none(), nb::kw_only(), "output"_a.none() = "torch",
          nb::sig("def to(self, device: typing.Any, *, output: str = 'torch') -> Batch"),
          R"(Copies ``data``, ``weights`` and ``lengths`` to a device; gives this batch.

Args:
    device: a device of torch (``"cuda"``) or JAX.
    output: ``"torch"`` or ``"jax"``.

Raises:
    InvalidArgumentError: there is no such device.
    MissingPackageError: the library is not installed.)")
      .def(
          "__repr__", [](nb::handle self) { return view("shown")(self); },
          nb::sig("def __repr__(self) -> str"))
      .def(
          "names", [](nb::handle self) { return nb::list(view("as_dict")(self).attr("keys")()); },
          nb::sig("def names(self) -> list[str]"),
          "What ``as_dict`` has. (``keys`` are the keys of the items.)")
      .def(
          "__getitem__", [](nb::handle self, nb::handle name) { return view("named")(self, name); },
          "name"_a.none(), nb::sig("def __getitem__(self, name: str, /) -> typing.Any"),
          "``batch[\"weights\"]`` is ``batch.weights``.")
      .def(
          "__iter__", [](nb::handle self) { return nb::iter(view("unpacked")(self)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[typing.Any]"),
          "``data, weights, tickets = batch``: what a learner needs.")
      .def(
          "__len__",
          [](const PyBatch& self) { return self.keys.is_none() ? 0 : nb::len(self.keys); },
          "How many items there are.")
      .def(
          "__reduce__",
          [](const PyBatch&) -> nb::object {
            raise_type_error(
                "a Batch cannot be pickled or copied; take its arrays, batch.data and batch.keys "
                "for instance, which can be");
          },
          nb::sig("def __reduce__(self) -> typing.Any"));
}

}  // namespace reverie::python
