// Rebuilds the nest that a structure text describes from its columns.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "python/bindings/nest_classes.h"
#include "python/bindings/python_api.h"

namespace reverie::python {
namespace {

struct Fold {
  NestKind kind = NestKind::kLeaf;
  nb::object type;
  std::vector<nb::object> keys;
  std::vector<Fold> children;
  std::size_t leaf_count = 0;
};

constexpr std::size_t kCachedMax = 256;
constexpr int kDepthMax = 200;

Fold parse(nb::handle json, int depth);

// [[key, child], ...]
void parse_members(nb::handle json, Fold& fold, int depth) {
  for (nb::handle member : nb::cast<nb::list>(json)) {
    const auto pair = nb::cast<nb::list>(member);
    if (pair.size() != 2) raise(data_loss("a member of a structure has {} parts", pair.size()));
    nb::object key = nb::borrow(pair[0]);
    if (PyUnicode_Check(key.ptr())) {
      PyObject* text = key.release().ptr();
      PyUnicode_InternInPlace(&text);  // like the keys that programs use
      key = nb::steal(text);
    } else if (!PyLong_CheckExact(key.ptr())) {
      raise(data_loss("a key of a structure is neither text nor a number"));
    }
    fold.keys.push_back(std::move(key));
    fold.children.push_back(parse(pair[1], depth));
  }
}

void parse_elements(nb::handle json, Fold& fold, int depth) {
  for (nb::handle element : nb::cast<nb::list>(json)) {
    fold.children.push_back(parse(element, depth));
  }
}

// Whether the class has these fields, in this order.
bool has_fields(const Fold& fold, NestKind kind) {
  const std::vector<nb::object> names = field_names(kind, fold.type.ptr());
  return std::equal(
      names.begin(), names.end(), fold.keys.begin(), fold.keys.end(),
      [](const nb::object& a, const nb::object& b) { return is_same_key(a.ptr(), b.ptr()); });
}

// A class that this process has not seen, or with other fields, becomes a dict of its fields.
void parse_class(nb::handle json, nb::handle name, NestKind kind, Fold& fold, int depth) {
  parse_members(json["fields"], fold, depth);
  fold.type = find_class(str_of(name));
  fold.kind = fold.type.is_valid() && has_fields(fold, kind) ? kind : NestKind::kDict;
}

Fold parse(nb::handle json, int depth) {
  if (depth > kDepthMax) raise(data_loss("a structure is nested deeper than {}", kDepthMax));
  Fold fold;
  if (PyUnicode_Check(json.ptr()) && str_of(json) == "*") {
    fold.leaf_count = 1;
    return fold;
  }
  const auto node = nb::cast<nb::dict>(json);
  if (node.contains("dict")) {
    fold.kind = NestKind::kDict;
    parse_members(node["dict"], fold, depth + 1);
  } else if (node.contains("list")) {
    fold.kind = NestKind::kList;
    parse_elements(node["list"], fold, depth + 1);
  } else if (node.contains("tuple")) {
    fold.kind = NestKind::kTuple;
    parse_elements(node["tuple"], fold, depth + 1);
  } else if (node.contains("namedtuple")) {
    parse_class(node, node["namedtuple"], NestKind::kNamedTuple, fold, depth + 1);
  } else {
    parse_class(node, node["dataclass"], NestKind::kDataclass, fold, depth + 1);
  }
  for (const Fold& child : fold.children) fold.leaf_count += child.leaf_count;
  return fold;
}

// Fields are set as copy and pickle do: without __init__, which may need other arguments.
nb::object build_dataclass(const Fold& fold, const std::vector<nb::object>& values) {
  nb::object object =
      nb::borrow(reinterpret_cast<PyObject*>(&PyBaseObject_Type)).attr("__new__")(fold.type);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (PyObject_GenericSetAttr(object.ptr(), fold.keys[i].ptr(), values[i].ptr()) < 0) {
      raise_pending();
    }
  }
  return object;
}

nb::object build(const Fold& fold, const nb::object*& next) {
  const auto count = static_cast<Py_ssize_t>(fold.children.size());
  switch (fold.kind) {
    case NestKind::kLeaf:
      return *next++;
    case NestKind::kDict: {
      nb::object dict = owned(PyDict_New());
      for (std::size_t i = 0; i < fold.children.size(); ++i) {
        const nb::object value = build(fold.children[i], next);
        if (PyDict_SetItem(dict.ptr(), fold.keys[i].ptr(), value.ptr()) < 0) raise_pending();
      }
      return dict;
    }
    case NestKind::kList: {
      nb::object list = owned(PyList_New(count));
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyList_SET_ITEM(list.ptr(), i,
                        build(fold.children[static_cast<std::size_t>(i)], next).release().ptr());
      }
      return list;
    }
    case NestKind::kTuple:
    case NestKind::kNamedTuple: {
      nb::object tuple = owned(PyTuple_New(count));
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyTuple_SET_ITEM(tuple.ptr(), i,
                         build(fold.children[static_cast<std::size_t>(i)], next).release().ptr());
      }
      if (fold.kind == NestKind::kTuple) return tuple;
      return nb::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type))
          .attr("__new__")(fold.type, tuple);
    }
    case NestKind::kDataclass: {
      std::vector<nb::object> values;
      for (const Fold& child : fold.children) values.push_back(build(child, next));
      return build_dataclass(fold, values);
    }
  }
  return nb::none();
}

// Never destroyed, and rebuilt when a name refers to another class. Python code may run while a
// text is parsed, while a nest is built from it and when classes go, and parse other texts: what is
// used is held, and the cache is whole whenever such code runs.
std::shared_ptr<const Fold> parsed(const std::string& text) {
  using Cache = std::unordered_map<std::string, std::shared_ptr<const Fold>>;
  static auto* const cache = new Cache;
  static std::uint64_t generation = 0;
  const std::uint64_t now = class_generation();
  if (std::exchange(generation, now) != now || cache->size() >= kCachedMax) {
    Cache gone;
    gone.swap(*cache);
  }
  const auto found = cache->find(text);
  if (found != cache->end()) return found->second;
  try {
    const nb::object json = nb::module_::import_("json").attr("loads")(nb::str(text.c_str()));
    const auto made = std::make_shared<const Fold>(parse(json, 0));
    if (class_generation() == now) cache->emplace(text, made);
    return made;
  } catch (const nb::cast_error&) {
    raise(data_loss("'{}' is not the structure of a nest", text));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ValueError) && !error.matches(PyExc_LookupError)) throw;
    raise(data_loss("'{}' is not the structure of a nest", text));
  }
}

}  // namespace

nb::object fold(const std::string& text, std::span<const nb::object> leaves) {
  const std::shared_ptr<const Fold> root = parsed(text);
  if (root->leaf_count != leaves.size()) {
    raise(data_loss("{} columns came with a structure of {}: {}", leaves.size(), root->leaf_count,
                    text));
  }
  const nb::object* next = leaves.data();
  return build(*root, next);
}

}  // namespace reverie::python
