#include "python/bindings/step_arguments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_results.h"
#include "python/bindings/numpy_api.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

std::string dtype_text(nb::handle array) {
  return str_of(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array)))));
}

// `given` as an array of any type.
nb::object to_array(std::string_view name, nb::handle given) {
  refuse_masked(name, given);
  if (PyArray_Check(given.ptr())) {
    if (PyArray_BASE(as_array(given)) != nullptr && is_overwritten_view(given)) {
      refuse_overwritten_view(name);
    }
    return nb::borrow(given);
  }
  // A torch tensor may be on a device, or belong to a graph.
  const nb::object host =
      nb::hasattr(given, "detach") ? given.attr("detach")().attr("cpu")() : nb::borrow(given);
  nb::object array = nb::steal(PyArray_FromAny(host.ptr(), nullptr, 0, 0, 0, nullptr));
  if (!array.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    nb::python_error error;
    raise_type_error(format("{} is a {} that NumPy cannot read: {}", name,
                            type_name_of(given.ptr()), str_of(error.value())));
  }
  return array;
}

// `given` as a row-major array of `number`, a type that `kinds` (NumPy's letters) convert to, of at
// most one axis.
nb::object to_flat(std::string_view name, nb::handle given, int number, std::string_view kinds,
                   const char* wanted) {
  nb::object array = to_array(name, given);
  if (kinds.find(PyArray_DESCR(as_array(array))->kind) == std::string_view::npos) {
    raise_type_error(format("{} holds {}; it must hold {}", name, dtype_text(array), wanted));
  }
  if (PyArray_NDIM(as_array(array)) == 2 && PyArray_DIM(as_array(array), 1) == 1) {
    array = owned(PyArray_Ravel(as_array(array), NPY_CORDER));
  }
  if (PyArray_NDIM(as_array(array)) > 1) {
    raise(invalid_argument("{} has the shape {}; it must be flat, one element for each", name,
                           str_of(array.attr("shape"))));
  }
  return owned(PyArray_FromArray(as_array(array), PyArray_DescrFromType(number),
                                 NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
}

// Numbers as float32, of which none that is finite may become infinite.
void narrow(std::string_view name, std::span<const double> given, std::vector<float>& values) {
  values.resize(given.size());
  bool has_lost = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    values[i] = static_cast<float>(given[i]);
    has_lost |= std::isinf(values[i]) != std::isinf(given[i]);
  }
  if (!has_lost) [[likely]] {
    return;
  }
  const auto lost = std::ranges::find_if(given, [](double value) {
    return std::isfinite(value) && std::isinf(static_cast<float>(value));
  });
  values.clear();
  raise(invalid_argument(
      "{} holds {:g}, which float32 cannot hold (at most {:g}); scale the numbers down", name,
      *lost, std::numeric_limits<float>::max()));
}

template <typename T>
std::span<const T> elements(nb::handle array) {
  return {static_cast<const T*>(PyArray_DATA(as_array(array))),
          static_cast<std::size_t>(PyArray_SIZE(as_array(array)))};
}

bool is_flat(PyObject* object, int number) {
  return PyArray_CheckExact(object) && PyArray_TYPE(as_array(object)) == number &&
         PyArray_NDIM(as_array(object)) == 1 && PyArray_ISCARRAY_RO(as_array(object)) &&
         (PyArray_BASE(as_array(object)) == nullptr || !is_overwritten_view(object));
}

// `leaf` as an array of `dtype`; nothing if that is not safe.
nb::object safely_cast(nb::handle leaf, DType dtype) {
  const nb::object wanted = numpy_dtype(dtype);
  auto* const descr = reinterpret_cast<PyArray_Descr*>(wanted.ptr());
  const bool is_python_int = PyLong_CheckExact(leaf.ptr());
  if (is_python_int || PyFloat_CheckExact(leaf.ptr())) {
    if (descr->kind != 'f' && !(is_python_int && (descr->kind == 'i' || descr->kind == 'u'))) {
      return {};
    }
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    nb::object array = nb::steal(PyArray_FromAny(leaf.ptr(), descr, 0, 0, 0, nullptr));
    if (!array.is_valid()) PyErr_Clear();  // an int that the type cannot hold
    return array;
  }
  nb::object array = nb::steal(PyArray_FromAny(leaf.ptr(), nullptr, 0, 0, 0, nullptr));
  if (!array.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    return {};
  }
  if (!PyArray_CanCastArrayTo(as_array(array), descr, NPY_SAFE_CASTING)) return {};
  Py_INCREF(reinterpret_cast<PyObject*>(descr));
  return owned(PyArray_FromArray(as_array(array), descr, NPY_ARRAY_CARRAY_RO));
}

}  // namespace

