// The kernels themselves, for the lanes and registers that the including source names:
//
//     kLanes         floats of a vector register
//     kTileRows      rows of the result that registers hold, two vectors wide; at most 12
//     kPackedRows    the same, four vectors wide, for results of many rows, whose right side
//                    is copied so that it lies close;
//                    0 where registers are too few
//
// Everything here has internal linkage and uses no function of a library: a source that is compiled
// for a newer processor must leave nothing that the linker could take for the whole program's.
#pragma once

#include <cstddef>

#include "reverie/nn/kernels.h"

namespace reverie::nn {
namespace {

// Vectors as GCC and clang have them: element-wise operators, comparisons of all bits. They may lie
// at any address of a float, and be read where floats were written.
template <std::size_t kWidth>
struct VectorType {
  using Floats [[gnu::vector_size(kWidth * sizeof(float)), gnu::may_alias]] = float;
  using Loose [[gnu::vector_size(kWidth * sizeof(float)), gnu::aligned(4), gnu::may_alias]] = float;
  using Integers [[gnu::vector_size(kWidth * sizeof(int)), gnu::may_alias]] = int;
};
template <std::size_t kWidth>
using Vector = typename VectorType<kWidth>::Floats;

#define REVERIE_INLINE [[gnu::always_inline]] inline

template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> load(const float* from) {
  return *reinterpret_cast<const typename VectorType<kWidth>::Loose*>(from);
}
template <std::size_t kWidth>
REVERIE_INLINE void store(float* to, Vector<kWidth> value) {
  *reinterpret_cast<typename VectorType<kWidth>::Loose*>(to) = value;
}
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> all(float value) {
  return value - Vector<kWidth>{};
}

// NaN stays NaN, or a broken network would look sound.
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> relu(Vector<kWidth> x) {
  return (x <= 0.0f) ? Vector<kWidth>{} : x;
}

// Relative error below 4e-7. Below 0.625 a polynomial in x^2, above 1 - 2 / (exp(2 |x|) + 1).
// Source of both polynomials: Cephes, tanhf.c and expf.c (Moshier).
template <std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> tanh_of(Vector<kWidth> x) {
  using Floats = Vector<kWidth>;
  using Integers = typename VectorType<kWidth>::Integers;
  const Floats magnitude = (x < 0.0f) ? -x : x;
  const Floats squared = x * x;
  Floats series = all<kWidth>(-5.70498872745e-3f);
  series = series * squared + 2.06390887954e-2f;
  series = series * squared - 5.37397155531e-2f;
  series = series * squared + 1.33314422036e-1f;
  series = series * squared - 3.33332819422e-1f;
  const Floats near = series * squared * x + x;

  // exp(2 |x|) = 2^n exp(f). From |x| = 9 on the result is 1.
  const Floats y = 2.0f * ((magnitude > 9.0f) ? all<kWidth>(9.0f) : magnitude);
  const Floats scaled = y * 1.44269504088896341f + 0.5f;
  const Integers n = __builtin_convertvector(scaled, Integers);  // y >= 0: rounds down
  const Floats whole = __builtin_convertvector(n, Floats);
  const Floats f = (y - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Floats power = all<kWidth>(1.9875691500e-4f);
  power = power * f + 1.3981999507e-3f;
  power = power * f + 8.3334519073e-3f;
  power = power * f + 4.1665795894e-2f;
  power = power * f + 1.6666665459e-1f;
  power = power * f + 5.0000001201e-1f;
  power = power * (f * f) + f + 1.0f;
  const Floats exponential = power * reinterpret_cast<Floats>((n + 127) << 23);
  const Floats far = 1.0f - 2.0f / (exponential + 1.0f);
  const Floats signed_far = (x < 0.0f) ? -far : far;
  // x == x: NaN stays NaN.
  return (magnitude < 0.625f) ? near : ((x == x) ? signed_far : x);
}

// What is done to a sum before it is stored.
enum class Finish { kNone, kRelu, kTanh, kReluDerivative, kTanhDerivative };

template <Finish kFinish, std::size_t kWidth>
REVERIE_INLINE Vector<kWidth> finish(const Product& p, Vector<kWidth> value, std::size_t at) {
  if constexpr (kFinish == Finish::kRelu) return relu<kWidth>(value);
  if constexpr (kFinish == Finish::kTanh) return tanh_of<kWidth>(value);
  if constexpr (kFinish == Finish::kReluDerivative) {
    return (load<kWidth>(p.outputs + at) > 0.0f) ? value : Vector<kWidth>{};
  }
  if constexpr (kFinish == Finish::kTanhDerivative) {
    const Vector<kWidth> output = load<kWidth>(p.outputs + at);
    return value * (1.0f - output * output);
  }
  return value;
}

template <Finish kFinish, std::size_t kRows, std::size_t kVectors, std::size_t kWidth>
REVERIE_INLINE void store_tile(const Product& p, const Vector<kWidth> (&sums)[kRows][kVectors],
                               std::size_t row, std::size_t column) {
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = (row + r) * p.c_stride + column + v * kWidth;
      store<kWidth>(p.c + at, finish<kFinish, kWidth>(p, sums[r][v], at));
    }
  }
}

// The part [begin, end) of the depth, for some columns: where the right side's rows of it lie.
struct Panel {
  const float* b;
  std::size_t stride;
  std::size_t begin;
  std::size_t end;
};

// The rows [row, row + kRows) of the columns [column, column + kVectors * kWidth), over a panel.
// What the panels before have summed up lies in c: the order of the sums is the depth's, whatever
// panels there are.
template <std::size_t kRows, std::size_t kVectors, std::size_t kWidth>
void tile(const Product& p, Finish finish, std::size_t row, std::size_t column,
          const Panel& panel) {
  Vector<kWidth> sums[kRows][kVectors];
  if (panel.begin == 0) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Vector<kWidth> first =
          p.bias != nullptr ? load<kWidth>(p.bias + column + v * kWidth) : Vector<kWidth>{};
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kRows; ++r) sums[r][v] = first;
    }
  } else {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const float* const from = p.c + (row + r) * p.c_stride + column;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = load<kWidth>(from + v * kWidth);
    }
  }
  const float* a = p.a + row * p.a_row + panel.begin * p.a_depth;
  const float* b = panel.b;
  for (std::size_t k = panel.begin; k < panel.end; ++k) {
    Vector<kWidth> right[kVectors];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) right[v] = load<kWidth>(b + v * kWidth);
      // Unrolled, or the sums would live in memory.
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector<kWidth> left = all<kWidth>(a[r * p.a_row]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] += left * right[v];
    }
    a += p.a_depth;
    b += panel.stride;
  }
  if (panel.end < p.depth) finish = Finish::kNone;
  switch (finish) {
    case Finish::kNone:
      return store_tile<Finish::kNone, kRows, kVectors, kWidth>(p, sums, row, column);
    case Finish::kRelu:
      return store_tile<Finish::kRelu, kRows, kVectors, kWidth>(p, sums, row, column);
    case Finish::kTanh:
      return store_tile<Finish::kTanh, kRows, kVectors, kWidth>(p, sums, row, column);
    case Finish::kReluDerivative:
      return store_tile<Finish::kReluDerivative, kRows, kVectors, kWidth>(p, sums, row, column);
    case Finish::kTanhDerivative:
      return store_tile<Finish::kTanhDerivative, kRows, kVectors, kWidth>(p, sums, row, column);
  }
}

