// Extents of a tensor, outermost first. In a specification -1 stands for "any".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace reverie {

using Shape = std::vector<std::int64_t>;

// The most axes of a row that any message or file may have: TensorFlow's bound. NumPy's is lower.
inline constexpr std::size_t kAxesMax = 254;

// The number of elements; 1 for a scalar. Requires every extent >= 0.
std::int64_t element_count(std::span<const std::int64_t> shape);

// The same for an untrusted shape: none for a negative extent, and for more than 2^56 elements, so
// that a product with an element's size cannot overflow.
std::optional<std::size_t> checked_element_count(std::span<const std::int64_t> shape);

// "(4, ?, 84)", as Python writes it; "()" for a scalar and "(3,)" for a vector.
std::string shape_text(std::span<const std::int64_t> shape);

// Equal rank, and each extent equal or -1 in `pattern`.
bool shape_matches(std::span<const std::int64_t> pattern, std::span<const std::int64_t> shape);

}  // namespace reverie