void NestArgument::cast_to(std::span<const TensorSpec> specs) {
  bool is_begun = false;
  for (std::size_t i = 0; i < views_.size() && i < specs.size(); ++i) {
    if (views_[i].dtype == specs[i].dtype || has_variable_size(views_[i].dtype) ||
        has_variable_size(specs[i].dtype)) [[likely]] {
      continue;
    }
    if (!is_begun) {
      leaves_.hold();
      cast_.begin(views_.size());
      cast_arrays_.clear();
      is_begun = true;
    }
    nb::object array = safely_cast(leaves_[nest_->leaf_of_column(i)], specs[i].dtype);
    if (!array.is_valid()) continue;
    cast_.add_any(static_cast<ColumnId>(i), path(i), array);
    cast_arrays_.push_back(std::move(array));
    views_[i] = cast_.values().back().value;
  }
}

void NestArgument::read(nb::handle nest, const std::string* structure) {
  nest_ = cache_.flatten(nest, leaves_).nest.get();
  if (structure != nullptr && nest_->text() != *structure) {
    raise(invalid_argument("{} has the structure {}, but the first step's had {}", name_,
                           nest_->text(), *structure));
  }
  if (nest_->root().kind != NestKind::kLeaf) leaves_.hold();  // the caller holds a leaf
  const std::size_t count = nest_->leaf_count();
  if (count == 0) raise(invalid_argument("{} has no leaves; give it at least one array", name_));
  values_.begin(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t leaf = nest_->leaf_of_column(i);
    const auto column = static_cast<ColumnId>(i);
    if (values_.add(column, leaves_[leaf])) continue;
    leaves_.hold();
    const std::string& path = nest_->path(leaf);
    values_.add_any(column, path.empty() ? std::string_view(name_) : path, leaves_[leaf]);
  }
  views_.clear();
  for (const ColumnValue& value : values_.values()) views_.push_back(value.value);
}

void NestArgument::release() {
  views_.clear();
  leaves_.clear();
  cast_arrays_.clear();
}

void FloatArgument::read(std::string_view name, nb::handle given) {
  is_scalar = true;
  if (PyFloat_Check(given.ptr())) {  // NumPy's float64 is also a Python float
    const double value = PyFloat_AS_DOUBLE(given.ptr());
    return narrow(name, {&value, 1}, values);
  }
  if (Py_TYPE(given.ptr()) == &PyFloatArrType_Type) {
    return values.assign(1, reinterpret_cast<PyFloatScalarObject*>(given.ptr())->obval);
  }
  is_scalar = false;
  if (is_flat(given.ptr(), NPY_FLOAT32)) {
    const auto given_values = elements<float>(given);
    return values.assign(given_values.begin(), given_values.end());
  }
  if (is_flat(given.ptr(), NPY_FLOAT64)) {
    return narrow(name, elements<double>(given), values);
  }
  const nb::object array = to_flat(name, given, NPY_FLOAT64, "fiub", "numbers");
  narrow(name, elements<double>(array), values);
  is_scalar = PyArray_NDIM(as_array(array)) == 0;
}

void FlagArgument::read(std::string_view name, nb::handle given) {
  is_scalar = true;
  if (PyBool_Check(given.ptr())) return values.assign(1, given.ptr() == Py_True ? 1 : 0);
  if (Py_TYPE(given.ptr()) == &PyBoolArrType_Type) {
    return values.assign(1, reinterpret_cast<PyBoolScalarObject*>(given.ptr())->obval);
  }
  is_scalar = false;
  if (is_flat(given.ptr(), NPY_BOOL)) {
    const auto flags = elements<std::uint8_t>(given);
    return values.assign(flags.begin(), flags.end());
  }
  const nb::object array = to_flat(name, given, NPY_FLOAT64, "bfiu", "bool, or 0 and 1");
  values.clear();
  for (const double flag : elements<double>(array)) {
    if (flag != 0 && flag != 1) {
      values.clear();
      raise(invalid_argument("{} holds {:g}; it must hold bool, or 0 and 1", name, flag));
    }
    values.push_back(flag == 1 ? 1 : 0);
  }
  is_scalar = PyArray_NDIM(as_array(array)) == 0;
}

std::vector<double> read_priorities(nb::handle given) {
  const auto copy = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  if (is_flat(given.ptr(), NPY_FLOAT64)) return copy(elements<double>(given));
  if (is_flat(given.ptr(), NPY_FLOAT32)) return copy(elements<float>(given));
  return copy(elements<double>(to_flat("priorities", given, NPY_FLOAT64, "fiub", "numbers")));
}

std::vector<std::uint64_t> read_tickets(nb::handle given) {
  const nb::object flat =
      is_flat(given.ptr(), NPY_UINT64)
          ? nb::borrow(given)
          : to_flat("tickets", given, NPY_UINT64, "iu", "the uint64 numbers of a batch");
  const auto tickets = elements<std::uint64_t>(flat);
  return {tickets.begin(), tickets.end()};
}

}  // namespace reverie::python