template <std::size_t kVectors, std::size_t kWidth, std::size_t kRows>
REVERIE_INLINE void tile_of(std::size_t rows, const Product& p, Finish finish, std::size_t row,
                            std::size_t column, const Panel& panel) {
  if constexpr (kRows > 1) {
    if (rows != kRows) {
      return tile_of<kVectors, kWidth, kRows - 1>(rows, p, finish, row, column, panel);
    }
  }
  tile<kRows, kVectors, kWidth>(p, finish, row, column, panel);
}

// All rows of a strip of columns, in tiles whose rows differ by one at most: a last tile of a
// single row would leave most registers idle.
template <std::size_t kVectors, std::size_t kWidth, std::size_t kRowsMax>
void strip(const Product& p, Finish finish, std::size_t column, const Panel& panel) {
  std::size_t row = 0;
  for (std::size_t left = (p.rows + kRowsMax - 1) / kRowsMax; left > 0; --left) {
    const std::size_t rows = (p.rows - row) / left;
    tile_of<kVectors, kWidth, kRowsMax>(rows, p, finish, row, column, panel);
    row += rows;
  }
}
template <std::size_t kVectors, std::size_t kWidth, std::size_t kRowsMax>
void strip(const Product& p, Finish finish, std::size_t column) {
  strip<kVectors, kWidth, kRowsMax>(p, finish, column, {p.b + column, p.b_stride, 0, p.depth});
}

// The same for many rows: each panel of the right side is copied first, so that all tiles read it
// from the nearest cache. Where it lies, rows of 1 KiB fall on a few of the cache's sets.
template <std::size_t kVectors, std::size_t kWidth, std::size_t kRowsMax>
void packed_strip(const Product& p, Finish finish, std::size_t column) {
  constexpr std::size_t kDepth = 64;
  constexpr std::size_t kStride = kVectors * kWidth;
  alignas(64) float packed[kDepth * kStride];  // 16 KiB
  for (std::size_t begin = 0; begin < p.depth; begin += kDepth) {
    const std::size_t end = begin + kDepth < p.depth ? begin + kDepth : p.depth;
    for (std::size_t k = begin; k < end; ++k) {
      const float* const from = p.b + k * p.b_stride + column;
      float* const to = packed + (k - begin) * kStride;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        store<kWidth>(to + v * kWidth, load<kWidth>(from + v * kWidth));
      }
    }
    strip<kVectors, kWidth, kRowsMax>(p, finish, column, {packed, kStride, begin, end});
  }
}

