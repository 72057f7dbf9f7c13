// Named float32 tensors as bytes, in the format of the safetensors package.
//
//     | N, 64 bits little-endian | N bytes of JSON | the tensors' bytes, one after the other |
//                                  {"__metadata__": {"key": "text"},
//                                   "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
//                                   24]}}
//
// Decoded bytes need not be trusted: every length is checked before memory is allocated, the
// tensors must fill the bytes without gap or overlap, and nothing in the format can be executed.
//
// Source: the format's description in github.com/huggingface/safetensors, version 0.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"

namespace reverie::nn {

struct NamedTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;  // row-major
};

struct SafeTensors {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;

  // Null if there is none with that name.
  const NamedTensor* find(std::string_view name) const;
};

// Requires distinct names other than "__metadata__", UTF-8 text, and values that match the
// shapes.
std::vector<std::byte> encode_safetensors(const SafeTensors& tensors);

// DATA_LOSS, naming the place, for damaged or truncated bytes; UNIMPLEMENTED for an element type
// other than F32. Tensors come in the order of their bytes.
Result<SafeTensors> decode_safetensors(std::span<const std::byte> bytes);

}  // namespace reverie::nn
