#include "python/bindings/history_nest.h"

#include <optional>
#include <string_view>

#include "python/bindings/convert.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

std::string_view kind_text(NestKind kind) {
  switch (kind) {
    case NestKind::kLeaf:
      return "an array";
    case NestKind::kDict:
      return "a dict";
    case NestKind::kList:
      return "a list";
    case NestKind::kTuple:
      return "a tuple";
    case NestKind::kNamedTuple:
      return "a named tuple";
    case NestKind::kDataclass:
      return "a dataclass";
  }
  return "";
}

// The child of `node` that stands where child `i` of `other` does.
std::optional<std::size_t> counterpart(const Nest::Node& node, const Nest::Node& other,
                                       std::size_t i) {
  if (node.kind != NestKind::kDict) {
    return i < node.children.size() ? std::optional(i) : std::nullopt;
  }
  for (std::size_t k = 0; k < node.keys.size(); ++k) {
    if (is_same_key(node.keys[k].ptr(), other.keys[i].ptr())) return k;
  }
  return std::nullopt;
}

std::string name_of_child(const Nest::Node& node, std::size_t i) {
  return node.keys.empty() ? format("{}", i) : str_of(node.keys[i]);
}

void check_node(const Nest::Node& known, const Nest::Node& step, const std::string& path) {
  if (known.kind != step.kind || !known.type.is(step.type)) {
    raise(invalid_argument(
        "the step has {} at '{}', where earlier steps had {}; a writer's steps must agree where "
        "they overlap",
        kind_text(step.kind), path, kind_text(known.kind)));
  }
  for (std::size_t i = 0; i < step.children.size(); ++i) {
    const std::optional<std::size_t> same = counterpart(known, step, i);
    if (!same) continue;
    const std::string name = name_of_child(step, i);
    check_node(known.children[*same], step.children[i], path.empty() ? name : path + "/" + name);
  }
}

// `step` with columns for leaves.
Nest::Node with_columns(const Nest::Node& step, const std::vector<ColumnId>& columns) {
  Nest::Node node = step;
  if (node.kind == NestKind::kLeaf) node.leaf = columns[step.leaf];
  for (Nest::Node& child : node.children) child = with_columns(child, columns);
  return node;
}

void merge_node(Nest::Node& known, const Nest::Node& step) {
  for (std::size_t i = 0; i < step.children.size(); ++i) {
    if (const std::optional<std::size_t> same = counterpart(known, step, i)) {
      merge_node(known.children[*same], step.children[i]);
    } else {
      if (known.kind == NestKind::kDict) known.keys.push_back(step.keys[i]);
      known.children.push_back(step.children[i]);
    }
  }
}

}  // namespace

void HistoryNest::check(const Nest& step) const {
  if (!is_empty_) check_node(root_, step.root(), "");
}

void HistoryNest::merge(const Nest& step, const std::vector<ColumnId>& columns) {
  Nest::Node node = with_columns(step.root(), columns);
  if (is_empty_) {
    root_ = std::move(node);
    is_empty_ = false;
  } else {
    merge_node(root_, node);
  }
  structure_ = structure_text(root_);
}

}  // namespace reverie::python
