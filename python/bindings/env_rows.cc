#include "python/bindings/env_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/log_lines.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

std::span<const std::int64_t> shape_of(PyArrayObject* array) {
  return {PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array))};
}

std::size_t size_bytes(const TensorSpec& spec) {
  return static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
}

std::string named(std::string_view what, const TensorSpec& spec) {
  return spec.name.empty() ? std::string(what) : format("{} '{}'", what, spec.name);
}

void write_array(std::string_view what, const TensorSpec& spec, nb::handle value, std::byte* to) {
  refuse_masked(named(what, spec), value);
  PyArrayObject* const array = as_array(value);
  if (!std::ranges::equal(shape_of(array), spec.shape)) {
    raise(invalid_argument("{} has shape {}; its space says {}", named(what, spec),
                           shape_text(shape_of(array)), shape_text(spec.shape)));
  }
  const nb::object dtype = numpy_dtype(spec.dtype);
  auto* const wanted = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
  if (!PyArray_CanCastTypeTo(PyArray_DESCR(array), wanted, NPY_SAME_KIND_CASTING)) {
    raise_type_error(format(
        "{} has dtype {}; its space says {}, to which NumPy does not cast it safely; convert it in "
        "the environment",
        named(what, spec), str_of(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(array)))),
        dtype_name(spec.dtype)));
  }
  Py_INCREF(reinterpret_cast<PyObject*>(wanted));
  const nb::object plain =
      owned(PyArray_FromArray(array, wanted, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  std::memcpy(to, array_data(plain), size_bytes(spec));
}

}  // namespace

Shape with_rows(std::size_t rows, const Shape& shape) {
  Shape all = {static_cast<std::int64_t>(rows)};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

std::vector<TensorSpec> columns_argument(nb::handle columns) {
  std::vector<TensorSpec> specs;
  for (nb::handle column : nb::borrow<nb::list>(columns)) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = nb::cast<std::string>(column[0]);
    const auto name = nb::cast<std::string>(column[1]);
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype) raise_type_error(format("there is no element type called '{}'", name));
    spec.dtype = *dtype;
    for (nb::handle extent : nb::borrow<nb::object>(column[2])) {
      spec.shape.push_back(nb::cast<std::int64_t>(extent));
    }
  }
  return specs;
}

void write_value(std::string_view what, const TensorSpec& spec, nb::handle value, std::byte* to) {
  if (PyArray_CheckExact(value.ptr())) {
    PyArrayObject* const array = as_array(value);
    if (dtype_of(PyArray_DESCR(array)) == spec.dtype && PyArray_IS_C_CONTIGUOUS(array) &&
        PyArray_ISNOTSWAPPED(array) && std::ranges::equal(shape_of(array), spec.shape)) {
      std::memcpy(to, PyArray_DATA(array), static_cast<std::size_t>(PyArray_NBYTES(array)));
      return;
    }
    return write_array(what, spec, value, to);
  }
  if (spec.shape.empty()) {
    if (spec.dtype == DType::kFloat64 &&
        (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()))) {
      const double number = PyFloat_AsDouble(value.ptr());
      if (number == -1.0 && PyErr_Occurred() != nullptr) raise_pending();
      std::memcpy(to, &number, sizeof(number));
      return;
    }
    if (spec.dtype == DType::kInt64 && PyLong_CheckExact(value.ptr())) {
      const std::int64_t number = PyLong_AsLongLong(value.ptr());
      if (number == -1 && PyErr_Occurred() != nullptr) raise_pending();
      std::memcpy(to, &number, sizeof(number));
      return;
    }
  }
  const nb::object array = nb::steal(PyArray_FromAny(value.ptr(), nullptr, 0, 0, 0, nullptr));
  if (!array.is_valid()) raise_pending();
  write_array(what, spec, array, to);
}

nb::object read_array(const TensorSpec& spec, const std::byte* from) {
  nb::object array = new_array(spec.dtype, spec.shape);
  std::memcpy(array_data(array), from, size_bytes(spec));
  return array;
}

void NestRows::write(nb::handle nest, std::span<std::byte* const> rows) {
  auto& entry = nests_.flatten(nest, leaves_);
  if (!entry.note.is_checked) {
    if (entry.nest->text() != structure_) {
      raise(invalid_argument(
          "{} has the structure {}; its space says {} (leaves, *, are arrays or numbers)", what_,
          entry.nest->text(), structure_));
    }
    entry.note.is_checked = true;
  }
  leaves_.hold();
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const nb::handle value = leaves_[entry.nest->leaf_of_column(i)];
    if (!has_warned_) warn_of_narrowing(columns_[i], value);
    write_value(what_, columns_[i], value, rows[i]);
  }
}

void NestRows::warn_of_narrowing(const TensorSpec& spec, nb::handle value) {
  if (!PyArray_Check(value.ptr())) return;
  const std::optional<DType> given = dtype_of(PyArray_DESCR(as_array(value)));
  if (!given || dtype_size_bytes(*given) <= dtype_size_bytes(spec.dtype)) return;
  has_warned_ = true;
  log_here(
      LogQueue::kWarning,
      format("{} has dtype {}, but its space says {}: it is narrowed, here and from now on; give "
             "the environment a space of {}, or convert what it returns",
             named(what_, spec), dtype_name(*given), dtype_name(spec.dtype), dtype_name(*given)));
}

bool has_nan(const TensorSpec& spec, const std::byte* row) {
  const auto count = static_cast<std::size_t>(element_count(spec.shape));
  const auto any = [count](const auto* values) {
    return std::any_of(values, values + count, [](auto value) { return std::isnan(value); });
  };
  if (spec.dtype == DType::kFloat32) return any(reinterpret_cast<const float*>(row));
  if (spec.dtype == DType::kFloat64) return any(reinterpret_cast<const double*>(row));
  return false;
}

}  // namespace reverie::python
