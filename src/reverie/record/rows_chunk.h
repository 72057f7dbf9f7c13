// Makes one chunk of rows that exist already: arrays, and columns whose rows are in files.
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
  // Its shape is [rows, ...]; it has no bytes if `external` is set.
  TensorView value;
  std::optional<ExternalRange> external = {};
};

// A chunk, and the layout of items that refer to one range of its rows.
struct RowsChunk {
  Ref<Chunk> chunk;
  Ref<const Layout> layout;
};

// INVALID_ARGUMENT, naming the column, if columns differ in their number of rows or vary in size,
// and for impossible file names. Also if there are external columns and all rows together have more
// bytes than may_unfold_to() permits (codec/column_codec.h).
Result<RowsChunk> rows_chunk(std::span<const RowsColumn> columns, std::string_view structure,
                             ChunkOrigin origin, Allocator& allocator);

}  // namespace reverie
