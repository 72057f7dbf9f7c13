// Values of columns that own their bytes, for tests.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/tensor/tensor.h"

namespace reverie {

struct Value {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::byte> bytes;

  TensorView view() const { return {dtype, shape, bytes}; }
};

template <typename T>
Value value_of(DType dtype, Shape shape, const std::vector<T>& elements) {
  Value value{dtype, std::move(shape), std::vector<std::byte>(elements.size() * sizeof(T))};
  if (!elements.empty()) std::memcpy(value.bytes.data(), elements.data(), value.bytes.size());
  return value;
}

inline Value f32(float x) {
  return value_of<float>(DType::kFloat32, {}, {x});
}
inline Value f32s(const std::vector<float>& xs) {
  return value_of(DType::kFloat32, {static_cast<std::int64_t>(xs.size())}, xs);
}
inline Value i64(std::int64_t x) {
  return value_of<std::int64_t>(DType::kInt64, {}, {x});
}

// Elements in the form of kBytes and kString: each follows its length.
inline Value strings(Shape shape, const std::vector<std::string>& elements) {
  Value value{DType::kString, std::move(shape), {}};
  for (const std::string& element : elements) {
    const auto size = static_cast<std::uint32_t>(element.size());
    const std::size_t at = value.bytes.size();
    value.bytes.resize(at + sizeof(size) + size);
    std::memcpy(value.bytes.data() + at, &size, sizeof(size));
    std::memcpy(value.bytes.data() + at + sizeof(size), element.data(), size);
  }
  return value;
}
inline Value text(const std::string& s) {
  return strings({}, {s});
}

inline std::vector<std::byte> bytes_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace reverie
