// Native objects that hold the user's Python objects, in sight of Python's collector of cycles.
//
//     nb::class_<Kept>(m, "Kept", nb::type_slots(kCollected<Kept>))
//
// `Kept` visits each reference that it alone owns, and drops them where only a cycle holds it:
//
//     int visit_references(visitproc visit, void* arg) const { ... }  // Py_VISIT for each
//     void drop_references() { ... }
//
// What a thread uses without the interpreter's lock it must hold by a reference of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace reverie::python {

template <typename T>
int visit_references_of(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  // Nothing was made yet while the constructor runs.
  return nanobind::inst_ready(self) ? nanobind::inst_ptr<T>(self)->visit_references(visit, arg) : 0;
}

template <typename T>
int drop_references_of(PyObject* self) {
  if (nanobind::inst_ready(self)) nanobind::inst_ptr<T>(self)->drop_references();
  return 0;
}

template <typename T>
inline const PyType_Slot kCollected[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(visit_references_of<T>)},
    {Py_tp_clear, reinterpret_cast<void*>(drop_references_of<T>)},
    {0, nullptr},
};

}  // namespace reverie::python
