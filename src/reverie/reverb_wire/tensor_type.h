// Element types and shapes in Reverb's messages, which are TensorFlow's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reverie/reverb_wire/fields.h"
#include "reverie/tensor/tensor.h"

namespace reverie::wire {

// None for a number that has no counterpart. Text of any kind is kBytes.
std::optional<DType> dtype_from_wire(std::int64_t number);
// None for the small floats that TensorFlow has no number for.
std::optional<std::int64_t> dtype_to_wire(DType dtype);

// TensorShapeProto. Extents >= -1, at most kAxesMax; INVALID_ARGUMENT for others, and for a shape
// of unknown rank.
Status read_shape(Bytes message, Shape& shape);
std::string write_shape(std::span<const std::int64_t> shape);

}  // namespace reverie::wire
