#include "python/bindings/rpc_batch_joiner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_batch_nests.h"
#include "python/bindings/rpc_values.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Larger copies release the interpreter's lock.
constexpr std::size_t kLongJoinBytes = std::size_t{1} << 20;

bool is_number(PyObject* value) {
  return PyBool_Check(value) || PyLong_Check(value) || PyFloat_Check(value);
}

std::string shown(const std::string& path, const char* nothing) {
  return path.empty() ? nothing : path;
}

[[noreturn]] void refuse_keys(const std::string& path) {
  PyErr_Clear();
  raise(invalid_argument("the calls of a batch have different keys at {}", shown(path, "the top")));
}

nb::object tuple_of(const std::vector<PyObject*>& leaves) {
  nb::object made = owned(PyTuple_New(static_cast<Py_ssize_t>(leaves.size())));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), nb::borrow(leaves[i]).release().ptr());
  }
  return made;
}

}  // namespace

nb::object RpcBatchJoiner::join(const std::vector<PyObject*>& nests, const std::string& path) {
  PyObject* const first = nests.front();
  if (PyDict_Check(first)) return join_dicts(nests, path);
  if (PyList_Check(first) || PyTuple_Check(first)) return join_sequences(nests, path);
  return join_leaves(nests, path);
}

nb::object RpcBatchJoiner::join_dicts(const std::vector<PyObject*>& nests,
                                      const std::string& path) {
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

nb::object RpcBatchJoiner::join_sequences(const std::vector<PyObject*>& nests,
                                          const std::string& path) {
  PyObject* const first = nests.front();
  const bool is_list = PyList_Check(first);
  const auto size_of = [is_list](PyObject* nest) {
    return is_list ? PyList_GET_SIZE(nest) : PyTuple_GET_SIZE(nest);
  };
  const Py_ssize_t count = size_of(first);
  for (PyObject* const nest : nests) {
    if (Py_TYPE(nest) == Py_TYPE(first) && size_of(nest) == count) continue;
    raise(invalid_argument("the calls of a batch have different lengths at {}",
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

nb::object RpcBatchJoiner::join_leaves(const std::vector<PyObject*>& leaves,
                                       const std::string& path) {
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
  return on_device(join_leaves_(owned(PySequence_List(tuple_of(leaves).ptr())), options_.is_cat,
                                padding_, shown(path, "their argument")));
}

nb::object RpcBatchJoiner::join_numbers(const std::vector<PyObject*>& leaves) const {
  if (options_.is_cat) return {};
  const auto fill = [&](DType dtype, auto is_of_type, auto value_of) -> nb::object {
    using Value = std::invoke_result_t<decltype(value_of), PyObject*>;
    if (!std::all_of(leaves.begin(), leaves.end(), is_of_type)) return {};
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

nb::object RpcBatchJoiner::join_arrays(const std::vector<PyObject*>& leaves) {
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

nb::object RpcBatchJoiner::on_device(nb::object joined) const {
  if (options_.device.is_none() || PyArray_Check(joined.ptr())) return joined;
  return nb::hasattr(joined, "to") ? nb::object(joined.attr("to")(options_.device)) : joined;
}

}  // namespace reverie::python
