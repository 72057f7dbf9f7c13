// One file, since a batch's way in and its way out walk nests in the same manner.
#include "python/bindings/rpc_batch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_values.h"
#include "reverie/base/format.h"
#include "reverie/rpc/value_writer.h"

namespace reverie::python {
namespace {

// Larger copies let the interpreter's lock go.
constexpr std::size_t kLongJoinBytes = std::size_t{1} << 20;
// Rows from here on are sent from where they lie; smaller ones cost less to copy than to keep.
constexpr std::size_t kLentRowMin = std::size_t{64} << 10;

// Never destroyed: the interpreter may be gone when the library's statics are.
struct BatchHelpers {
  nb::object join_leaves;
  nb::object error_parts;
};

BatchHelpers& helpers() {
  static auto* const instance = new BatchHelpers;
  return *instance;
}

bool is_plain(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value);
}

bool is_array(PyObject* value) {
  if (PyArray_Check(value) || PyArray_CheckScalar(value)) return true;
  return !is_plain(value) && nb::hasattr(value, "shape") && nb::hasattr(value, "dtype");
}

bool is_number(PyObject* value) {
  return PyBool_Check(value) || PyLong_Check(value) || PyFloat_Check(value);
}

// The rows of an array with dimensions; none for other values.
std::optional<std::size_t> row_count(PyObject* value) {
  if (PyArray_Check(value)) {
    auto* const array = reinterpret_cast<PyArrayObject*>(value);
    if (PyArray_NDIM(array) == 0) return std::nullopt;
    return static_cast<std::size_t>(PyArray_DIM(array, 0));
  }
  if (PyArray_CheckScalar(value) || !is_array(value)) return std::nullopt;
  const nb::object shape = nb::handle(value).attr("shape");
  if (nb::len(shape) == 0) return std::nullopt;
  return nb::cast<std::size_t>(nb::object(shape[0]));
}

// Calls `look(array, rows)` for the arrays with dimensions in a nest, in order, until it gives
// false; gives that.
template <typename Look>
bool each_array(PyObject* nest, std::size_t depth, const Look& look) {
  if (depth >= kValueDepthMax) {
    raise(invalid_argument("the value is nested more than {} deep; flatten it, or send it in parts",
                           kValueDepthMax - 1));
  }
  if (PyDict_Check(nest)) {
    const nb::object values = owned(PyDict_Values(nest));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values.ptr()); ++i) {
      if (!each_array(PyList_GET_ITEM(values.ptr(), i), depth + 1, look)) return false;
    }
    return true;
  }
  if (PyList_Check(nest) || PyTuple_Check(nest)) {
    const nb::object values = owned(PySequence_Tuple(nest));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values.ptr()); ++i) {
      if (!each_array(PyTuple_GET_ITEM(values.ptr(), i), depth + 1, look)) return false;
    }
    return true;
  }
  const std::optional<std::size_t> rows = row_count(nest);
  return !rows || look(nest, *rows);
}

bool has_array(PyObject* nest, std::size_t depth) {
  return !each_array(nest, depth, [](PyObject*, std::size_t) { return false; });
}

// A container of the class of `like`, which is a list or a tuple.
nb::object container_like(PyObject* like, const nb::list& parts) {
  if (PyList_Check(like)) return parts;
  const nb::object plain = owned(PyList_AsTuple(parts.ptr()));
  if (PyTuple_CheckExact(like)) return plain;
  return nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(like))).attr("_make")(plain);
}

// --- The way in.

class Joiner {
 public:
  // `padding` rows are added behind the last.
  Joiner(const RpcBatchOptions& options, LeafReader& reader, std::size_t padding)
      : options_(options), reader_(reader), padding_(padding) {}

  nb::object join(const std::vector<PyObject*>& nests, const std::string& path) {
    PyObject* const first = nests.front();
    if (PyDict_Check(first)) return join_dicts(nests, path);
    if (PyList_Check(first) || PyTuple_Check(first)) return join_sequences(nests, path);
    return join_leaves(nests, path);
  }

