// Helpers of fuzz targets that take values out of the input.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "reverie/tensor/tensor.h"

namespace reverie::fuzz {

// Takes values off the front of the input; gives zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  template <typename T>
  T take() {
    T value{};
    const std::size_t n = size_ < sizeof(T) ? size_ : sizeof(T);
    if (n > 0) std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  // dtype, rank (mod 4), and each extent as a signed number of two bytes: small extents, negative
  // ones, and products that are near the limits.
  TensorSpec take_spec() {
    TensorSpec spec{"column", static_cast<DType>(take<std::uint8_t>()), {}};
    const std::size_t rank = take<std::uint8_t>() % 4;
    for (std::size_t i = 0; i < rank; ++i) spec.shape.push_back(take<std::int16_t>());
    return spec;
  }
  std::span<const std::byte> rest() const {
    return {reinterpret_cast<const std::byte*>(data_), size_};
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace reverie::fuzz
