// The kernels themselves, for the lanes and registers that the including source names:
//
//     kLanes         floats of a vector register
//     kTileRows      rows of the result that registers hold, two vectors wide; at most 12
//     kPackedRows    the same, four vectors wide, for results of many rows, whose right side
//                    is copied so that it is contiguous;
//                    0 if there are too few registers
//
// Everything here has internal linkage and uses no function of a library: a source that is compiled
// for a newer processor must contain nothing that the linker could use in the whole program.
#pragma once

#include <cstddef>

#include "reverie/nn/kernels.h"
#include "reverie/nn/kernels_terms_body.h"
#include "reverie/nn/kernels_vectors_body.h"

namespace reverie::nn {
namespace {

// The part [begin, end) of the depth, for some columns: the place of the right side's rows.
struct Panel {
  const float* b;
  std::size_t stride;
  std::size_t begin;
  std::size_t end;
};

// The rows [row, row + kRows) of the columns [column, column + kVectors * kWidth), over a panel.
// The sums of earlier panels are in c: terms are added in the order of the depth, however it is
// divided.
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
      // Unrolled, else the sums would be in memory.
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector<kWidth> left = all<kWidth>(a[r * p.a_row]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v)
        sums[r][v] = multiply_add(left, right[v], sums[r][v]);
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

// All rows of a strip of columns, in tiles whose row counts differ by at most one: a last tile of
// one row would leave most registers idle.
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
void strip(const Product& p, Finish finish, std::size_t column, std::size_t begin) {
  strip<kVectors, kWidth, kRowsMax>(
      p, finish, column, {p.b + begin * p.b_stride + column, p.b_stride, begin, p.depth});
}

// The same for many rows: each panel of the right side is copied first, so that all tiles read it
// from the nearest cache. In place, rows of 1 KiB would map to only a few of the cache's sets.
template <std::size_t kVectors, std::size_t kWidth, std::size_t kRowsMax>
void packed_strip(const Product& p, Finish finish, std::size_t column, std::size_t begin) {
  static_assert(kVectors * kWidth == kPanelStride);
  alignas(64) float packed[kPanelDepth * kPanelStride];
  for (; begin < p.depth; begin += kPanelDepth) {
    const std::size_t end = begin + kPanelDepth < p.depth ? begin + kPanelDepth : p.depth;
    copy_panel(p, column, begin, end, packed);
    strip<kVectors, kWidth, kRowsMax>(p, finish, column, {packed, kPanelStride, begin, end});
  }
}

Finish finish_of(const Product& p) {
  if (p.activation == Activation::kNone) return Finish::kNone;
  const bool is_relu = p.activation == Activation::kRelu;
  if (p.outputs == nullptr) return is_relu ? Finish::kRelu : Finish::kTanh;
  return is_relu ? Finish::kReluDerivative : Finish::kTanhDerivative;
}

// Transposes four columns at a time, in each quarter of a vector's lanes.
template <std::size_t kWidth>
std::size_t transpose_blocks(const float* from, std::size_t from_stride, std::size_t rows,
                             std::size_t column, std::size_t columns, float* to,
                             std::size_t to_stride) {
  using Floats = Vector<kWidth>;
  for (; column + kWidth <= columns; column += kWidth) {
    for (std::size_t r = 0; r < rows; r += 4) {
      const float* const in = from + r * from_stride + column;
      const Floats row0 = load<kWidth>(in);
      const Floats row1 = load<kWidth>(in + from_stride);
      const Floats row2 = load<kWidth>(in + 2 * from_stride);
      const Floats row3 = load<kWidth>(in + 3 * from_stride);
      const Floats low01 = shuffle_quarters<0, 4, 1, 5>(row0, row1);
      const Floats low23 = shuffle_quarters<0, 4, 1, 5>(row2, row3);
      const Floats high01 = shuffle_quarters<2, 6, 3, 7>(row0, row1);
      const Floats high23 = shuffle_quarters<2, 6, 3, 7>(row2, row3);
      float* const out = to + column * to_stride + r;
      store_quarters(out, to_stride, shuffle_quarters<0, 1, 4, 5>(low01, low23));
      store_quarters(out + to_stride, to_stride, shuffle_quarters<2, 3, 6, 7>(low01, low23));
      store_quarters(out + 2 * to_stride, to_stride, shuffle_quarters<0, 1, 4, 5>(high01, high23));
      store_quarters(out + 3 * to_stride, to_stride, shuffle_quarters<2, 3, 6, 7>(high01, high23));
    }
  }
  return column;
}

void transpose(const float* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
               float* to, std::size_t to_stride) {
  const std::size_t column =
      transpose_blocks<kLanes>(from, from_stride, rows, 0, columns, to, to_stride);
  transpose_blocks<kPad>(from, from_stride, rows, column, columns, to, to_stride);
}

// Narrower vectors at the end of the columns, down to kPad.
template <std::size_t kWidth>
void narrow_strips(const Product& p, Finish finish, std::size_t column) {
  constexpr std::size_t kRowsMax = 12;
  for (; column + kWidth <= p.columns; column += kWidth) {
    strip<1, kWidth, kRowsMax>(p, finish, column, 0);
  }
  if constexpr (kWidth > kPad) narrow_strips<kWidth / 2>(p, finish, column);
}

// A panel of kPanelStride columns that is not multiplied term by term.
void dense_panel(const Product& p, Finish finish, std::size_t column, const Panel& panel) {
  for (std::size_t v = 0; v < kTermVectors; v += 2) {
    strip<2, kLanes, kTileRows>(p, finish, column + v * kLanes,
                                {panel.b + v * kLanes, panel.stride, panel.begin, panel.end});
  }
}

void add_terms(const Product& p, Finish finish, std::size_t row, std::size_t column, bool is_first,
               const float* panel, const Term* terms, std::size_t count) {
  switch (finish) {
    case Finish::kNone:
      return add_terms<Finish::kNone>(p, row, column, is_first, panel, terms, count);
    case Finish::kRelu:
      return add_terms<Finish::kRelu>(p, row, column, is_first, panel, terms, count);
    case Finish::kTanh:
      return add_terms<Finish::kTanh>(p, row, column, is_first, panel, terms, count);
    case Finish::kReluDerivative:
      return add_terms<Finish::kReluDerivative>(p, row, column, is_first, panel, terms, count);
    case Finish::kTanhDerivative:
      return add_terms<Finish::kTanhDerivative>(p, row, column, is_first, panel, terms, count);
  }
}

// The terms of so many rows are listed together: 80 KiB with AVX-512.
constexpr std::size_t kTermRows = 128;
struct TermLists {
  Term terms[kTermRows][kTermsMax];
  std::size_t counts[kTermRows];
};

// Lists the terms of `depth` columns of a from `begin` on. False, as soon as this is seen, if more
// than two thirds are not 0: a listed term costs a fifth more than one in a tile, besides the
// listing. `turned` is memory for kPanelStride rows.
bool list_terms(const Product& p, std::size_t begin, std::size_t depth, float* turned,
                TermLists& lists) {
  constexpr std::size_t kLook = 8;
  const float* const a = p.a + begin * p.a_depth;
  std::size_t sum = 0;
  const auto is_dense = [&](std::size_t rows) { return sum * 3 > rows * depth * 2; };
  const auto list = [&](std::size_t row, const float* from) {
    sum += lists.counts[row] = list_terms(from, depth, lists.terms[row]);
    return row + 1 != kLook || !is_dense(kLook);
  };
  if (p.a_depth == 1) {
    for (std::size_t row = 0; row < p.rows; ++row) {
      if (!list(row, a + row * p.a_row)) return false;
    }
    return !is_dense(p.rows);
  }
  for (std::size_t row = 0; row < p.rows; row += kPanelStride) {
    const std::size_t rows = row + kPanelStride < p.rows ? kPanelStride : p.rows - row;
    transpose(a + row, p.a_depth, depth, rows, turned, kPanelDepth);
    for (std::size_t r = 0; r < rows; ++r) {
      if (!list(row + r, turned + r * kPanelDepth)) return false;
    }
  }
  return !is_dense(p.rows);
}

// Computes the first columns, in whole panels, as deep as a is mostly zero; returns that depth. The
// rest of the depth, and other columns, are left to the caller. Requires rows <= kTermRows.
std::size_t multiply_terms(const Product& p, Finish finish) {
  TermLists lists;
  alignas(64) float panel[kPanelDepth * kPanelStride];
  std::size_t begin = 0;
  while (begin < p.depth) {
    const std::size_t end = begin + kPanelDepth < p.depth ? begin + kPanelDepth : p.depth;
    if (!list_terms(p, begin, end - begin, panel, lists)) break;
    const Finish last = end == p.depth ? finish : Finish::kNone;
    for (std::size_t column = 0; column + kPanelStride <= p.columns; column += kPanelStride) {
      if (!copy_panel(p, column, begin, end, panel)) {
        dense_panel(p, finish, column, {panel, kPanelStride, begin, end});
        continue;
      }
      for (std::size_t row = 0; row < p.rows; ++row) {
        add_terms(p, last, row, column, begin == 0, panel, lists.terms[row], lists.counts[row]);
      }
    }
    begin = end;
  }
  return begin;
}

// Whether searching for zeros may pay: large enough products, whose left side can be listed; wide
// ones if listing is slow.
bool may_have_terms(const Product& p) {
  const bool can_list = p.a_depth == 1 || (p.a_row == 1 && p.rows % 4 == 0 && p.depth % 4 == 0);
  return can_list && p.rows >= 16 && p.depth >= 32 &&
         p.columns >= (kListsFast ? 1 : 3) * kPanelStride;
}

// Computes the columns [column, columns), from `begin` of the depth on.
void multiply_dense(const Product& p, Finish finish, std::size_t column, std::size_t columns,
                    std::size_t begin) {
  // Each sum depends on the one before it: with few rows, more columns compensate for that.
  constexpr std::size_t kFewRows = 3;
  if (p.rows <= kFewRows) {
    for (; column + 4 * kLanes <= columns; column += 4 * kLanes) {
      strip<4, kLanes, kFewRows>(p, finish, column, begin);
    }
  }
  if constexpr (kPackedRows > 0) {
    // With fewer rows the copies would not pay.
    constexpr std::size_t kManyRows = 96;
    if (p.rows >= kManyRows) {
      for (; column + 4 * kLanes <= columns; column += 4 * kLanes) {
        packed_strip<4, kLanes, kPackedRows>(p, finish, column, begin);
      }
    }
  }
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes) {
    strip<2, kLanes, kTileRows>(p, finish, column, begin);
  }
  if (column < columns) narrow_strips<kLanes>(p, finish, column);
}

void multiply(const Product& p) {
  const Finish finish = finish_of(p);
  if (!may_have_terms(p)) return multiply_dense(p, finish, 0, p.columns, 0);
  const std::size_t whole = p.columns / kPanelStride * kPanelStride;
  Product part = p;
  for (std::size_t row = 0; row < p.rows; row += part.rows) {
    part.rows = row + kTermRows < p.rows ? kTermRows : p.rows - row;
    part.a = p.a + row * p.a_row;
    part.c = p.c + row * p.c_stride;
    if (p.outputs != nullptr) part.outputs = p.outputs + row * p.c_stride;
    const std::size_t begin = multiply_terms(part, finish);
    if (begin < p.depth) multiply_dense(part, finish, 0, whole, begin);
    if (whole < p.columns) multiply_dense(part, finish, whole, p.columns, 0);
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

// By value, since in memory the stores below could change its numbers.
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