 private:
  static std::string shown(const std::string& path, const char* nothing) {
    return path.empty() ? nothing : path;
  }

  nb::object join_dicts(const std::vector<PyObject*>& nests, const std::string& path) {
    const nb::object keys = owned(PyDict_Keys(nests.front()));
    const Py_ssize_t count = PyList_GET_SIZE(keys.ptr());
    nb::dict joined;
    std::vector<PyObject*> parts(nests.size());
    for (std::size_t i = 0; i < nests.size(); ++i) {
      if (!PyDict_Check(nests[i]) || PyDict_Size(nests[i]) != count) refuse_keys(path);
    }
    for (Py_ssize_t k = 0; k < count; ++k) {
      const nb::handle key(PyList_GET_ITEM(keys.ptr(), k));
      for (std::size_t i = 0; i < nests.size(); ++i) {
        parts[i] = PyDict_GetItemWithError(nests[i], key.ptr());
        if (parts[i] == nullptr) refuse_keys(path);
      }
      joined[key] = join(parts, path + "/" + str_of(key));
    }
    return joined;
  }

  nb::object join_sequences(const std::vector<PyObject*>& nests, const std::string& path) {
    PyObject* const first = nests.front();
    const bool is_list = PyList_Check(first);
    const auto size_of = [is_list](PyObject* nest) {
      return is_list ? PyList_GET_SIZE(nest) : PyTuple_GET_SIZE(nest);
    };
    const Py_ssize_t count = size_of(first);
    for (PyObject* const nest : nests) {
      if (Py_TYPE(nest) == Py_TYPE(first) && size_of(nest) == count) continue;
      raise(invalid_argument("the calls of a batch have other lengths at {}",
                             shown(path, "the top")));
    }
    nb::list parts;
    std::vector<PyObject*> column(nests.size());
    for (Py_ssize_t k = 0; k < count; ++k) {
      for (std::size_t i = 0; i < nests.size(); ++i) {
        column[i] = is_list ? PyList_GET_ITEM(nests[i], k) : PyTuple_GET_ITEM(nests[i], k);
      }
      parts.append(join(column, format("{}/{}", path, k)));
    }
    return container_like(first, parts);
  }

  [[noreturn]] static void refuse_keys(const std::string& path) {
    PyErr_Clear();
    raise(invalid_argument("the calls of a batch have other keys at {}", shown(path, "the top")));
  }

  nb::object join_leaves(const std::vector<PyObject*>& leaves, const std::string& path) {
    PyObject* const first = leaves.front();
    if (!is_array(first)) {
      if (options_.leaves == BatchLeaves::kFirst) return nb::borrow(first);
      if (options_.leaves == BatchLeaves::kEach ||
          !std::all_of(leaves.begin(), leaves.end(), is_number)) {
        return tuple_of(leaves);
      }
      nb::object numbers = join_numbers(leaves);
      if (numbers.is_valid()) return numbers;
    } else {
      nb::object arrays = join_arrays(leaves);
      if (arrays.is_valid()) return arrays;
    }
    return on_device(helpers().join_leaves(owned(PySequence_List(tuple_of(leaves).ptr())),
                                           options_.is_cat, padding_,
                                           shown(path, "their argument")));
  }

