#include "reverie/tensor/shape.h"

#include <algorithm>

namespace reverie {
namespace {

constexpr std::int64_t kElementCountMax = std::int64_t{1} << 56;

}  // namespace

std::int64_t element_count(std::span<const std::int64_t> shape) {
  // If one extent is 0, the others are not multiplied, however large they are.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::optional<std::size_t> checked_element_count(std::span<const std::int64_t> shape) {
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) return {};
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent > kElementCountMax / count) return {};
    count *= extent;
  }
  return static_cast<std::size_t>(count);
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
