// Splits the result of a batch of calls into the callers' answers.
//
//     {"action": array of rows 1, 2, 3}      ->      answer 1   {"action": row 1}
//                                                    answer 2   {"action": row 2}
//                                                    answer 3   {"action": row 3}
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/device_arrays.h"
#include "python/bindings/leaf_view.h"
#include "python/bindings/rpc_batch.h"
#include "python/bindings/rpc_values.h"
#include "reverie/tensor/value_kind.h"
#include "reverie/tensor/value_writer.h"

namespace reverie::python {

// Reads a result once; then writes each caller's part of it. The interpreter's lock guards it.
class RpcBatchSplitter {
 public:
  // `senders` are those of the callers, in order; `rows` are those of the batch, padding included.
  RpcBatchSplitter(const RpcBatchOptions& options, LeafReader& reader, Pickle pickle,
                   std::deque<DeviceSender>& senders, std::size_t rows)
      : options_(options),
        reader_(reader),
        pickle_(pickle),
        senders_(senders),
        call_count_(senders.size()),
        rows_(rows) {}

  void read(PyObject* nest, std::size_t depth);
  // The part of one caller: rows [begin, begin + rows), or entry `index`.
  void write(Payload& payload, std::size_t begin, std::size_t rows, std::size_t index);

 private:
  struct Part {
    enum class Kind : std::uint8_t { kBegin, kValue, kEntry, kIndexed, kRows };
    Kind kind = Kind::kValue;
    nb::object value = {};  // for kRows: the owner of the rows
    std::size_t depth = 0;
    ValueKind container = ValueKind::kTuple;
    std::size_t count = 0;
    std::string names = {};
    LeafView view = {};
    std::size_t row_bytes = 0;
    // For rows of a GPU's tensor: the same there, for callers that get it there.
    nb::object on_device = {};
    int device = -1;
    bool is_copy = false;  // `value` is one that only this object has
  };

  void begin(ValueKind kind, std::size_t count, std::string names);
  void add(Part::Kind kind, nb::object value, std::size_t depth);
  void read_sequence(PyObject* nest, std::size_t depth);
  // False if the rows must be indexed in Python.
  bool read_array(PyObject* array, std::size_t depth);
  nb::object rows_of(const nb::object& array, std::size_t begin, std::size_t rows) const;
  void write_rows(ValueWriter& writer, const Part& part, std::size_t begin, std::size_t rows);
  // With `is_copy`, no one else changes the value's tensors.
  void encode(Payload& payload, const nb::object& value, std::size_t depth, std::size_t index,
              bool is_copy = false);

  const RpcBatchOptions& options_;
  LeafReader& reader_;
  const Pickle pickle_;
  std::deque<DeviceSender>& senders_;
  const std::size_t call_count_;
  const std::size_t rows_;
  std::vector<Part> parts_;
};

}  // namespace reverie::python