  static nb::object tuple_of(const std::vector<PyObject*>& leaves) {
    nb::object made = owned(PyTuple_New(static_cast<Py_ssize_t>(leaves.size())));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i),
                       nb::borrow(leaves[i]).release().ptr());
    }
    return made;
  }

  // Numbers of one class; invalid for others.
  nb::object join_numbers(const std::vector<PyObject*>& leaves) const {
    if (options_.is_cat) return {};
    const auto fill = [&](DType dtype, auto is_of_it, auto value_of) -> nb::object {
      using Value = std::invoke_result_t<decltype(value_of), PyObject*>;
      if (!std::all_of(leaves.begin(), leaves.end(), is_of_it)) return {};
      const std::int64_t shape[] = {static_cast<std::int64_t>(leaves.size() + padding_)};
      nb::object array = new_array(dtype, shape);
      auto* const to = reinterpret_cast<Value*>(array_data(array));
      for (std::size_t i = 0; i < leaves.size(); ++i) to[i] = value_of(leaves[i]);
      std::fill_n(to + leaves.size(), padding_, to[leaves.size() - 1]);
      return array;
    };
    nb::object made = fill(
        DType::kBool, [](PyObject* v) { return PyBool_Check(v) != 0; },
        [](PyObject* v) { return v == Py_True; });
    if (made.is_valid()) return made;
    made = fill(
        DType::kFloat64, [](PyObject* v) { return PyFloat_CheckExact(v) != 0; },
        [](PyObject* v) { return PyFloat_AS_DOUBLE(v); });
    if (made.is_valid()) return made;
    const auto is_short = [](PyObject* v) {
      int overflow = 0;
      return PyLong_CheckExact(v) &&
             (static_cast<void>(PyLong_AsLongLongAndOverflow(v, &overflow)), overflow == 0);
    };
    return fill(DType::kInt64, is_short,
                [](PyObject* v) { return static_cast<std::int64_t>(PyLong_AsLongLong(v)); });
  }

  // Arrays of NumPy or torch, of one type and shape; invalid for others.
  nb::object join_arrays(const std::vector<PyObject*>& leaves) {
    std::vector<LeafView> views;
    views.reserve(leaves.size());
    std::size_t rows = 0;
    for (PyObject* const leaf : leaves) {
      const bool is_numpy = PyArray_CheckExact(leaf);
      if (is_numpy && !dtype_of(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(leaf)))) return {};
      views.push_back(reader_.read(leaf, "the batch"));
      const LeafView& view = views.back();
      const LeafView& first = views.front();
      if (view.data == nullptr || view.framework != first.framework || view.dtype != first.dtype ||
          view.shape.size() != first.shape.size() ||
          (view.framework != Framework::kNumpy && view.framework != Framework::kTorch)) {
        return {};
      }
      const std::size_t skipped = options_.is_cat ? 1 : 0;
      if (view.shape.size() < skipped || !std::equal(view.shape.begin() + skipped, view.shape.end(),
                                                     first.shape.begin() + skipped)) {
        return {};
      }
      rows += options_.is_cat ? static_cast<std::size_t>(view.shape[0]) : 1;
    }
    const LeafView& first = views.front();
    const auto row_shape = options_.is_cat ? first.shape.subspan(1) : first.shape;
    const std::size_t row_bytes =
        static_cast<std::size_t>(element_count(row_shape)) * dtype_size_bytes(first.dtype);
    const std::size_t padding = rows == 0 ? 0 : padding_;
    Shape shape{static_cast<std::int64_t>(rows + padding)};
    for (const std::int64_t extent : row_shape) shape.push_back(extent);
    const bool is_torch = first.framework == Framework::kTorch;
    nb::object array = new_array(is_torch ? numpy_bits_of(first.dtype) : first.dtype, shape);
    std::byte* const begin = array_data(array);
    const auto copy = [&] {
      std::byte* to = begin;
      for (const LeafView& view : views) {
        const std::size_t size =
            row_bytes * (options_.is_cat ? static_cast<std::size_t>(view.shape[0]) : 1);
        if (size > 0) std::memcpy(to, view.data, size);
        to += size;
      }
      for (std::size_t i = 0; i < padding && row_bytes > 0; ++i, to += row_bytes) {
        std::memcpy(to, begin + (rows - 1) * row_bytes, row_bytes);
      }
    };
    (rows + padding) * row_bytes < kLongJoinBytes ? copy() : without_gil(copy);
    return is_torch ? on_device(torch_tensor_of(array, first.dtype)) : array;
  }

  nb::object on_device(nb::object joined) const {
    if (options_.device.is_none() || PyArray_Check(joined.ptr())) return joined;
    return nb::hasattr(joined, "to") ? nb::object(joined.attr("to")(options_.device)) : joined;
  }

  const RpcBatchOptions& options_;
  LeafReader& reader_;
  const std::size_t padding_;
};

