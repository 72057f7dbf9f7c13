#include "python/bindings/leaf_view.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/dlpack_exchange.h"
#include "python/bindings/env_results.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

Framework framework_of(PyObject* leaf) {
  const nb::object module =
      nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(leaf))), "__module__", nb::none());
  if (!PyUnicode_Check(module.ptr())) return Framework::kNumpy;
  const std::string name = str_of(module);
  if (name.starts_with("torch")) return Framework::kTorch;
  return name.starts_with("jax") ? Framework::kJax : Framework::kNumpy;
}

// Whether a type is torch's, or derived from one of torch's.
bool is_torch_type(nb::handle type) {
  for (const nb::handle base : nb::cast<nb::tuple>(type.attr("__mro__"))) {
    const nb::object module = nb::getattr(base, "__module__", nb::none());
    if (PyUnicode_Check(module.ptr()) && str_of(module).starts_with("torch")) return true;
  }
  return false;
}

// Whether torch has marked a tensor: its values are not those of its elements.
bool is_marked(nb::handle tensor) {
  return nb::cast<bool>(tensor.attr("is_conj")()) || nb::cast<bool>(tensor.attr("is_neg")());
}

bool is_array(PyObject* leaf) {
  if (PyUnicode_Check(leaf) || PyBytes_Check(leaf) || leaf == Py_None) return false;
  return PyArray_Check(leaf) || PyArray_CheckScalar(leaf) || PyFloat_Check(leaf) ||
         PyLong_Check(leaf) || PyComplex_Check(leaf) || nb::hasattr(leaf, "__dlpack__") ||
         nb::hasattr(leaf, "__array__");
}

}  // namespace

LeafView LeafReader::read(PyObject* leaf, std::string_view path) {
  if (PyArray_CheckExact(leaf)) {
    LeafView view = read_numpy(leaf);
    return view.data != nullptr ? std::move(view) : read_any(leaf, path);
  }
  LeafView view;
  if (read_exchange(leaf, view)) return view;
  return is_array(leaf) ? read_any(leaf, path) : LeafView();
}

LeafView LeafReader::read_numpy(PyObject* leaf) const {
  auto* const array = reinterpret_cast<PyArrayObject*>(leaf);
  LeafView view;
  view.framework = Framework::kNumpy;
  const std::optional<DType> dtype = dtype_of(PyArray_DESCR(array));
  if (!dtype || !PyArray_ISCARRAY_RO(array)) return view;
  if (PyArray_BASE(array) != nullptr && is_overwritten_view(leaf)) return view;  // refused below
  view.dtype = *dtype;
  view.shape = {PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array))};
  view.data = static_cast<const std::byte*>(PyArray_DATA(array));
  return view;
}

bool LeafReader::read_exchange(PyObject* leaf, LeafView& view) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(leaf));
  if (exchange_type_.ptr() != type) {
    const ExchangeTable* const table = exchange_table(type);
    if (table == nullptr || !is_torch_type(type)) return false;
    exchange_type_ = nb::borrow(type);
    exchange_ = table->tensor_of;
  }
  nb::dlpack::dltensor tensor;
  if (exchange_(leaf, &tensor) != 0) {
    PyErr_Clear();  // sparse, quantized and so on: refused elsewhere, with their own messages
    return false;
  }
  view.framework = Framework::kTorch;
  view.is_on_cpu = is_on_cpu(tensor);
  const std::optional<DType> dtype = dtype_of_dlpack(tensor.dtype);
  view.shape = {tensor.shape, static_cast<std::size_t>(tensor.ndim)};
  if (!dtype) return false;
  view.dtype = *dtype;
  if (!view.is_on_cpu) return true;
  if (!is_row_major(tensor) || (may_be_marked(tensor) && is_marked(leaf))) {
    const nb::object plain_values =
        nb::handle(leaf).attr("detach")().attr("resolve_conj")().attr("resolve_neg")();
    view.keep = plain_values.attr("contiguous")();
    LeafView plain;
    if (!read_exchange(view.keep.ptr(), plain)) return false;
    view.data = plain.data;
    view.shape = plain.shape;
    return true;
  }
  view.data = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  return true;
}

