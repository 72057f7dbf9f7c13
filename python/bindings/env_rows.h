// Converts values of environments to and from rows of shared memory.
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

// Columns from Python: (path, dtype name, shape).
std::vector<TensorSpec> columns_argument(nb::handle columns);

// The shape of `rows` rows of that shape.
Shape with_rows(std::size_t rows, const Shape& shape);

// Writes one value according to `spec`. A value of another type is converted if NumPy considers it
// the same kind (float64 to float32, int64 to int32). Raises InvalidArgumentError naming `what` and
// the column for another shape, UnsupportedTypeError for another kind.
void write_value(std::string_view what, const TensorSpec& spec, nb::handle value, std::byte* to);

// A new array with the row's values.
nb::object read_array(const TensorSpec& spec, const std::byte* from);

// Splits nests of one structure into rows of columns.
class NestRows {
 public:
  // `structure` describes the nest of the columns, in canonical order.
  NestRows(std::string what, std::vector<TensorSpec> columns, std::string structure)
      : what_(std::move(what)), columns_(std::move(columns)), structure_(std::move(structure)) {}

  std::span<const TensorSpec> columns() const { return columns_; }
  // `rows` has one place per column. Also raises for a nest of another structure.
  void write(nb::handle nest, std::span<std::byte* const> rows);

 private:
  struct Note {
    bool is_checked = false;
  };

  // An observation of a wider type than its space's silently loses precision: warns once.
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
