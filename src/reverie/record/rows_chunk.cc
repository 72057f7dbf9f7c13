// Tested in tests/integration/insert_rows_test.cc.
#include "reverie/record/rows_chunk.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reverie/codec/column_codec.h"

namespace reverie {
namespace {

constexpr std::int64_t kRowsMax = std::numeric_limits<std::int32_t>::max();

Result<std::uint32_t> checked_rows(std::span<const RowsColumn> columns) {
  if (columns.empty()) return invalid_argument("the rows have no columns; give at least one array");
  std::int64_t rows = 0;
  for (const RowsColumn& column : columns) {
    if (has_variable_size(column.value.dtype)) {
      return invalid_argument("column '{}' holds {}; only columns of fixed size go in as rows",
                              column.name, dtype_name(column.value.dtype));
    }
    if (column.value.shape.empty()) {
      return invalid_argument("column '{}' has no axis of rows; its shape must be [rows, ...]",
                              column.name);
    }
    const std::int64_t here = column.value.shape[0];
    if (&column == columns.data()) rows = here;
    if (here != rows) {
      return invalid_argument("column '{}' has {} rows, column '{}' has {}; all must have as many",
                              columns[0].name, rows, column.name, here);
    }
    if (column.external) {
      const Status status = check_external(*column.external);
      if (!status.ok()) return status.with_context(format("column '{}'", column.name));
    }
  }
  if (rows < 1 || rows > kRowsMax) {
    return invalid_argument("there are {} rows; there must be between 1 and {}", rows, kRowsMax);
  }
  return static_cast<std::uint32_t>(rows);
}

// All columns: the given rows, or their place in files.
Result<Ref<Chunk>> external_chunk(const Ref<const ChunkSchema>& schema, ChunkOrigin origin,
                                  std::uint32_t rows, std::span<const RowsColumn> columns,
                                  Allocator& allocator) {
  std::vector<std::byte> bytes;
  std::vector<Chunk::EncodedColumn> encoded;
  for (const RowsColumn& column : columns) {
    const std::size_t offset = bytes.size();
    if (column.external) {
      append_external(*column.external, bytes);
    } else {
      bytes.insert(bytes.end(), column.value.bytes.begin(), column.value.bytes.end());
    }
    encoded.push_back(
        {column.external ? CodecId::kExternal : CodecId::kRaw, offset, bytes.size() - offset});
  }
  const std::size_t plain_bytes = rows * schema->step_bytes();
  if (!may_unfold_to(plain_bytes, bytes.size())) {
    return invalid_argument(
        "{} rows of {} bytes are {}; with external columns the bound is {}; insert them as several",
        rows, schema->step_bytes(), plain_bytes, kUnfoldedBytesMax);
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, allocator.allocate(bytes.size()));
  std::ranges::copy(bytes, storage.data());
  return Chunk::encoded(schema, origin, rows, std::move(storage), std::move(encoded));
}

Result<Ref<Chunk>> raw_chunk(const Ref<const ChunkSchema>& schema, ChunkOrigin origin,
                             std::uint32_t rows, std::span<const RowsColumn> columns,
                             Allocator& allocator) {
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, allocator.allocate(rows * schema->step_bytes()));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::ranges::copy(columns[c].value.bytes, storage.data() + rows * schema->bytes_before(c));
  }
  return Chunk::of_rows(schema, origin, rows, std::move(storage));
}

}  // namespace

Result<RowsChunk> rows_chunk(std::span<const RowsColumn> columns, std::string_view structure,
                             ChunkOrigin origin, Allocator& allocator) {
  REVERIE_ASSIGN_OR_RETURN(const std::uint32_t rows, checked_rows(columns));
  std::vector<TensorSpec> specs;
  std::vector<LayoutColumn> places;
  bool is_external = false;
  for (const RowsColumn& column : columns) {
    specs.push_back({std::string(column.name), column.value.dtype,
                     Shape(column.value.shape.begin() + 1, column.value.shape.end())});
    const std::optional<std::size_t> elements = checked_element_count(specs.back().shape);
    if (!elements || *elements > kUnfoldedBytesMax) {
      return invalid_argument("column '{}' has rows of shape {}, which no chunk can hold",
                              column.name, shape_text(specs.back().shape));
    }
    places.push_back({specs.back(), static_cast<std::uint16_t>(places.size()), 0, 1});
    is_external = is_external || column.external.has_value();
  }
  const auto schema = Ref<const ChunkSchema>(make_ref<ChunkSchema>(std::move(specs)));
  RowsChunk made;
  made.layout = Ref<const Layout>(make_ref<Layout>(std::move(places), std::string(structure)));
  REVERIE_ASSIGN_OR_RETURN(made.chunk,
                           is_external ? external_chunk(schema, origin, rows, columns, allocator)
                                       : raw_chunk(schema, origin, rows, columns, allocator));
  return made;
}

}  // namespace reverie
