// What the walk over a nest asks of Python's types: which are containers, what their fields are
// called, and which class a name in a structure text stands for.
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/nest.h"

namespace reverie::python {

// A dict or other mapping, a list, a tuple, a named tuple, an instance of a dataclass; a leaf is
// any other type. Runs no Python code for a type that was seen before.
NestKind nest_kind(PyObject* object);

// A mapping's items as a dict: itself if it is one, else a copy that `leaves` keeps.
PyObject* as_dict(PyObject* mapping, Leaves& leaves);

// The names of the fields of a named tuple or a dataclass (an instance or the class), in order.
std::vector<nb::object> field_names(NestKind kind, PyObject* object);

// "module:Qualified.Name".
std::string class_name(nb::handle type);
// From now on class_name(type) stands for `type`.
void remember_class(nb::handle type);
// The class last remembered by that name; an invalid object without one.
nb::object find_class(const std::string& name);
// Goes up whenever a name gets another class: what was built from find_class() may be stale.
std::uint64_t class_generation();

}  // namespace reverie::python
