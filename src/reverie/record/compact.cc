#include "reverie/record/compact.h"

#include <cstring>
#include <new>

#include "reverie/codec/column_codec.h"
#include "reverie/record/readable_rows.h"

namespace reverie {
namespace {

// Throws std::bad_alloc where there is no memory for the encoders.
Result<Chunk::EncodedColumns> try_encode(const Chunk& chunk, std::span<const ColumnTry> tries,
                                         Allocator& allocator) {
  const RawRows raw(chunk);
  const ChunkSchema& schema = chunk.schema();
  REVERIE_CHECK(raw && tries.size() == schema.column_count());
  const std::uint32_t row_count = chunk.rows();
  Chunk::EncodedColumns encoded;
  encoded.columns.resize(schema.column_count());
  std::vector<RowSpan> rows(row_count);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < tries.size(); ++i) {
    for (std::uint32_t r = 0; r < row_count; ++r) rows[r] = chunk.row_bytes(i, r);
    std::size_t raw_bytes = 0;
    for (const RowSpan row : rows) raw_bytes += row.size();
    const std::size_t begin = bytes.size();
    CodecId codec = tries[i].codec;
    REVERIE_RETURN_IF_ERROR(encode_column(codec, schema.column(i), rows, bytes));
    if (codec != CodecId::kRaw && static_cast<double>(bytes.size() - begin) >
                                      tries[i].at_most * static_cast<double>(raw_bytes)) {
      bytes.resize(begin);
      codec = CodecId::kRaw;
      REVERIE_RETURN_IF_ERROR(encode_column(codec, schema.column(i), rows, bytes));
    }
    encoded.columns[i] = {codec, begin, bytes.size() - begin};
  }
  REVERIE_RETURN_IF_ERROR(check_readable(chunk, 0, row_count));
  REVERIE_ASSIGN_OR_RETURN(encoded.storage, allocator.allocate(bytes.size()));
  if (!bytes.empty()) std::memcpy(encoded.storage.data(), bytes.data(), bytes.size());
  return encoded;
}

}  // namespace

Result<Chunk::EncodedColumns> encode_columns(const Chunk& chunk, std::span<const ColumnTry> tries,
                                             Allocator& allocator) {
  try {
    return try_encode(chunk, tries, allocator);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory to encode a chunk of {} bytes", chunk.raw_bytes());
  }
}

Result<Ref<Chunk>> compact(const Chunk& chunk, CodecId codec, Allocator& allocator) {
  const std::vector<ColumnTry> tries(chunk.schema().column_count(), {.codec = codec});
  REVERIE_ASSIGN_OR_RETURN(Chunk::EncodedColumns encoded, encode_columns(chunk, tries, allocator));
  return Chunk::encoded(chunk.shared_schema(), {chunk.key(), chunk.episode(), chunk.first_step()},
                        chunk.rows(), std::move(encoded.storage), std::move(encoded.columns));
}

}  // namespace reverie
