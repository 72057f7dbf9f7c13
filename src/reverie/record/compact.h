// A chunk's columns encoded: to leave the process, or to cost less memory in it.
#pragma once

#include <limits>
#include <span>

#include "reverie/base/status.h"
#include "reverie/record/chunk.h"

namespace reverie {

// How a column is to be encoded: raw instead, if that would take more than `at_most` of its raw
// bytes.
struct ColumnTry {
  CodecId codec = CodecId::kRaw;
  double at_most = std::numeric_limits<double>::infinity();
};

// The published rows of `chunk`, which must be raw meanwhile. Requires a try for each column.
Result<Chunk::EncodedColumns> encode_columns(const Chunk& chunk, std::span<const ColumnTry> tries,
                                             Allocator& allocator);

// A sealed copy of the published rows of `chunk`, a raw one, each column encoded with `codec`: as
// the chunk leaves the process, or is kept without the rows it had room for.
Result<Ref<Chunk>> compact(const Chunk& chunk, CodecId codec, Allocator& allocator);

}  // namespace reverie
