// The bytes of a column that was compressed: a filter, then lz4 or zstd.
//
//     [ filter, and whether the block is stored: 1 byte ][ plain size: 4 bytes ][ block ]
//
//     kNone     the raw form of the column (column_codec.h)
//     kRowDiff  a record per row (row_diff.h)
//     kPlanes   planes of the differences from the row before (byte_planes.h)
//
// Numbers are little-endian. A block that would not shrink, or that would shrink so much that its
// reader would refuse it (kExpansionMax), is stored as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/byte_planes.h"
#include "reverie/codec/codec.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// Readers refuse rows that claim more than this many times their compressed size, before they
// allocate memory.
inline constexpr std::size_t kExpansionMax = 4096;

enum class Filter : std::uint8_t { kNone = 0, kRowDiff = 1, kPlanes = 2 };

struct CompressedColumn {
  Filter filter = Filter::kNone;
  bool is_stored = false;
  std::size_t plain_bytes = 0;
  std::span<const std::byte> block;
};

// Appends rows of fixed size, `row_count` of `row_bytes` back to back. RESOURCE_EXHAUSTED for more
// than kBlockBytesMax / 2 bytes, about 1 GB (block_codec.h).
Status compress_rows(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                     std::size_t row_bytes, std::span<const std::byte> rows,
                     std::vector<std::byte>& out);
// Appends the raw form of rows of varying size. RESOURCE_EXHAUSTED for more than kBlockBytesMax.
Status compress_raw(CodecId codec, const TensorSpec& spec, std::span<const std::byte> raw,
                    std::vector<std::byte>& out);

// Reads the header. DATA_LOSS if it is malformed, or `bytes` are too few for the size it claims.
Result<CompressedColumn> parse_compressed(CodecId codec, const TensorSpec& spec,
                                          std::span<const std::byte> bytes);
// Fills `plain`. Requires plain.size() == column.plain_bytes.
Status decompress(CodecId codec, const TensorSpec& spec, const CompressedColumn& column,
                  std::span<std::byte> plain);

// The numbers of such rows, as planes take them; element_bytes is 0 where planes do not apply.
PlaneShape plane_shape(DType dtype, std::size_t row_count, std::size_t row_bytes);

}  // namespace reverie
