// Element-wise reduction of arrays: how a member of a group combines its array with a received one.
//
// Half-precision floats are widened to float32 before the first operation and narrowed after the
// last, so a sum over many members is rounded once. Integers wrap around. NaN stays NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reverie/base/status.h"
#include "reverie/tensor/dtype.h"

namespace reverie {

// The numbers are part of messages and never change.
enum class ReduceOp : std::uint8_t { kSum = 0, kMean = 1, kMin = 2, kMax = 3, kProduct = 4 };

std::string_view reduce_op_name(ReduceOp op);
std::optional<ReduceOp> reduce_op_from_name(std::string_view name);

// INVALID_ARGUMENT for an operation that the element type does not support: means of integers, sums
// of bools, the minimum of complex numbers, any operation on strings and 8-bit floats.
Status check_reducible(ReduceOp op, DType dtype);

// The type in which elements of `dtype` are combined: float32 for 16-bit floats, else itself.
DType combining_dtype(DType dtype);

// --- All require check_reducible().ok(), and arrays that do not overlap.

// Converts `count` elements of `dtype` to its combining_dtype(), and back.
void widen(DType dtype, const std::byte* from, std::byte* to, std::size_t count);
void narrow(DType dtype, const std::byte* from, std::byte* to, std::size_t count);

// into[i] = into[i] op from[i], of a combining dtype. A mean is a sum until finish_mean().
void combine(ReduceOp op, DType dtype, std::byte* into, const std::byte* from, std::size_t count);
// to[i] = from[i] * factor, of a combining dtype that can be summed. `to` may be `from`.
void scale(DType dtype, std::byte* to, const std::byte* from, std::size_t count,
           std::uint64_t factor);
// into[i] += from[i] * factor, of elements of `dtype`, which can be summed, in `from`, and of its
// combining_dtype() in `into`.
void add_scaled(DType dtype, std::byte* into, const std::byte* from, std::size_t count,
                std::uint64_t factor);
void finish_mean(DType dtype, std::byte* values, std::size_t count, double divisor);

}  // namespace reverie