// --- The way out.

// A result, read once; then each caller's part is written from it.
class Dealer {
 public:
  Dealer(const RpcBatchOptions& options, LeafReader& reader, std::size_t call_count)
      : options_(options), reader_(reader), call_count_(call_count) {}

  void read(PyObject* nest, std::size_t depth) {
    if (depth >= kValueDepthMax) {
      raise(invalid_argument(
          "the answer is nested more than {} deep; flatten it, or send it in parts",
          kValueDepthMax - 1));
    }
    if (PyDict_Check(nest)) {
      const nb::object items = owned(PyDict_Items(nest));
      const Py_ssize_t count = PyList_GET_SIZE(items.ptr());
      begin(ValueKind::kDict, static_cast<std::size_t>(count), {});
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* const pair = PyList_GET_ITEM(items.ptr(), i);
        add(Part::Kind::kValue, nb::borrow(PyTuple_GET_ITEM(pair, 0)), depth + 1);
        read(PyTuple_GET_ITEM(pair, 1), depth + 1);
      }
      return;
    }
    if (PyList_Check(nest) || PyTuple_Check(nest)) return read_sequence(nest, depth);
    const std::optional<std::size_t> rows = row_count(nest);
    if (!rows) return add(Part::Kind::kValue, nb::borrow(nest), depth);
    if (!read_array(nest)) add(Part::Kind::kIndexed, nb::borrow(nest), depth);
  }

  // The part of one caller: rows [begin, begin + rows), or entry `index`.
  void write(Payload& payload, std::size_t begin, std::size_t rows, std::size_t index) {
    ValueWriter writer(payload);
    for (const Part& part : parts_) {
      switch (part.kind) {
        case Part::Kind::kBegin:
          part.names.empty() ? writer.begin(part.container, part.count)
                             : writer.begin_named_tuple(part.names, part.count);
          break;
        case Part::Kind::kValue:
          encode(payload, part.value, part.depth);
          break;
        case Part::Kind::kEntry:
          encode(payload,
                 nb::borrow(PyTuple_GET_ITEM(part.value.ptr(), static_cast<Py_ssize_t>(index))),
                 part.depth);
          break;
        case Part::Kind::kIndexed: {
          const nb::object mine =
              options_.is_cat
                  ? nb::object(
                        part.value[nb::slice(nb::int_(begin), nb::int_(begin + rows), nb::none())])
                  : nb::object(part.value[begin]);
          encode(payload, mine, part.depth);
          break;
        }
        case Part::Kind::kRows:
          write_rows(writer, part, begin, rows);
          break;
      }
    }
  }

 private:
  struct Part {
    enum class Kind : std::uint8_t { kBegin, kValue, kEntry, kIndexed, kRows };
    Kind kind = Kind::kValue;
    nb::object value = {};  // or what holds the rows
    std::size_t depth = 0;
    ValueKind container = ValueKind::kTuple;
    std::size_t count = 0;
    std::string names = {};
    LeafView view = {};
    std::size_t row_bytes = 0;
  };

  void begin(ValueKind kind, std::size_t count, std::string names) {
    Part& part = parts_.emplace_back();
    part.kind = Part::Kind::kBegin;
    part.container = kind;
    part.count = count;
    part.names = std::move(names);
  }

  void add(Part::Kind kind, nb::object value, std::size_t depth) {
    Part& part = parts_.emplace_back();
    part.kind = kind;
    part.value = std::move(value);
    part.depth = depth;
  }

  void read_sequence(PyObject* nest, std::size_t depth) {
    const bool is_tuple = PyTuple_Check(nest);
    // A copy: Python code may run, and change a list.
    nb::object items = owned(PySequence_Tuple(nest));
    const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(items.ptr()));
    const bool is_dealt_out = options_.leaves != BatchLeaves::kFirst &&
                              (options_.leaves == BatchLeaves::kStack || is_tuple) &&
                              !has_array(nest, depth);
    if (is_dealt_out && count >= call_count_) {
      return add(Part::Kind::kEntry, std::move(items), depth);
    }
    begin(is_tuple ? ValueKind::kTuple : ValueKind::kList, count, names_of_tuple(nest));
    for (std::size_t i = 0; i < count; ++i) {
      read(PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), depth + 1);
    }
  }

  // False where Python has to take its rows out.
  bool read_array(PyObject* array) {
    const bool is_numpy = PyArray_Check(array);
    if (is_numpy && !dtype_of(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array)))) return false;
    Part part;
    part.kind = Part::Kind::kRows;
    part.value = nb::borrow(array);
    part.view = reader_.read(array, "the answer");
    if (part.view.framework == Framework::kNone) return false;
    if (!part.view.is_on_cpu) {
      part.value = part.value.attr("detach")().attr("cpu")();
      part.view = reader_.read(part.value.ptr(), "the answer");
    }
    if (part.view.data == nullptr || part.view.shape.empty()) return false;
    part.row_bytes = static_cast<std::size_t>(element_count(part.view.shape.subspan(1))) *
                     dtype_size_bytes(part.view.dtype);
    if (part.view.keep.is_valid()) part.value = part.view.keep;
    parts_.push_back(std::move(part));
    return true;
  }

  void write_rows(ValueWriter& writer, const Part& part, std::size_t begin, std::size_t rows) {
    const LeafView& view = part.view;
    const std::size_t size = rows * part.row_bytes;
    const std::span<const std::byte> bytes(view.data + begin * part.row_bytes, size);
    Shape shape;
    if (options_.is_cat) shape.push_back(static_cast<std::int64_t>(rows));
    for (const std::int64_t extent : view.shape.subspan(1)) shape.push_back(extent);
    // As one gets it by an index.
    if (view.framework == Framework::kNumpy && shape.empty()) {
      return writer.scalar(view.dtype, bytes);
    }
    const TensorMaker maker = tensor_maker_of(view.framework);
    if (size == 0) {
      writer.lent_tensor(view.dtype, shape, {}, maker, nullptr);
    } else if (size >= kLentRowMin) {
      writer.lent_tensor(view.dtype, shape, bytes, maker, lend_array(part.value),
                         /*may_change=*/true);
    } else {
      writer.tensor(view.dtype, shape, bytes, maker);
    }
  }

  void encode(Payload& payload, const nb::object& value, std::size_t depth) {
    ValueEncoder(payload, reader_, /*lends=*/true).encode(value, "the answer", depth);
  }

  const RpcBatchOptions& options_;
  LeafReader& reader_;
  const std::size_t call_count_;
  std::vector<Part> parts_;
};

}  // namespace