LeafLayout LeafLayout::of(DType dtype, std::span<const std::int64_t> shape) {
  LeafLayout layout;
  layout.dtype = dtype;
  layout.shape.assign(shape.begin(), shape.end());
  layout.exchanged = dlpack_dtype(dtype);
  if (layout.exchanged) {
    std::vector<std::int64_t> extents = layout.shape;
    nb::dlpack::dltensor tensor;
    tensor.dtype = *layout.exchanged;
    tensor.ndim = static_cast<std::int32_t>(extents.size());
    tensor.shape = extents.data();
    if (may_be_marked(tensor)) layout.exchanged.reset();
    const std::size_t size_bytes = dtype_size_bytes(dtype);
    tensor.data = reinterpret_cast<void*>(size_bytes);
    if (may_be_marked(tensor)) layout.pair_bit = size_bytes;
  }
  return layout;
}

const std::byte* LeafLayout::elements(PyObject* leaf) const {
  const std::size_t rank = shape.size();
  if (PyArray_CheckExact(leaf)) {
    auto* const array = reinterpret_cast<PyArrayObject*>(leaf);
    const npy_intp* const extents = PyArray_DIMS(array);
    if (dtype_of(PyArray_DESCR(array)) != dtype || !PyArray_ISCARRAY_RO(array) ||
        static_cast<std::size_t>(PyArray_NDIM(array)) != rank ||
        (PyArray_BASE(array) != nullptr && is_overwritten_view(leaf))) {
      return nullptr;
    }
    for (std::size_t i = 0; i < rank; ++i) {
      if (extents[i] != shape[i]) return nullptr;
    }
    return static_cast<const std::byte*>(PyArray_DATA(array));
  }
  const TorchTensors& torch = known_torch_tensors();
  if (torch.table == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(leaf)) != torch.type) {
    return nullptr;
  }
  nb::dlpack::dltensor tensor;
  if (torch.table->tensor_of(leaf, &tensor) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  if (tensor.dtype != exchanged || !is_on_cpu(tensor) ||
      static_cast<std::size_t>(tensor.ndim) != rank) {
    return nullptr;
  }
  std::int64_t stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    if (tensor.shape[i] != shape[i]) return nullptr;
    if (tensor.strides != nullptr && tensor.strides[i] != stride && shape[i] != 1) return nullptr;
    stride *= shape[i];
  }
  const auto* const data = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  return (reinterpret_cast<std::uintptr_t>(data) & pair_bit) == 0 ? data : nullptr;
}

// Any value that a step may hold (values.h), as a separate array.
LeafView LeafReader::read_any(PyObject* leaf, std::string_view path) {
  LeafView view;
  view.framework = framework_of(leaf);
  Values values;
  values.begin(1);
  values.add_any(0, path, leaf);
  const TensorView& value = values.values()[0].value;
  if (has_variable_size(value.dtype)) {
    raise_type_error(format("{} is text, which makes no batch; leave it out", column_text(path)));
  }
  // Bits of the same size stand for types that NumPy lacks.
  view.dtype = value.dtype;
  const std::size_t bytes = dtype_size_bytes(value.dtype);
  nb::object copy = new_array(
      value.dtype >= DType::kBFloat16 ? (bytes == 2 ? DType::kUInt16 : DType::kUInt8) : value.dtype,
      value.shape);
  if (!value.bytes.empty()) std::memcpy(array_data(copy), value.bytes.data(), value.bytes.size());
  auto* const array = reinterpret_cast<PyArrayObject*>(copy.ptr());
  view.shape = {PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array))};
  view.data = array_data(copy);
  view.keep = std::move(copy);
  return view;
}

}  // namespace reverie::python