Finish finish_of(const Product& p) {
  if (p.activation == Activation::kNone) return Finish::kNone;
  const bool is_relu = p.activation == Activation::kRelu;
  if (p.outputs == nullptr) return is_relu ? Finish::kRelu : Finish::kTanh;
  return is_relu ? Finish::kReluDerivative : Finish::kTanhDerivative;
}

// Narrower vectors at the end of the columns, down to kPad.
template <std::size_t kWidth>
void narrow_strips(const Product& p, Finish finish, std::size_t column) {
  constexpr std::size_t kRowsMax = 12;
  for (; column + kWidth <= p.columns; column += kWidth) {
    strip<1, kWidth, kRowsMax>(p, finish, column);
  }
  if constexpr (kWidth > kPad) narrow_strips<kWidth / 2>(p, finish, column);
}

void multiply(const Product& p) {
  // A sum waits for the one before it: few rows make up for that with more columns.
  constexpr std::size_t kFewRows = 3;
  const Finish finish = finish_of(p);
  std::size_t column = 0;
  if (p.rows <= kFewRows) {
    for (; column + 4 * kLanes <= p.columns; column += 4 * kLanes) {
      strip<4, kLanes, kFewRows>(p, finish, column);
    }
  }
  if constexpr (kPackedRows > 0) {
    // Fewer rows would not make up for the copies.
    constexpr std::size_t kManyRows = 96;
    if (p.rows >= kManyRows) {
      for (; column + 4 * kLanes <= p.columns; column += 4 * kLanes) {
        packed_strip<4, kLanes, kPackedRows>(p, finish, column);
      }
    }
  }
  for (; column + 2 * kLanes <= p.columns; column += 2 * kLanes) {
    strip<2, kLanes, kTileRows>(p, finish, column);
  }
  narrow_strips<kLanes>(p, finish, column);
}

void transpose(const float* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
               float* to, std::size_t to_stride) {
  using Quad = Vector<4>;
  for (std::size_t c = 0; c < columns; c += 4) {
    for (std::size_t r = 0; r < rows; r += 4) {
      const float* in = from + r * from_stride + c;
      float* out = to + c * to_stride + r;
      const Quad row0 = load<4>(in);
      const Quad row1 = load<4>(in + from_stride);
      const Quad row2 = load<4>(in + 2 * from_stride);
      const Quad row3 = load<4>(in + 3 * from_stride);
      const Quad low01 = __builtin_shufflevector(row0, row1, 0, 4, 1, 5);
      const Quad low23 = __builtin_shufflevector(row2, row3, 0, 4, 1, 5);
      const Quad high01 = __builtin_shufflevector(row0, row1, 2, 6, 3, 7);
      const Quad high23 = __builtin_shufflevector(row2, row3, 2, 6, 3, 7);
      store<4>(out, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
      store<4>(out + to_stride, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
      store<4>(out + 2 * to_stride, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
      store<4>(out + 3 * to_stride, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
    }
  }
}

template <std::size_t kWidth>
void sum_columns(const float* from, std::size_t stride, std::size_t rows, std::size_t column,
                 std::size_t columns, float* sums) {
  for (; column + kWidth <= columns; column += kWidth) {
    Vector<kWidth> sum{};
    for (std::size_t r = 0; r < rows; ++r) sum += load<kWidth>(from + r * stride + column);
    store<kWidth>(sums + column, sum);
  }
  if constexpr (kWidth > kPad) {
    sum_columns<kWidth / 2>(from, stride, rows, column, columns, sums);
  }
}

void sum_rows(const float* from, std::size_t stride, std::size_t rows, std::size_t columns,
              float* sums) {
  sum_columns<kLanes>(from, stride, rows, 0, columns, sums);
}

// By value: in memory its numbers could be what the stores below change.
void adam_pass(AdamStep step) {
  float* __restrict__ const parameters = step.parameters;
  float* __restrict__ const mean = step.mean;
  float* __restrict__ const square = step.square;
  const float* __restrict__ const gradient = step.gradient;
  for (std::size_t i = 0; i < step.count; ++i) {
    const float g = gradient[i] * step.gradient_scale;
    const float m = mean[i] * step.mean_decay + g * step.mean_share;
    const float s = square[i] * step.square_decay + (g * g) * step.square_share;
    mean[i] = m;
    square[i] = s;
    parameters[i] -= step.step_size * m / (__builtin_sqrtf(s) + step.epsilon);
  }
}

void adam(const AdamStep& step) {
  adam_pass(step);
}

void approach(float* __restrict__ target, const float* __restrict__ source, std::size_t count,
              float rate) {
  for (std::size_t i = 0; i < count; ++i) target[i] += rate * (source[i] - target[i]);
}

double sum_of_squares(const float* values, std::size_t count) {
  constexpr std::size_t kSums = 16;  // independent, so that they fill the registers
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) {
      const double value = static_cast<double>(values[i + s]);
      sums[s] += value * value;
    }
  }
  for (; i < count; ++i) sums[i % kSums] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

constexpr Kernels kernels_named(const char* name) {
  return {name, &multiply, &transpose, &sum_rows, &adam, &approach, &sum_of_squares};
}

}  // namespace
}  // namespace reverie::nn
