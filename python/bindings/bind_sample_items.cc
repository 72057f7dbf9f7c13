// Binds client/item_reader.h as the items of `Client.sample`: Reverb's samples, one by one.
//
//     feed        [ 64 items ]  one request, one gather
//     next()      item, item, item ...  each with its own arrays
//
// An item costs its arrays and a few tuples, made here: in Python that would dominate.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/arrays.h"
#include "python/bindings/batch.h"
#include "python/bindings/bind.h"
#include "python/bindings/client.h"
#include "python/bindings/collected.h"
#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"
#include "reverie/client/item_reader.h"

namespace reverie::python {
namespace {

// An instance of a NamedTuple's class: these are tuples with another name.
nb::object named_tuple(nb::handle type, std::span<nb::object> fields) {
  auto* const made = reinterpret_cast<PyTypeObject*>(type.ptr());
  const nb::object tuple = owned(new_tuple(made, fields.size()));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), fields[i].release().ptr());
  }
  return tuple;
}

class SampleItems {
 public:
  SampleItems(const ClientHandle& client, ItemReaderOptions options, bool emits_timesteps,
              bool unpacks, nb::object info, nb::object redelivered_info, nb::object sample,
              nb::object files)
      : client_(client),
        table_(options.table),
        emits_timesteps_(emits_timesteps),
        unpacks_(unpacks),
        info_type_(std::move(info)),
        redelivered_info_type_(std::move(redelivered_info)),
        sample_type_(std::move(sample)),
        files_(std::move(files)),
        reader_(client.service(), std::move(options), client.tables_drawn_ahead()) {}

  int visit_references(visitproc visit, void* arg) const {  // see collected.h
    Py_VISIT(files_.ptr());
    return 0;
  }
  void drop_references() { const nb::object gone = std::exchange(files_, nb::object(nb::none())); }

  nb::object next() {
    unwrap(client_.check());
    if (is_busy_) {
      raise(failed_precondition(
          "this iterator is in use by another call, in another thread; give each thread its own"));
    }
    const Busy busy(is_busy_);
    if (reader_.left() == 0) {
      PyErr_SetNone(PyExc_StopIteration);
      raise_pending();
    }
    if (reader_.needs_draw()) {
      Waiting waiting(*client_.service(), table_);
      // A resolver of external rows is Python code, which may take long.
      const bool is_brief = client_.local() != nullptr && files_.is_none();
      unwrap(without_gil_in_waits(
          is_brief, waiting.options(),
          [&](const WaitOptions& wait) -> Status { return reader_.draw(wait); }));
    }
    nb::object item = make(reader_.peek());
    columns_.clear();
    reader_.take();
    return item;
  }

 private:
  // Held during a call: the interpreter's lock may be released meanwhile, also by Python code that
  // runs while a nest is built.
  class Busy {
   public:
    explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { flag_ = false; }

   private:
    bool& flag_;
  };

