// The nest of a writer's history: the union of the structures of all its steps.
//
//     step 0   {"obs": o}          step 1   {"obs": o, "reward": r}
//     history  {"obs": column 0, "reward": column 1}
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/nest.h"
#include "reverie/client/trajectory_writer.h"

namespace reverie::python {

class HistoryNest {
 public:
  // Raises if `step` has a container of another kind, or a leaf, where earlier steps had something
  // else.
  void check(const Nest& step) const;
  // Adds what is new in `step`, whose leaves (in visiting order) are these columns. Requires a step
  // that check() accepts.
  void merge(const Nest& step, const std::vector<ColumnId>& columns);

  bool empty() const { return is_empty_; }
  const StructureText& structure() const { return structure_; }

 private:
  Nest::Node root_;  // its leaves are columns
  StructureText structure_;
  bool is_empty_ = true;
};

}  // namespace reverie::python
