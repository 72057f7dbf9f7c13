#include "python/bindings/rpc_batch_nests.h"

#include "python/bindings/arrays.h"

namespace reverie::python {
namespace {

bool is_plain(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value);
}

}  // namespace

bool is_array(PyObject* value) {
  if (PyArray_Check(value) || PyArray_CheckScalar(value)) return true;
  return !is_plain(value) && nb::hasattr(value, "shape") && nb::hasattr(value, "dtype");
}

std::optional<std::size_t> row_count(PyObject* value) {
  if (PyArray_Check(value)) {
    auto* const array = reinterpret_cast<PyArrayObject*>(value);
    if (PyArray_NDIM(array) == 0) return std::nullopt;
    return static_cast<std::size_t>(PyArray_DIM(array, 0));
  }
  if (PyArray_CheckScalar(value) || !is_array(value)) return std::nullopt;
  // What only describes arrays may have unknown extents: (None, 3), or None for the shape.
  const nb::object shape = nb::handle(value).attr("shape");
  if (PySequence_Check(shape.ptr()) == 0 || nb::len(shape) == 0) return std::nullopt;
  std::size_t rows = 0;
  if (!nb::try_cast(nb::object(shape[0]), rows)) return std::nullopt;
  return rows;
}

bool has_array(PyObject* nest, std::size_t depth) {
  return !each_array(nest, depth, [](PyObject*, std::size_t) { return false; });
}

nb::object container_like(PyObject* like, const nb::list& parts) {
  if (PyList_Check(like)) return parts;
  const nb::object plain = owned(PyList_AsTuple(parts.ptr()));
  if (PyTuple_CheckExact(like)) return plain;
  return nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(like))).attr("_make")(plain);
}

}  // namespace reverie::python
