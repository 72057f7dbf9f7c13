// Nests: dicts, lists, tuples, named tuples and dataclasses of leaves, as flat columns.
//
//     {"obs": {"position": p, "speed": v}, "reward": r}
//         obs/position -> p     obs/speed -> v     reward -> r
//
// Columns are in canonical order: the keys of a dict sorted (numbers before words), all else in its
// own order. A small JSON text that is stored with the columns describes the nest:
//
//     leaf          "*"
//     dict          {"dict": [["obs", "*"], [3, "*"]]}          keys are str or int
//     list, tuple   {"list": ["*", "*"]}    {"tuple": []}
//     named tuple   {"namedtuple": "module:Qualified.Name", "fields": [["x", "*"]]}
//     dataclass     {"dataclass": "module:Qualified.Name", "fields": [["x", "*"]]}
//
// A class is only looked up among those that this process has itself flattened, never imported; if
// it is unknown, or has other fields now, the fields are returned as a dict.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace reverie::python {

namespace nb = nanobind;

// A structure is stored as JSON, which Python's parser reads by recursion, two or three levels for
// each of these.
inline constexpr std::size_t kNestDepthMax = 100;

enum class NestKind : std::uint8_t { kLeaf, kDict, kList, kTuple, kNamedTuple, kDataclass };

// Leaves that were found in a nest, in visiting order: borrowed from it, or held.
class Leaves {
 public:
  void clear() {
    found_.clear();
    if (!held_.empty()) held_.clear();
    owned_count_ = 0;
  }
  void add(PyObject* borrowed) { found_.push_back(borrowed); }
  // A leaf, or a temporary container, that only this list keeps alive.
  PyObject* keep(nb::object object) {
    held_.push_back(std::move(object));
    return held_.back().ptr();
  }
  // Owns all of them from now on: before Python code runs that could change the nest.
  void hold() {
    while (owned_count_ < found_.size()) held_.push_back(nb::borrow(found_[owned_count_++]));
  }

  std::size_t size() const { return found_.size(); }
  PyObject* operator[](std::size_t i) const { return found_[i]; }

 private:
  std::vector<PyObject*> found_;
  std::vector<nb::object> held_;
  std::size_t owned_count_ = 0;
};

// The structure of one nest, in a form that splits equal nests quickly. Immutable.
class Nest {
 public:
  struct Node {
    NestKind kind = NestKind::kLeaf;
    std::size_t leaf = 0;          // of a leaf: its place in visiting order
    nb::object type;               // of a named tuple or dataclass
    std::vector<nb::object> keys;  // dict keys and field names, in visiting order
    std::vector<Node> children;
  };

  // Splits `nest` for the first time and adds its leaves, which are held. Raises for keys that are
  // not str or int, for two leaves with the same path, and for a nest that is too deep.
  static std::unique_ptr<Nest> of(nb::handle nest, Leaves& leaves);

  // Adds the leaves of `nest`, without an allocation, if it has this structure: the same keys in
  // the same order, the same classes. False, with some leaves added, if it has another.
  bool match(PyObject* nest, Leaves& leaves) const { return match(root_, nest, leaves); }

  const Node& root() const { return root_; }
  std::size_t leaf_count() const { return paths_.size(); }
  // By visiting order.
  const std::string& path(std::size_t leaf) const { return paths_[leaf]; }
  // The leaf (in visiting order) that is column i in canonical order.
  std::size_t leaf_of_column(std::size_t i) const { return canonical_[i]; }
  const std::string& text() const { return text_; }

 private:
  static bool match(const Node& node, PyObject* object, Leaves& leaves);

  Node root_;
  std::vector<std::string> paths_;
  std::vector<std::size_t> canonical_;
  std::string text_;
};

// The canonical text of a structure, and its leaves (Node::leaf) in that order.
struct StructureText {
  std::string text;
  std::vector<std::size_t> leaves;
};
StructureText structure_text(const Nest::Node& root);

// Whether two keys of dicts are the same. Nearly always they are one object.
bool is_same_key(PyObject* a, PyObject* b);

// The latest structures, each with its user's note: a stream has one, or a few in
// turn.
template <typename Note>
class NestCache {
 public:
  struct Entry {
    std::unique_ptr<Nest> nest;
    Note note;
  };

  // The structure of `nest`, whose leaves replace those in `leaves`. Its note is empty the first
  // time. Valid until the next call.
  Entry& flatten(nb::handle nest, Leaves& leaves) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      leaves.clear();
      if (!entries_[i].nest->match(nest.ptr(), leaves)) continue;
      for (; i > 0; --i) std::swap(entries_[i], entries_[i - 1]);
      return entries_.front();
    }
    leaves.clear();
    Entry made{Nest::of(nest, leaves), Note()};
    if (entries_.size() >= kCapacity) entries_.pop_back();
    entries_.insert(entries_.begin(), std::move(made));
    return entries_.front();
  }

 private:
  static constexpr std::size_t kCapacity = 8;

  std::vector<Entry> entries_;  // the latest in front
};

// Builds the nest that `text` describes from `leaves`, in canonical order. Raises DataLossError if
// the text is malformed or has another number of leaves.
nb::object fold(const std::string& text, std::span<const nb::object> leaves);

}  // namespace reverie::python
