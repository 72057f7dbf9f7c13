// Python's C interface, both for wheels for every Python from 3.12 on (the stable ABI) and for one
// version: defines what the stable ABI lacks, under the usual names.
#pragma once

#include <cstddef>
#include <string>

#include <Python.h>

#if defined(Py_LIMITED_API)

// The checked functions with the same meaning. They are only given objects of the right type.
#define PyBytes_AS_STRING(object) PyBytes_AsString(object)
#define PyBytes_GET_SIZE(object) PyBytes_Size(object)
#define PyDict_GET_SIZE(object) PyDict_Size(object)
#define PyFloat_AS_DOUBLE(object) PyFloat_AsDouble(object)
#define PyList_GET_ITEM(object, i) PyList_GetItem(object, i)
#define PyList_GET_SIZE(object) PyList_Size(object)
#define PyList_SET_ITEM(object, i, item) static_cast<void>(PyList_SetItem(object, i, item))
#define PyTuple_GET_ITEM(object, i) PyTuple_GetItem(object, i)
#define PyTuple_GET_SIZE(object) PyTuple_Size(object)
#define PyTuple_SET_ITEM(object, i, item) static_cast<void>(PyTuple_SetItem(object, i, item))
// The size of a list or a tuple. The stable ABI has these macros, but not what they expand to.
#undef PySequence_Fast_GET_SIZE
#undef PySequence_Fast_GET_ITEM
#define PySequence_Fast_GET_SIZE(object) PySequence_Size(object)
#define PySequence_Fast_GET_ITEM(object, i) \
  (PyList_Check(object) ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i))

inline PyObject* PyObject_CallOneArg(PyObject* function, PyObject* argument) {
  return PyObject_Vectorcall(function, &argument, 1, nullptr);
}

#endif

namespace reverie::python {

// The name of a class, for messages: "numpy.ndarray" or "int"; only the last part in the stable
// ABI.
inline std::string name_of_type(PyTypeObject* type) {
#if defined(Py_LIMITED_API)
  PyObject* const name = PyType_GetName(type);
  const char* const text = name == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(name, nullptr);
  std::string made = text == nullptr ? "?" : text;
  if (text == nullptr) PyErr_Clear();
  Py_XDECREF(name);
  return made;
#else
  return type->tp_name;
#endif
}

inline std::string type_name_of(PyObject* object) {
  return name_of_type(Py_TYPE(object));
}

// A tuple of a class derived from tuple, without its __new__; null with an error set.
inline PyObject* new_tuple(PyTypeObject* type, std::size_t count) {
#if defined(Py_LIMITED_API)
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  return allocate(type, static_cast<Py_ssize_t>(count));
#else
  return type->tp_alloc(type, static_cast<Py_ssize_t>(count));
#endif
}

}  // namespace reverie::python
