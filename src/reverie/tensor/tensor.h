// Tensors as they enter and leave the library, and what is promised about them.
//
// TensorView borrows: it lasts for a call. TensorSpec and Signature are the promises that a table
// makes about its items. A nest (dict, tuple, list of arrays) is flattened at the border into
// columns in a fixed order; how to rebuild the nest is kept beside them as text that only the
// border reads.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/dtype.h"
#include "reverie/tensor/shape.h"

namespace reverie {

// Row-major and contiguous. For kBytes and kString `bytes` holds, element after element, a
// 32-bit little-endian length and that many bytes.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::span<const std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// Whether `bytes` are exactly `element_count` elements in the form that kBytes and kString have in
// a TensorView. Reads nothing outside `bytes`, whatever they are.
bool are_sized_elements(std::span<const std::byte> bytes, std::size_t element_count);

// What a column holds. `name` is its path in the nest, "obs/position"; "" where the nest is a
// single array.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// "obs: float32 (4, 84)".
std::string spec_text(const TensorSpec& spec);

// The columns of a table's items, in flat order.
struct Signature {
  std::vector<TensorSpec> columns;
  std::string structure;
  // The signature in the form of Reverb's clients: a serialised StructuredValue, which also holds
  // names and bounds of values. Empty if it was not given. Equality ignores it.
  std::string original = {};

  friend bool operator==(const Signature& a, const Signature& b) {
    return a.columns == b.columns && a.structure == b.structure;
  }
};

}  // namespace reverie
