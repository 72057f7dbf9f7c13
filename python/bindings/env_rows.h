// What environments give and take, to and from rows of shared memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/nest.h"
#include "reverie/tensor/tensor.h"

namespace reverie::python {

namespace nb = nanobind;

// Columns as Python hands them over: (path, dtype name, shape).
std::vector<TensorSpec> columns_argument(nb::handle columns);

// The shape of so many rows of that shape.
Shape with_rows(std::size_t rows, const Shape& shape);

// Writes one value as `spec` has it. A value of another type is converted where NumPy calls that
// the same kind (float64 to float32, int64 to int32). Raises InvalidArgumentError naming `what` and
// the column for another shape, UnsupportedTypeError for another kind.
void write_value(std::string_view what, const TensorSpec& spec, nb::handle value, std::byte* to);

// An array of its own with the row's values.
nb::object read_array(const TensorSpec& spec, const std::byte* from);

// Takes nests of one structure apart, into rows of columns.
class NestRows {
 public:
  // `structure` is the text that folds the columns, in canonical order.
  NestRows(std::string what, std::vector<TensorSpec> columns, std::string structure)
      : what_(std::move(what)), columns_(std::move(columns)), structure_(std::move(structure)) {}

  std::span<const TensorSpec> columns() const { return columns_; }
  // `rows` are one place a column. Raises for a nest of another structure, too.
  void write(nb::handle nest, std::span<std::byte* const> rows);

 private:
  struct Note {
    bool is_checked = false;
  };

  // An observation of a wider type than its space's costs precision in silence: told once.
  void warn_of_narrowing(const TensorSpec& spec, nb::handle value);

  std::string what_;
  bool has_warned_ = false;
  std::vector<TensorSpec> columns_;
  std::string structure_;
  NestCache<Note> nests_;
  Leaves leaves_;
};

// Whether a row of a float column holds a NaN.
bool has_nan(const TensorSpec& spec, const std::byte* row);

}  // namespace reverie::python
