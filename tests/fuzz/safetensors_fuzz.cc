// Reads any bytes as a safetensors file: they are refused, or give tensors that fill the bytes,
// survive encoding and decoding, and make a network or are refused.
//
// Input: a file.
#include "reverie/nn/safetensors.h"

#include <cstdint>
#include <cstdlib>

#include "reverie/nn/mlp_file.h"

namespace {

using namespace reverie::nn;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto decoded = decode_safetensors({reinterpret_cast<const std::byte*>(data), size});
  if (!decoded.ok()) return 0;
  std::size_t bytes = 0;
  for (const NamedTensor& tensor : decoded->tensors) bytes += tensor.values.size() * sizeof(float);
  require(bytes <= size);
  const auto again = decode_safetensors(encode_safetensors(*decoded));
  require(again.ok() && again->tensors.size() == decoded->tensors.size());
  require(again->metadata == decoded->metadata);
  for (const NamedTensor& tensor : decoded->tensors) {
    const NamedTensor* same = again->find(tensor.name);
    require(same != nullptr && same->shape == tensor.shape);
  }
  const auto saved = mlp_from_tensors(*decoded, Activation::kRelu, Activation::kNone);
  require(!saved.ok() || saved->parameters.float_count() == saved->mlp.float_count());
  return 0;
}
