// Makes inspect.signature() and help() work for nanobind's functions.
//
// nanobind's functions, methods and bound methods know their signature as text, but lack the
// __signature__ that inspect reads. They get it here, as a getter in their types' dictionaries,
// since the types allow no new attributes from Python.
#include <nanobind/nanobind.h>

#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace reverie::python {
namespace {

PyObject* signature_of(PyObject* function, void* /*closure*/) {
  try {
    return nb::module_::import_("reverie._signatures")
        .attr("signature_of")(nb::handle(function))
        .release()
        .ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

PyGetSetDef signature_getter = {"__signature__", signature_of, nullptr, nullptr, nullptr};

void add_signature(nb::handle function) {
  PyTypeObject* const type = Py_TYPE(function.ptr());
  const nb::object getter = nb::steal(PyDescr_NewGetSet(type, &signature_getter));
  if (!getter.is_valid()) nb::raise_python_error();
  // The dictionary behind a class's __dict__; the stable ABI has no other way to get it.
  const nb::object names =
      nb::module_::import_("gc").attr("get_referents")(function.type().attr("__dict__"))[0];
  if (PyDict_SetItemString(names.ptr(), "__signature__", getter.ptr()) != 0) {
    nb::raise_python_error();
  }
  PyType_Modified(type);
}

}  // namespace

void bind_signatures(nb::module_& m) {
  const nb::object method = m.attr("Batch").attr("as_dict");
  add_signature(m.attr("version"));
  add_signature(method);
  add_signature(method.attr("__get__")(nb::int_(0), nb::none()));  // bound to any object
}

}  // namespace reverie::python
