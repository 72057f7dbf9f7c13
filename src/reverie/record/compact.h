// Encodes a chunk's columns: to send them, or to save memory.
#pragma once

#include <limits>
#include <span>

#include "reverie/base/status.h"
#include "reverie/record/chunk.h"

namespace reverie {

// How to encode a column; it stays raw if the result has more than `at_most` times its raw size in
// bytes.
struct ColumnTry {
  CodecId codec = CodecId::kRaw;
  double at_most = std::numeric_limits<double>::infinity();
};

// Encodes the published rows of `chunk`, which must stay raw. Requires one try per column.
// RESOURCE_EXHAUSTED if there is no memory for it, also for the encoders.
Result<Chunk::EncodedColumns> encode_columns(const Chunk& chunk, std::span<const ColumnTry> tries,
                                             Allocator& allocator);

// A sealed copy of the published rows of `chunk`, each column encoded with `codec`: to send the
// chunk, or to keep it without unused capacity. Requires a raw chunk.
Result<Ref<Chunk>> compact(const Chunk& chunk, CodecId codec, Allocator& allocator);

}  // namespace reverie
