// Tested in chunk_data_test.cc.
#include "reverie/reverb_wire/tensor_type.h"

#include <array>
#include <utility>

namespace reverie::wire {
namespace {

constexpr std::array<std::pair<DType, int>, 19> kNumbers = {{
    {DType::kFloat32, 1},       {DType::kFloat64, 2},     {DType::kInt32, 3},
    {DType::kUInt8, 4},         {DType::kInt16, 5},       {DType::kInt8, 6},
    {DType::kBytes, 7},         {DType::kString, 7},      {DType::kComplex64, 8},
    {DType::kInt64, 9},         {DType::kBool, 10},       {DType::kBFloat16, 14},
    {DType::kUInt16, 17},       {DType::kComplex128, 18}, {DType::kFloat16, 19},
    {DType::kUInt32, 22},       {DType::kUInt64, 23},     {DType::kFloat8E5M2, 24},
    {DType::kFloat8E4M3FN, 25},
}};

Status read_extent(Bytes message, Shape& shape) {
  std::int64_t size = 0;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == varint_field(1)) {
      size = reader.get_int64();
    } else {
      reader.skip();
    }
    return Status();
  }));
  if (size < -1) return invalid_argument("a shape has the extent {}; it must be >= -1", size);
  if (shape.size() == kAxesMax) {
    return invalid_argument("a shape has more than {} axes", kAxesMax);
  }
  shape.push_back(size);
  return {};
}

}  // namespace

std::optional<DType> dtype_from_wire(std::int64_t number) {
  for (const auto& [dtype, n] : kNumbers) {
    if (n == number) return dtype;
  }
  return std::nullopt;
}

std::optional<std::int64_t> dtype_to_wire(DType dtype) {
  for (const auto& [d, number] : kNumbers) {
    if (d == dtype) return number;
  }
  return std::nullopt;
}

Status read_shape(Bytes message, Shape& shape) {
  shape.clear();
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) -> Status {
    if (tag == bytes_field(2)) return read_extent(get_bytes(reader), shape);
    if (tag == varint_field(3) && get_flag(reader)) {
      return invalid_argument("a shape of unknown rank cannot be kept");
    }
    if (tag != varint_field(3)) reader.skip();
    return {};
  });
}

std::string write_shape(std::span<const std::int64_t> shape) {
  std::string out;
  for (const std::int64_t extent : shape) {
    std::string dimension;
    put_int(dimension, 1, extent);
    put_message(out, 2, dimension);
  }
  return out;
}

}  // namespace reverie::wire
