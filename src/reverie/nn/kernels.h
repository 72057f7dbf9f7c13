// The arithmetic under networks: products of small matrices, and passes over flat parameters.
//
// Each kernel is written once (kernels_body.h), for vectors of a fixed number of lanes, and
// compiled for each instruction set in a separate source; kernels() picks the widest that the
// processor supports, when it is first called. So the library itself requires only the baseline.
//
// All matrices are row-major float32 whose rows begin every `stride` floats. Columns are padded
// with zeros to a multiple of kPad.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace reverie::nn {

// The lanes of the narrowest vector.
inline constexpr std::size_t kPad = 4;
constexpr std::size_t padded(std::size_t count) {
  return (count + kPad - 1) / kPad * kPad;
}

enum class Activation : std::uint8_t { kNone, kRelu, kTanh };

// c = finish(a b + bias), with a of [rows, depth], b of [depth, columns] and c of [rows, columns].
//
// a's element (r, k) is a[r * a_row + k * a_depth], so that a transposed matrix needs no copy.
// REQUIRES: rows, columns, depth >= 1; columns a multiple of kPad; c overlaps nothing else.
struct Product {
  const float* a = nullptr;
  std::size_t a_row = 0;
  std::size_t a_depth = 1;
  const float* b = nullptr;
  std::size_t b_stride = 0;
  float* c = nullptr;
  std::size_t c_stride = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t depth = 0;
  const float* bias = nullptr;  // [columns]; null for 0
  Activation activation = Activation::kNone;
  // Null: the activation is applied. Else [rows, columns] with c's stride, the activation's outputs
  // in the forward pass: the product is multiplied by the activation's derivative there.
  const float* outputs = nullptr;
};

// Adam's step on each parameter; see adam.h. The bias corrections are folded in.
struct AdamStep {
  float* parameters = nullptr;
  float* mean = nullptr;
  float* square = nullptr;
  const float* gradient = nullptr;
  std::size_t count = 0;
  float gradient_scale = 1;  // what the gradient is multiplied by first
  float mean_decay = 0;
  float square_decay = 0;
  float mean_share = 0;  // 1 - mean_decay, rounded once
  float square_share = 0;
  float step_size = 0;
  float epsilon = 0;
};

struct Kernels {
  const char* name;
  void (*multiply)(const Product& product);
  // to[c, r] = from[r, c]. REQUIRES: rows and columns are multiples of 4.
  void (*transpose)(const float* from, std::size_t from_stride, std::size_t rows,
                    std::size_t columns, float* to, std::size_t to_stride);
  // sums[c] = the sum of column c. REQUIRES: columns a multiple of kPad.
  void (*sum_rows)(const float* from, std::size_t stride, std::size_t rows, std::size_t columns,
                   float* sums);
  void (*adam)(const AdamStep& step);
  // target += rate * (source - target)
  void (*approach)(float* target, const float* source, std::size_t count, float rate);
  // The sum of the squares, in double.
  double (*sum_of_squares)(const float* values, std::size_t count);
};

const Kernels& kernels();

// All kernels that this processor can run: the portable ones first, those of kernels() last.
std::span<const Kernels* const> runnable_kernels();

}  // namespace reverie::nn
