// Numbers of several bytes as planes: all lowest bytes, then all second bytes, and so on.
//
//     rows    1000 7 | 1001 7 | 1003 7          differences to the row before: 1000 7 | 1 0 | 2 0
//     planes  [ 232 7 1 0 2 0 ][ 3 0 0 0 0 0 ][ 0 ... ][ 0 ... ]
//
// Neighbouring rows differ little, so the high planes are nearly all zeros, which a general
// compressor exploits. Integers are subtracted, modulo their size; floating point numbers are
// combined by exclusive or, which leaves equal signs, exponents and high digits as zeros.
#pragma once

#include <cstddef>
#include <span>

namespace reverie {

// `rows` rows of `row_elements` numbers, each of 2, 4 or 8 bytes.
struct PlaneShape {
  std::size_t rows = 0;
  std::size_t row_elements = 0;
  std::size_t element_bytes = 0;
  bool is_float = false;

  std::size_t size_bytes() const { return rows * row_elements * element_bytes; }
};

// Both read shape.size_bytes() bytes at `from` and write as many at `to`, which must not overlap.
void to_planes(const PlaneShape& shape, const std::byte* from, std::byte* to);
void from_planes(const PlaneShape& shape, const std::byte* from, std::byte* to);

}  // namespace reverie
