// What the walk over a nest needs to know about Python's types: which are containers, the names of
// their fields, and the class of a name in a structure text.
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/nest.h"

namespace reverie::python {

// A dict or other mapping, a list, a tuple, a named tuple, an instance of a dataclass; a leaf is
// any other type. Runs no Python code for a type that was seen before; else `leaves` are held
// first.
NestKind nest_kind(PyObject* object, Leaves& leaves);

// A mapping's items as a dict: itself if it is one, else a copy that `leaves` keeps. Runs a
// mapping's code; `leaves` are held first.
PyObject* as_dict(PyObject* mapping, Leaves& leaves);

// The names of the fields of a named tuple or a dataclass (an instance or the class), in order.
std::vector<nb::object> field_names(NestKind kind, PyObject* object);

// "module:Qualified.Name".
std::string class_name(nb::handle type);
// From now on class_name(type) refers to `type`.
void remember_class(nb::handle type);
// The latest class with that name; an invalid object if there is none.
nb::object find_class(const std::string& name);
// Grows whenever a name gets another class: results of find_class() may then be stale.
std::uint64_t class_generation();

}  // namespace reverie::python
