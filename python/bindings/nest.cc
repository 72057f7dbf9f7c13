#include "python/bindings/nest.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "python/bindings/convert.h"
#include "python/bindings/nest_classes.h"
#include "python/bindings/numpy_api.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"
#include "reverie/base/json_quote.h"

namespace reverie::python {
namespace {

std::string key_text(nb::handle key) {
  if (!PyUnicode_Check(key.ptr()) && (!PyLong_Check(key.ptr()) || PyBool_Check(key.ptr()))) {
    raise_type_error(format("a dict in the nest has the key {}, a {}; keys must be str or int",
                            shown(key), type_name_of(key.ptr())));
  }
  nb::object plain = nb::borrow(key);  // an enumerator counts as its number
  if (PyLong_Check(key.ptr())) plain = owned(PyNumber_Long(key.ptr()));
  const nb::object text = nb::steal(PyObject_Str(plain.ptr()));
  if (!text.is_valid()) {
    if (!PyLong_Check(plain.ptr())) raise_pending();
    PyErr_Clear();
    raise(
        invalid_argument("a dict in the nest has an integer as key that has more digits than "
                         "Python writes; use a smaller one, or text"));
  }
  Py_ssize_t size = 0;
  const char* const utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) {
    PyErr_Clear();
    raise(invalid_argument(
        "a dict in the nest has the key {}; it must be text that UTF-8 can write", shown(key)));
  }
  return {utf8, static_cast<std::size_t>(size)};
}

std::string join(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : format("{}/{}", path, key);
}

// Whether a key comes first: numbers before texts. As the numbers and texts that they are, whatever
// a class of the program's makes of "<": the sort relies on an order.
bool is_before(PyObject* a, PyObject* b) {
  const bool a_is_text = PyUnicode_Check(a);
  const bool b_is_text = PyUnicode_Check(b);
  if (a_is_text != b_is_text) return b_is_text;
  if (a_is_text) return PyUnicode_Compare(a, b) < 0;
  static const auto compare =
      reinterpret_cast<richcmpfunc>(PyType_GetSlot(&PyLong_Type, Py_tp_richcompare));
  return owned(compare(a, b, Py_LT)).ptr() == Py_True;
}

// Builds a structure: the nodes and leaves first, then the canonical order. Python code may run
// meanwhile (a property of a dataclass, a mapping's own), and change the nest: what is looked at is
// held.
class Builder {
 public:
  explicit Builder(Leaves& leaves) : leaves_(&leaves) {}

  // `depth` containers are around the object.
  Nest::Node visit(PyObject* given, const std::string& path, std::size_t depth) {
    PyObject* const object = leaves_->keep(nb::borrow(given));
    Nest::Node node;
    node.kind = nest_kind(object, *leaves_);
    if (node.kind == NestKind::kLeaf) {
      node.leaf = paths.size();
      leaves_->add(object);
      paths.push_back(path);
      return node;
    }
    if (depth == kNestDepthMax) {
      raise(invalid_argument("the nest is more than {} deep, or lies within itself; flatten it",
                             kNestDepthMax));
    }
    switch (node.kind) {
      case NestKind::kLeaf:
        break;
      case NestKind::kDict:
        visit_dict(object, path, node, depth + 1);
        break;
      case NestKind::kList:
      case NestKind::kTuple:
        visit_sequence(object, path, node, depth + 1);
        break;
      case NestKind::kNamedTuple:
      case NestKind::kDataclass:
        visit_fields(object, path, node, depth + 1);
        break;
    }
    return node;
  }

  std::vector<std::string> paths;

 private:
  void visit_dict(PyObject* object, const std::string& path, Nest::Node& node, std::size_t depth) {
    const nb::object items = owned(PyDict_Items(as_dict(object, *leaves_)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
      PyObject* const pair = PyList_GET_ITEM(items.ptr(), i);
      const nb::handle key = PyTuple_GET_ITEM(pair, 0);
      node.keys.push_back(nb::borrow(key));
      node.children.push_back(visit(PyTuple_GET_ITEM(pair, 1), join(path, key_text(key)), depth));
    }
  }

  void visit_sequence(PyObject* object, const std::string& path, Nest::Node& node,
                      std::size_t depth) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      node.children.push_back(
          visit(PySequence_Fast_GET_ITEM(object, i), join(path, format("{}", i)), depth));
    }
  }

  void visit_fields(PyObject* object, const std::string& path, Nest::Node& node,
                    std::size_t depth) {
    node.type = nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    remember_class(node.type);
    node.keys = field_names(node.kind, object);
    for (const nb::object& name : node.keys) {
      PyObject* const value = leaves_->keep(owned(PyObject_GetAttr(object, name.ptr())));
      node.children.push_back(visit(value, join(path, key_text(name)), depth));
    }
  }

  Leaves* leaves_;
};

// Writes the canonical text and, along with it, which leaf is which column.
class Canonical {
 public:
  std::vector<std::size_t> leaves;

