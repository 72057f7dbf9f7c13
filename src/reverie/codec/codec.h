// How a column's bytes are encoded.
//
// Columns travel as opaque bytes with the id of their codec, kept as their writer sent them. An
// embedded writer's columns stay raw, so that sampling is one gather of rows.
#pragma once

#include <cstdint>

namespace reverie {

// Files and wires carry these numbers.
enum class CodecId : std::uint8_t {
  kRaw = 0,
};

}  // namespace reverie
