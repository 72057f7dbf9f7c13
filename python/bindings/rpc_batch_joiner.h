// Joins the arguments of the calls of a batch into one nest.
//
//     call 1   {"obs": row 1}                {"obs": array of rows 1, 2, 3 and padding}
//     call 2   {"obs": row 2}      ->
//     call 3   {"obs": row 3}
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "python/bindings/rpc_batch.h"

namespace reverie::python {

// The interpreter's lock guards it; long copies release the lock.
class RpcBatchJoiner {
 public:
  // Repeats the last row `padding` times. `join_leaves` is the function of set_rpc_batch_helpers.
  RpcBatchJoiner(const RpcBatchOptions& options, LeafReader& reader, std::size_t padding,
                 nb::handle join_leaves)
      : options_(options), reader_(reader), padding_(padding), join_leaves_(join_leaves) {}

  // Requires at least one nest. `path` is where they are in the arguments, for messages.
  nb::object join(const std::vector<PyObject*>& nests, const std::string& path);

 private:
  nb::object join_dicts(const std::vector<PyObject*>& nests, const std::string& path);
  nb::object join_sequences(const std::vector<PyObject*>& nests, const std::string& path);
  nb::object join_leaves(const std::vector<PyObject*>& leaves, const std::string& path);
  // Numbers of one class; invalid for others.
  nb::object join_numbers(const std::vector<PyObject*>& leaves) const;
  // Arrays of NumPy or torch, of one type and shape; invalid for others.
  nb::object join_arrays(const std::vector<PyObject*>& leaves);
  nb::object on_device(nb::object joined) const;

  const RpcBatchOptions& options_;
  LeafReader& reader_;
  const std::size_t padding_;
  const nb::handle join_leaves_;
};

}  // namespace reverie::python