void set_rpc_batch_helpers(nb::object join_leaves, nb::object error_parts) {
  helpers() = {std::move(join_leaves), std::move(error_parts)};
}

RemoteError remote_error_of(nb::handle error) {
  try {
    const nb::object parts = helpers().error_parts(error);
    return {StatusCode::kInternal, nb::cast<std::string>(parts[0]), nb::cast<std::string>(parts[1]),
            nb::cast<std::string>(parts[2])};
  } catch (nb::python_error&) {  // its own text raises
    return {StatusCode::kInternal, type_name_of(error.ptr()), "an error without a text", ""};
  }
}

RpcBatch::RpcBatch(std::shared_ptr<Peer> peer, std::shared_ptr<const RpcBatchOptions> options,
                   std::vector<Request> requests)
    : peer_(std::move(peer)), options_(std::move(options)) {
  if (!requests.empty()) function_ = requests.front().function;
  calls_.reserve(requests.size());
  for (Request& request : requests) {
    nb::object arguments = arguments_of(*peer_, request);
    if (arguments.is_valid()) calls_.push_back({request.id, std::move(arguments)});
  }
}

nb::object RpcBatch::join() {
  if (calls_.empty()) return {};
  try {
    std::vector<PyObject*> nests;
    nests.reserve(calls_.size());
    for (Call& call : calls_) {
      nests.push_back(call.arguments.ptr());
      if (options_->is_cat) {
        each_array(call.arguments.ptr(), 0, [&call](PyObject*, std::size_t rows) {
          call.rows = rows;
          return false;
        });
      }
      rows_ += call.rows;
    }
    const std::size_t padding =
        options_->pads && rows_ < options_->size ? options_->size - rows_ : 0;
    rows_ += padding;
    nb::object joined = Joiner(*options_, reader_, padding).join(nests, "");
    for (Call& call : calls_) call.arguments.reset();
    return joined;
  } catch (nb::python_error& error) {
    for (Call& call : calls_) call.arguments.reset();
    fail(error.value());
    return {};
  }
}

