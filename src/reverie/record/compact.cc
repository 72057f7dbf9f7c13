#include "reverie/record/compact.h"

#include "reverie/codec/column_codec.h"

namespace reverie {

Result<Ref<Chunk>> compact(const Chunk& chunk, CodecId codec, Allocator& allocator) {
  REVERIE_CHECK(chunk.is_raw());
  const ChunkSchema& schema = chunk.schema();
  const std::uint32_t row_count = chunk.rows();
  std::vector<std::vector<RowSpan>> rows(schema.column_count());
  std::vector<Chunk::EncodedColumn> columns(schema.column_count());
  std::size_t size_bytes = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::uint32_t r = 0; r < row_count; ++r) rows[i].push_back(chunk.row_bytes(i, r));
    REVERIE_ASSIGN_OR_RETURN(const std::size_t column_bytes,
                             encoded_size_bytes(codec, schema.column(i), rows[i]));
    columns[i] = {codec, size_bytes, column_bytes};
    size_bytes += column_bytes;
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, allocator.allocate(size_bytes));
  const std::span<std::byte> out(storage.data(), storage.size_bytes());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    encode_column(codec, schema.column(i), rows[i],
                  out.subspan(columns[i].offset, columns[i].size_bytes));
  }
  return Chunk::encoded(chunk.shared_schema(), {chunk.key(), chunk.episode(), chunk.first_step()},
                        row_count, std::move(storage), std::move(columns));
}

}  // namespace reverie
