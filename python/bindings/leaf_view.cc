#include "python/bindings/leaf_view.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <nanobind/ndarray.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_results.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// DLPack's table of C functions, version 1: https://dmlc.github.io/dlpack/latest/c_api.html
struct ExchangeTable {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeTable* previous;
  void* functions[3];
  int (*tensor_of)(void* object, void* tensor);
};

std::optional<DType> dtype_of_dlpack(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  const auto sized = [&](DType one, DType two, DType four, DType eight) -> std::optional<DType> {
    switch (dtype.bits) {
      case 8:
        return one;
      case 16:
        return two;
      case 32:
        return four;
      case 64:
        return eight;
      default:
        return std::nullopt;
    }
  };
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Int:
      return sized(DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64);
    case nb::dlpack::dtype_code::UInt:
      return sized(DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64);
    case nb::dlpack::dtype_code::Float:
      if (dtype.bits == 8) return std::nullopt;
      return sized(DType::kFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64);
    case nb::dlpack::dtype_code::Bfloat:
      return DType::kBFloat16;
    case nb::dlpack::dtype_code::Complex:
      return dtype.bits == 64 ? DType::kComplex64 : DType::kComplex128;
    case nb::dlpack::dtype_code::Bool:
      return DType::kBool;
    case nb::dlpack::dtype_code::Float8_E4M3FN:
      return DType::kFloat8E4M3FN;
    case nb::dlpack::dtype_code::Float8_E5M2:
      return DType::kFloat8E5M2;
    default:
      return std::nullopt;
  }
}

bool is_row_major(const nb::dlpack::dltensor& tensor) {
  if (tensor.strides == nullptr) return true;
  // Without elements the strides have no meaning, and nothing is copied.
  if (std::any_of(tensor.shape, tensor.shape + tensor.ndim, [](auto n) { return n == 0; })) {
    return true;
  }
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

Framework framework_of(PyObject* leaf) {
  const nb::object module =
      nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(leaf))), "__module__", nb::none());
  if (!PyUnicode_Check(module.ptr())) return Framework::kNumpy;
  const std::string name = str_of(module);
  if (name.starts_with("torch")) return Framework::kTorch;
  return name.starts_with("jax") ? Framework::kJax : Framework::kNumpy;
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
    const nb::object capsule =
        nb::getattr(nb::handle(type), "__dlpack_c_exchange_api__", nb::none());
    if (capsule.is_none() || framework_of(leaf) != Framework::kTorch) return false;
    const auto* const table = static_cast<const ExchangeTable*>(
        PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (table == nullptr) {
      PyErr_Clear();
      return false;
    }
    if (table->major != 1 || table->tensor_of == nullptr) return false;
    exchange_type_ = nb::borrow(type);
    exchange_ = table->tensor_of;
  }
  nb::dlpack::dltensor tensor;
  if (exchange_(leaf, &tensor) != 0) {
    PyErr_Clear();  // sparse, quantized and so on: refused elsewhere, with their own messages
    return false;
  }
  view.framework = Framework::kTorch;
  view.is_on_cpu = tensor.device.device_type == nb::device::cpu::value ||
                   tensor.device.device_type == 3;  // pinned
  const std::optional<DType> dtype = dtype_of_dlpack(tensor.dtype);
  view.shape = {tensor.shape, static_cast<std::size_t>(tensor.ndim)};
  if (!dtype) return false;
  view.dtype = *dtype;
  if (!view.is_on_cpu) return true;
  if (!is_row_major(tensor)) {
    view.keep = nb::handle(leaf).attr("detach")().attr("contiguous")();
    LeafView plain;
    if (!read_exchange(view.keep.ptr(), plain)) return false;
    view.data = plain.data;
    view.shape = plain.shape;
    return true;
  }
  view.data = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  return true;
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