  nb::object make(const ItemReader::Place& place) {
    SampleGroup& group = place.group;
    if (place.row == 0 && emits_timesteps_) check_steps(group);
    const nb::object info = make_info(place.index);
    std::vector<nb::object>& columns = columns_;
    // If the call before made them and then raised, they are still there, and their buffers gone.
    while (columns.size() < group.batch.columns.size()) {
      columns.push_back(item_of(place, group.batch.columns[columns.size()]));
    }
    if (!emits_timesteps_) return make_sample(info, group.batch.structure, columns);
    const nb::object steps = owned(PyList_New(static_cast<Py_ssize_t>(step_count_)));
    std::vector<nb::object> rows(columns.size());
    for (std::size_t step = 0; step < step_count_; ++step) {
      const auto index = static_cast<Py_ssize_t>(step);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        rows[c] = row_of(columns[c], index);
      }
      PyList_SET_ITEM(steps.ptr(), index,
                      make_sample(info, group.batch.structure, rows).release().ptr());
    }
    return steps;
  }

  // A row of a column, always an array; without axes if the column has only one.
  static nb::object row_of(const nb::object& column, Py_ssize_t row) {
    nb::object made = owned(PySequence_GetItem(column.ptr(), row));
    if (PyArray_Check(made.ptr())) return made;
    return column[nb::make_tuple(row, nb::ellipsis())];
  }

  nb::object make_info(std::size_t item) const {
    const SampleBatch& samples = reader_.samples();
    nb::object fields[] = {
        nb::steal(PyLong_FromUnsignedLongLong(samples.keys()[item])),
        nb::steal(PyFloat_FromDouble(samples.probabilities()[item])),
        nb::steal(PyLong_FromLongLong(samples.table_sizes()[item])),
        nb::steal(PyFloat_FromDouble(samples.priorities()[item])),
        nb::steal(PyLong_FromLong(samples.times_sampled()[item])),
    };
    for (const nb::object& field : fields) {
      if (!field.is_valid()) raise_pending();
    }
    return named_tuple(samples.is_redelivered(item) ? redelivered_info_type_ : info_type_, fields);
  }

  nb::object make_sample(const nb::object& info, const std::string& structure,
                         std::span<const nb::object> columns) const {
    nb::object data;
    if (unpacks_) {
      data = fold(structure, columns);
    } else {
      data = owned(PyList_New(static_cast<Py_ssize_t>(columns.size())));
      for (std::size_t c = 0; c < columns.size(); ++c) {
        PyList_SET_ITEM(data.ptr(), static_cast<Py_ssize_t>(c),
                        nb::borrow(columns[c]).release().ptr());
      }
    }
    nb::object fields[] = {info, std::move(data)};
    return named_tuple(sample_type_, fields);
  }

  // An item's own array, so that keeping it does not keep others.
  nb::object item_of(const ItemReader::Place& place, BatchColumn& column) {
    const SampleGroup& group = place.group;
    // The leading axis is that of the group.
    const auto shape = std::span<const std::int64_t>(column.spec.shape).subspan(1);
    const DType dtype = column.spec.dtype;
    if (group.count == 1) return column_array(dtype, shape, std::move(column.bytes));
    if (has_variable_size(dtype)) return text_of(place, column);
    const std::size_t size_bytes = column.bytes.size_bytes() / group.count;
    nb::object array = new_array(dtype, shape);
    if (size_bytes > 0) {
      std::memcpy(array_data(array), column.bytes.data() + place.row * size_bytes, size_bytes);
    }
    return array;
  }

  // Texts are stored one after another, so those of all items are read at once.
  nb::object text_of(const ItemReader::Place& place, BatchColumn& column) {
    const SampleGroup& group = place.group;
    const auto index = static_cast<std::size_t>(&column - group.batch.columns.data());
    if (place.row == 0) {
      texts_.resize(group.batch.columns.size());
      texts_[index] = column_array(column.spec.dtype, column.spec.shape, std::move(column.bytes));
    }
    const nb::object one = texts_[index][nb::make_tuple(place.row, nb::ellipsis())];
    return one.attr("copy")();
  }

  // Sets the number of steps of a group's items, if all their columns agree.
  void check_steps(const SampleGroup& group) {
    bool is_alike = true;
    std::string lengths;
    for (std::size_t c = 0; c < group.batch.columns.size(); ++c) {
      const TensorSpec& spec = group.batch.columns[c].spec;
      if (group.squeezed[c]) {
        raise_type_error(
            format("column '{}' of an item of table '{}' is squeezed and has no steps; use "
                   "emit_timesteps=False",
                   spec.name, table_));
      }
      const auto length = static_cast<std::size_t>(spec.shape[1]);
      if (c == 0) step_count_ = length;
      is_alike = is_alike && length == step_count_;
      lengths += format("{}'{}': {}", c == 0 ? "" : ", ", spec.name, length);
    }
    if (is_alike) return;
    raise(invalid_argument(
        "the columns of an item of table '{}' differ in length, {{{}}}; use emit_timesteps=False",
        table_, lengths));
  }

  const ClientHandle client_;
  const std::string table_;
  const bool emits_timesteps_;
  const bool unpacks_;
  const nb::object info_type_;
  const nb::object redelivered_info_type_;
  const nb::object sample_type_;
  nb::object files_;  // what the client reads external columns with
  ItemReader reader_;
  bool is_busy_ = false;
  std::size_t step_count_ = 0;       // of the group's items
  std::vector<nb::object> columns_;  // of the item that is being made
  std::vector<nb::object> texts_;    // of the group, by column
};

void init_sample_items(SampleItems* self, const ClientHandle& client, nb::handle table,
                       nb::handle num_samples, nb::handle timeout_s, bool emit_timesteps,
                       bool unpack, nb::object info, nb::object redelivered_info, nb::object sample,
                       nb::object files) {
  unwrap(client.check());
  ItemReaderOptions options;
  options.table = text_argument("table", table);
  options.count = integer_argument("num_samples", num_samples, 1);
  options.is_local = client.local() != nullptr;
  options.on_corrupt = client.on_corrupt();
  options.files = client.files();
  for (const nb::object& type : {info, redelivered_info, sample}) {
    if (!PyType_Check(type.ptr()) ||
        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()), &PyTuple_Type) == 0) {
      raise_type_error("samples are made of classes of tuples");
    }
  }
  options.timeout = timeout_argument(timeout_s);
  new (self) SampleItems(client, std::move(options), emit_timesteps, unpack, std::move(info),
                         std::move(redelivered_info), std::move(sample), std::move(files));
}

}  // namespace

void bind_sample_items(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<SampleItems>(m, "SampleItems", nb::type_slots(kCollected<SampleItems>),
                          "See ``reverie.Client.sample``.")
      .def("__init__", &init_sample_items, "client"_a, "table"_a, "num_samples"_a,
           "timeout_s"_a.none(), "emit_timesteps"_a, "unpack"_a, "info"_a, "redelivered_info"_a,
           "sample"_a, "files"_a.none(),
           nb::sig("def __init__(self, client: Client, table: str, num_samples: int, timeout_s: "
                   "float | None, emit_timesteps: bool, unpack: bool, info: type, "
                   "redelivered_info: type, sample: type, files: object) -> None"))
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> SampleItems"))
      .def("__next__", &SampleItems::next, nb::sig("def __next__(self) -> typing.Any"));
}

}  // namespace reverie::python
