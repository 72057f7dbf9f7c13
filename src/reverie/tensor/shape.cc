#include "reverie/tensor/shape.h"

namespace reverie {

std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] < 0 ? "?" : std::to_string(shape[i]);
  }
  text += shape.size() == 1 ? ",)" : ")";
  return text;
}

bool shape_matches(std::span<const std::int64_t> pattern, std::span<const std::int64_t> shape) {
  if (pattern.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (pattern[i] >= 0 && pattern[i] != shape[i]) return false;
  }
  return true;
}

}  // namespace reverie
