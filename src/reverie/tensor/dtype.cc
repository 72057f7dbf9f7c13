// Tested in tests/fuzz/dtype_name_fuzz.cc and tests/conformance/codec_suite.h.
#include "reverie/tensor/dtype.h"

#include <array>

namespace reverie {
namespace {

struct Entry {
  std::string_view name;
  std::size_t size_bytes;
};

// Indexed by the enumerator.
constexpr std::array<Entry, 23> kEntries = {{
    {"invalid", 0},
    {"bool", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"float16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex64", 8},
    {"complex128", 16},
    {"bfloat16", 2},
    {"float8_e4m3fn", 1},
    {"float8_e5m2", 1},
    {"float8_e4m3b11fnuz", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2fnuz", 1},
    {"bytes", 0},
    {"str", 0},
}};

}  // namespace

std::size_t dtype_size_bytes(DType dtype) {
  return kEntries[static_cast<std::size_t>(dtype)].size_bytes;
}

std::string_view dtype_name(DType dtype) {
  return kEntries[static_cast<std::size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 1; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace reverie