void RpcBatch::answer(nb::handle value) {
  if (is_answered_) {
    raise(failed_precondition("this batch of {} calls of '{}' has been answered", calls_.size(),
                              function_));
  }
  try {
    deal_out(value);
  } catch (nb::python_error& error) {
    fail(error.value());
  }
}

void RpcBatch::deal_out(nb::handle value) {
  each_array(value.ptr(), 0, [this](PyObject*, std::size_t rows) {
    if (rows == rows_) return true;
    raise(
        invalid_argument("the function of a batch of {} rows gave an array of {}; each caller's "
                         "rows must be there",
                         rows_, rows));
  });
  const bool is_tuple = PyTuple_Check(value.ptr());
  if ((is_tuple || PyList_Check(value.ptr())) && options_->leaves != BatchLeaves::kFirst &&
      (is_tuple || options_->leaves == BatchLeaves::kStack) && !has_array(value.ptr(), 0)) {
    const std::size_t count = nb::len(value);
    if (count != calls_.size() && count != rows_) {
      raise(
          invalid_argument("the function of a batch of {} calls gave {} values; each caller is "
                           "to have one",
                           calls_.size(), count));
    }
  }
  drop_lent_arrays();
  Dealer dealer(*options_, reader_, calls_.size());
  dealer.read(value.ptr(), 0);
  std::vector<Peer::Answer> answers;
  answers.reserve(calls_.size());
  std::size_t begin = 0;
  std::size_t size = 0;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    Payload payload;
    try {
      dealer.write(payload, begin, calls_[i].rows, i);
      size += payload.bulk_bytes() + payload.head.size();
      answers.push_back({calls_[i].id, std::move(payload)});
    } catch (nb::python_error& error) {  // it cannot be sent; the others get theirs
      peer_->fail(calls_[i].id, remote_error_of(error.value()));
    }
    begin += calls_[i].rows;
  }
  is_answered_ = true;
  const auto go = [&] { peer_->answer(std::move(answers), /*copies_bulk=*/true); };
  size <= kBriefBytes ? go() : without_gil(go);
}

void RpcBatch::fail(nb::handle error) {
  if (!PyUnicode_Check(error.ptr()) && !PyExceptionInstance_Check(error.ptr())) {
    raise_type_error(
        format("error is a {}; it must be an exception or a str", type_name_of(error.ptr())));
  }
  if (std::exchange(is_answered_, true)) return;
  const RemoteError told = remote_error_of(error);
  for (const Call& call : calls_) peer_->fail(call.id, told);
}

}  // namespace reverie::python
