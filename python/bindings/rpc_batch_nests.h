// Nests of arrays, as the arguments and results of batched calls are.
#pragma once

#include <cstddef>
#include <optional>

#include <nanobind/nanobind.h>

#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "reverie/tensor/value_kind.h"

namespace reverie::python {

namespace nb = nanobind;

// An array or scalar of NumPy, or an array of another framework.
bool is_array(PyObject* value);

// The rows of an array with dimensions; empty for other values, and if the number is unknown.
std::optional<std::size_t> row_count(PyObject* value);

// Calls `look(array, rows)` for each array with dimensions in a nest, in order, until it returns
// false. Returns false if `look` did. Raises for a nest deeper than kValueDepthMax.
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

bool has_array(PyObject* nest, std::size_t depth);

// A container of the class of `like`, which is a list or a tuple.
nb::object container_like(PyObject* like, const nb::list& parts);

}  // namespace reverie::python
