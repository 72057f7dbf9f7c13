// Rows that are there already as one chunk: arrays, and columns whose rows are in files.
//
//     columns   obs: file "shard-3.bin", offset 0 ...      action: an array of 1000 rows
//     chunk     [ row 0 ................................................ row 999 ]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "reverie/codec/external_column.h"
#include "reverie/record/chunk.h"
#include "reverie/record/trajectory.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

struct RowsColumn {
  std::string_view name;  // path in the item's nest
  // Its shape is [rows, ...]; it has no bytes where `external` says where they are.
  TensorView value;
  std::optional<ExternalRange> external = {};
};

// A chunk, and the layout of items over one range of its rows.
struct RowsChunk {
  Ref<Chunk> chunk;
  Ref<const Layout> layout;
};

// INVALID_ARGUMENT, naming the column, for columns that differ in their rows or vary in size, and
// names of files that cannot be. With external columns all rows have kUnfoldedBytesMax bytes at
// most (codec/column_codec.h).
Result<RowsChunk> rows_chunk(std::span<const RowsColumn> columns, std::string_view structure,
                             ChunkOrigin origin, Allocator& allocator);

}  // namespace reverie
