// Tested in tests/conformance/codec_suite.h.
#include "reverie/tensor/tensor.h"

#include <cstdint>
#include <cstring>

namespace reverie {

bool are_sized_elements(std::span<const std::byte> bytes, std::size_t element_count) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < element_count; ++i) {
    std::uint32_t size_bytes = 0;
    if (bytes.size() - at < sizeof(size_bytes)) return false;
    std::memcpy(&size_bytes, bytes.data() + at, sizeof(size_bytes));
    at += sizeof(size_bytes);
    if (bytes.size() - at < size_bytes) return false;
    at += size_bytes;
  }
  return at == bytes.size();
}

std::string spec_text(const TensorSpec& spec) {
  std::string text = spec.name.empty() ? "" : spec.name + ": ";
  text += dtype_name(spec.dtype);
  text += ' ';
  text += shape_text(spec.shape);
  return text;
}

}  // namespace reverie
