// RowReader: reads rows of chunks of any kind, for a gather.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "reverie/codec/column_codec.h"
#include "reverie/record/chunk.h"

namespace reverie {

// Decodes each column of an encoded chunk once, and keeps raw rows from being released. Valid as
// long as the chunks that it read. Not thread-safe.
class RowReader {
 public:
  // Row `row` of `column`; DATA_LOSS if the chunk's bytes are damaged or it has no such row.
  Result<RowSpan> row(const Chunk& chunk, std::size_t column, std::uint32_t row);

 private:
  std::map<const Chunk*, RawRows> raw_;  // of chunks that may be encoded meanwhile
  std::map<std::pair<const Chunk*, std::size_t>, ColumnRows> decoded_;
};

}  // namespace reverie