  std::string visit(const Nest::Node& node) {
    switch (node.kind) {
      case NestKind::kLeaf:
        leaves.push_back(node.leaf);
        return "\"*\"";
      case NestKind::kDict:
        return "{\"dict\": " + members(node, sorted(node)) + "}";
      case NestKind::kList:
        return "{\"list\": " + elements(node) + "}";
      case NestKind::kTuple:
        return "{\"tuple\": " + elements(node) + "}";
      case NestKind::kNamedTuple:
      case NestKind::kDataclass:
        return format("{{\"{}\": {}, \"fields\": {}}}",
                      node.kind == NestKind::kDataclass ? "dataclass" : "namedtuple",
                      json_quote(class_name(node.type)), members(node, in_order(node)));
    }
    return "";
  }

 private:
  static std::vector<std::size_t> in_order(const Nest::Node& node) {
    std::vector<std::size_t> order(node.children.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    return order;
  }

  static std::vector<std::size_t> sorted(const Nest::Node& node) {
    std::vector<std::size_t> order = in_order(node);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return is_before(node.keys[a].ptr(), node.keys[b].ptr());
    });
    return order;
  }

  std::string elements(const Nest::Node& node) {
    std::string text = "[";
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      if (i > 0) text += ", ";
      text += visit(node.children[i]);
    }
    return text + "]";
  }

  std::string members(const Nest::Node& node, const std::vector<std::size_t>& order) {
    std::string text = "[";
    for (const std::size_t i : order) {
      if (text.size() > 1) text += ", ";
      const nb::object& key = node.keys[i];
      text += '[';
      text += PyUnicode_Check(key.ptr()) ? json_quote(key_text(key)) : key_text(key);
      text += ", ";
      text += visit(node.children[i]);
      text += ']';
    }
    return text + "]";
  }
};

}  // namespace

bool is_same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b)) return PyUnicode_Compare(a, b) == 0;
  if (!PyLong_CheckExact(a) || !PyLong_CheckExact(b)) return false;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

StructureText structure_text(const Nest::Node& root) {
  Canonical canonical;
  std::string text = canonical.visit(root);
  return {std::move(text), std::move(canonical.leaves)};
}

std::unique_ptr<Nest> Nest::of(nb::handle nest, Leaves& leaves) {
  auto made = std::make_unique<Nest>();
  Builder builder(leaves);
  made->root_ = builder.visit(nest.ptr(), "", 0);
  made->paths_ = std::move(builder.paths);
  StructureText structure = structure_text(made->root_);
  made->text_ = std::move(structure.text);
  made->canonical_ = std::move(structure.leaves);
  std::unordered_set<std::string_view> seen;
  for (const std::string& path : made->paths_) {
    if (!seen.insert(path).second) {
      raise(invalid_argument(
          "two leaves of the nest have the path '{}'; rename a key so that each is unique", path));
    }
  }
  return made;
}

bool Nest::match(const Node& node, PyObject* object, Leaves& leaves) {
  if (nest_kind(object, leaves) != node.kind) return false;
  if (node.kind == NestKind::kLeaf) {
    leaves.add(object);
    return true;
  }
  // Python code that runs on the way may change the nest.
  const nb::object held = nb::borrow(object);
  const std::size_t count = node.children.size();
  switch (node.kind) {
    case NestKind::kLeaf:
      break;
    case NestKind::kDict: {
      object = as_dict(object, leaves);
      if (PyDict_GET_SIZE(object) != static_cast<Py_ssize_t>(count)) return false;
      Py_ssize_t position = 0;
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      std::size_t i = 0;
      for (; i < count && PyDict_Next(object, &position, &key, &value) != 0; ++i) {
        if (!is_same_key(key, node.keys[i].ptr())) return false;
        if (!match(node.children[i], value, leaves)) return false;
      }
      return i == count;
    }
    case NestKind::kNamedTuple:
      if (node.type.ptr() != reinterpret_cast<PyObject*>(Py_TYPE(object))) return false;
      [[fallthrough]];
    case NestKind::kList:
    case NestKind::kTuple:
      for (std::size_t i = 0; i < count; ++i) {
        if (PySequence_Fast_GET_SIZE(object) != static_cast<Py_ssize_t>(count)) return false;
        PyObject* const item = PySequence_Fast_GET_ITEM(object, static_cast<Py_ssize_t>(i));
        if (!match(node.children[i], item, leaves)) return false;
      }
      return PySequence_Fast_GET_SIZE(object) == static_cast<Py_ssize_t>(count);
    case NestKind::kDataclass:
      if (node.type.ptr() != reinterpret_cast<PyObject*>(Py_TYPE(object))) return false;
      leaves.hold();  // a field may be a property
      for (std::size_t i = 0; i < count; ++i) {
        PyObject* const value = leaves.keep(owned(PyObject_GetAttr(object, node.keys[i].ptr())));
        if (!match(node.children[i], value, leaves)) return false;
      }
      return true;
  }
  return false;
}

}  // namespace reverie::python
