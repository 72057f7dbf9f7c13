// All parameters of a network as one flat array of float32, and the matrices in it.
//
//     0                        64-byte aligned
//     | weight 0 | bias 0 | weight 1 | bias 1 | ...
//       [in, out]  [out]      each row padded with zeros to a multiple of 4 floats
//
// So a copy, a Polyak average, an optimiser's step, the sum of two gradients and a message to
// another process are one pass over one array. Padding is 0 and stays 0: its gradient is 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "reverie/base/check.h"

namespace reverie::nn {

// Rows of floats that begin every `stride` floats; borrowed.
template <typename Float>
struct MatrixOf {
  Float* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t stride = 0;

  Float* row(std::size_t index) const { return data + index * stride; }
  Float& operator()(std::size_t r, std::size_t c) const { return data[r * stride + c]; }
  operator MatrixOf<const Float>() const {  // NOLINT(google-explicit-constructor)
    return {data, rows, columns, stride};
  }
};
using Matrix = MatrixOf<float>;
using ConstMatrix = MatrixOf<const float>;

// Owns float_count() floats, zero at first and aligned to a cache line. Copies are explicit.
class Parameters {
 public:
  Parameters() = default;
  explicit Parameters(std::size_t float_count);
  Parameters(Parameters&&) noexcept = default;
  Parameters& operator=(Parameters&&) noexcept = default;

  Parameters copy() const;
  // Requires the same float_count().
  void assign(const Parameters& other);
  void fill(float value);

  float* data() { return floats_.get(); }
  const float* data() const { return floats_.get(); }
  std::size_t float_count() const { return float_count_; }
  std::span<float> span() { return {floats_.get(), float_count_}; }
  std::span<const float> span() const { return {floats_.get(), float_count_}; }

 private:
  struct Free {
    void operator()(float* floats) const;
  };
  std::unique_ptr<float[], Free> floats_;
  std::size_t float_count_ = 0;
};

// One of several equal parts of an array, in whole cache lines: for threads that share its work.
struct Part {
  std::size_t index = 0;
  std::size_t count = 1;

  // [first, second) of an array of so many floats.
  std::pair<std::size_t, std::size_t> of(std::size_t float_count) const {
    constexpr std::size_t kLine = 16;
    const std::size_t lines = (float_count + kLine - 1) / kLine;
    const auto end = [&](std::size_t i) {
      return std::min(lines * i / count * kLine, float_count);
    };
    return {end(index), end(index + 1)};
  }
};

// target += rate * (source - target): the target network follows the learned one (Lillicrap et al.
// 2016, section 3). Requires vectors of one size, and 0 <= rate <= 1.
void polyak_average(const Parameters& source, float rate, Parameters& target, Part part = {});

}  // namespace reverie::nn
