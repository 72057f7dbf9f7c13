#include "python/bindings/nest_classes.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "python/bindings/convert.h"
#include "python/bindings/numpy_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Kept alive by the entry, so that an address never means another type.
struct KnownType {
  nb::object type;
  NestKind kind;
};

constexpr std::size_t kKnownTypesMax = 256;

NestKind find_kind(PyTypeObject* type) {
  const nb::handle handle(reinterpret_cast<PyObject*>(type));
  if (PyType_IsSubtype(type, &PyTuple_Type) != 0) {
    return nb::hasattr(handle, "_fields") ? NestKind::kNamedTuple : NestKind::kTuple;
  }
  if (nb::hasattr(handle, "__dataclass_fields__")) return NestKind::kDataclass;
  const nb::object mapping = nb::module_::import_("collections.abc").attr("Mapping");
  const int is_mapping = PyObject_IsSubclass(handle.ptr(), mapping.ptr());
  if (is_mapping < 0) raise_pending();
  return is_mapping == 1 ? NestKind::kDict : NestKind::kLeaf;
}

NestKind kind_of_type(PyObject* object, Leaves& leaves) {
  static auto* const known = new std::vector<KnownType>;
  PyTypeObject* const type = Py_TYPE(object);
  for (const KnownType& entry : *known) {
    if (entry.type.ptr() == reinterpret_cast<PyObject*>(type)) return entry.kind;
  }
  // Python code runs now.
  leaves.hold();
  const nb::object held = nb::borrow(object);
  const NestKind kind = find_kind(type);
  if (known->size() >= kKnownTypesMax) {
    // A class may go with its entry, and code that watches it may come here again.
    std::vector<KnownType> gone;
    gone.swap(*known);
  }
  known->push_back({nb::borrow(reinterpret_cast<PyObject*>(type)), kind});
  return kind;
}

struct Classes {
  std::unordered_map<std::string, nb::object> by_name;
  std::uint64_t generation = 0;
};

Classes& classes() {
  static auto* const instance = new Classes;  // outlives the interpreter
  return *instance;
}

}  // namespace

NestKind nest_kind(PyObject* object, Leaves& leaves) {
  if (PyDict_Check(object)) return NestKind::kDict;
  if (PyArray_CheckExact(object) || PyFloat_CheckExact(object) || PyLong_Check(object) ||
      PyUnicode_Check(object) || PyBytes_Check(object)) {
    return NestKind::kLeaf;
  }
  if (PyTuple_CheckExact(object)) return NestKind::kTuple;
  if (PyList_Check(object)) return NestKind::kList;
  if (PyType_Check(object)) return NestKind::kLeaf;
  return kind_of_type(object, leaves);
}

PyObject* as_dict(PyObject* mapping, Leaves& leaves) {
  if (PyDict_Check(mapping)) return mapping;
  leaves.hold();  // Python code runs now
  nb::object dict = owned(PyDict_New());
  if (PyDict_Update(dict.ptr(), mapping) < 0) raise_pending();
  return leaves.keep(std::move(dict));
}

std::vector<nb::object> field_names(NestKind kind, PyObject* object) {
  std::vector<nb::object> names;
  if (kind == NestKind::kNamedTuple) {
    for (nb::handle name : nb::borrow(object).attr("_fields")) names.push_back(nb::borrow(name));
  } else {
    // A class can only be a dataclass if this module has been imported.
    for (nb::handle field :
         nb::module_::import_("dataclasses").attr("fields")(nb::handle(object))) {
      names.push_back(nb::borrow(field.attr("name")));
    }
  }
  return names;
}

std::string class_name(nb::handle type) {
  return format("{}:{}", str_of(type.attr("__module__")), str_of(type.attr("__qualname__")));
}

void remember_class(nb::handle type) {
  nb::object& entry = classes().by_name[class_name(type)];
  if (entry.is(type)) return;
  entry = nb::borrow(type);
  ++classes().generation;
}

nb::object find_class(const std::string& name) {
  const auto found = classes().by_name.find(name);
  return found == classes().by_name.end() ? nb::object() : found->second;
}

std::uint64_t class_generation() {
  return classes().generation;
}

}  // namespace reverie::python
