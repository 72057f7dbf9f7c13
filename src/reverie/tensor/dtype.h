// Element types. The numbers are our own and never change: files and messages contain them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reverie {

enum class DType : std::uint8_t {
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kUInt16 = 7,
  kUInt32 = 8,
  kUInt64 = 9,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
  kBFloat16 = 15,
  kFloat8E4M3FN = 16,
  kFloat8E5M2 = 17,
  kFloat8E4M3B11FNUZ = 18,
  kFloat8E4M3FNUZ = 19,
  kFloat8E5M2FNUZ = 20,
  kBytes = 21,   // each element any number of bytes
  kString = 22,  // the same, UTF-8
};

// Bytes of one element; 0 for kBytes and kString, whose elements vary in length.
std::size_t dtype_size_bytes(DType dtype);

// NumPy's name (ml_dtypes' for the small floats): "float32", "bfloat16", "bytes", "str".
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

inline bool has_variable_size(DType dtype) {
  return dtype >= DType::kBytes;
}
// Whether elements of one type may be read as the other. bytes and str may: they are stored alike.
inline bool reads_as(DType stored, DType wanted) {
  return stored == wanted || (has_variable_size(stored) && has_variable_size(wanted));
}

}  // namespace reverie
