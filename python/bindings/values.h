// Values: the leaves of a step as the library's tensors.
//
//     NumPy array, row-major     its own memory, nothing copied
//     Python or NumPy scalar     16 bytes of scratch
//     str, bytes, arrays of them encoded into scratch
//     torch, JAX, ...            through DLPack or __array__, on the CPU
//     any other layout           a row-major copy
//
// Converting a leaf that is not a plain array or number may run Python code, so a caller that
// borrows leaves must own them first: add() then returns false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "reverie/client/trajectory_writer.h"
#include "reverie/tensor/tensor.h"

namespace reverie::python {

namespace nb = nanobind;

// The values of one step; the next step reuses its memory.
class Values {
 public:
  // Begins a step of at most `count` values.
  void begin(std::size_t count) {
    values_.clear();
    if (!held_.empty()) held_.clear();
    if (!imported_.empty()) imported_.clear();
    if (count > slots_.size()) slots_.resize(count);
  }

  // Adds a leaf that needs no Python code; false if it may need some.
  bool add(ColumnId column, PyObject* leaf);
  // Adds any leaf. Raises TypeError naming the column `path` and the type.
  void add_any(ColumnId column, std::string_view path, nb::handle leaf);

  std::span<const ColumnValue> values() const { return values_; }

 private:
  // Memory for a value that has none. It does not move during a step.
  struct Slot {
    alignas(16) std::byte scalar[16];
    std::vector<std::byte> text;
    std::vector<std::int64_t> shape;
  };

  Slot& slot() { return slots_[values_.size()]; }
  void push(ColumnId column, DType dtype, std::span<const std::int64_t> shape,
            std::span<const std::byte> bytes) {
    values_.push_back({column, {dtype, shape, bytes}});
  }
  void push_scalar(ColumnId column, DType dtype, const void* value);
  bool add_python_scalar(ColumnId column, PyObject* leaf);
  bool add_numpy_scalar(ColumnId column, PyObject* leaf);
  void add_text(ColumnId column, std::string_view path, nb::handle leaf);
  void add_text_array(ColumnId column, std::string_view path, nb::object array);
  void add_array(ColumnId column, std::string_view path, nb::object array);
  // False if `leaf` has no DLPack, or its own array conversion is preferable.
  bool add_dlpack(ColumnId column, std::string_view path, nb::handle leaf);

  std::vector<ColumnValue> values_;
  std::vector<Slot> slots_;
  std::vector<nb::object> held_;  // temporary arrays
  std::vector<nb::ndarray<nb::ro>> imported_;
};

}  // namespace reverie::python
