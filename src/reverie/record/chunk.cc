#include "reverie/record/chunk.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace reverie {
namespace {

struct Cell {
  std::uint32_t offset;  // from the start of the storage's varying part
  std::uint32_t size_bytes;
};

// The alignment that a column's rows want: that of an element; complex128 is two float64.
std::size_t alignment(DType dtype) {
  return has_variable_size(dtype) ? alignof(Cell)
                                  : std::min<std::size_t>(8, dtype_size_bytes(dtype));
}

}  // namespace

ChunkSchema::ChunkSchema(std::vector<TensorSpec> columns)
    : columns_(std::move(columns)), places_(columns_.size()) {
  std::vector<std::size_t> order(columns_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return alignment(columns_[a].dtype) > alignment(columns_[b].dtype);
  });
  for (const std::size_t i : order) {
    const TensorSpec& spec = columns_[i];
    const bool variable = has_variable_size(spec.dtype);
    has_variable_ = has_variable_ || variable;
    places_[i].row_bytes = variable ? sizeof(Cell)
                                    : static_cast<std::size_t>(element_count(spec.shape)) *
                                          dtype_size_bytes(spec.dtype);
    places_[i].bytes_before = step_bytes_;
    step_bytes_ += places_[i].row_bytes;
  }
}

Result<Ref<Chunk>> Chunk::open(Ref<const ChunkSchema> schema, ChunkOrigin origin,
                               std::uint32_t capacity, std::size_t var_bytes,
                               Allocator& allocator) {
  REVERIE_CHECK(capacity > 0);
  if (var_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return invalid_argument(
        "the strings of one chunk take {} bytes; the bound is 4 GiB; use a smaller chunk_length",
        var_bytes);
  }
  const std::size_t step_bytes = schema->step_bytes();
  if (step_bytes > std::numeric_limits<std::size_t>::max() / 2 / capacity) {
    return invalid_argument(
        "a chunk of {} steps of {} bytes is larger than memory; use a smaller chunk_length",
        capacity, step_bytes);
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, allocator.allocate(capacity * step_bytes + var_bytes));
  return Ref<Chunk>::adopt(new Chunk(std::move(schema), origin, capacity, std::move(storage)));
}

Ref<Chunk> Chunk::encoded(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t rows,
                          Buffer storage, std::vector<EncodedColumn> columns) {
  REVERIE_CHECK(columns.size() == schema->column_count());
  for (const EncodedColumn& column : columns) {
    REVERIE_CHECK(column.offset <= storage.size_bytes() &&
                  column.size_bytes <= storage.size_bytes() - column.offset);
  }
  auto chunk = Ref<Chunk>::adopt(new Chunk(std::move(schema), origin, rows, std::move(storage)));
  chunk->encoded_ = std::make_unique<std::vector<EncodedColumn>>(std::move(columns));
  chunk->publish(rows);
  return chunk;
}

std::size_t Chunk::size_bytes() const {
  return sizeof(Chunk) + storage_.size_bytes() +
         (encoded_ ? encoded_->size() * sizeof(EncodedColumn) : 0);
}

std::span<const std::byte> Chunk::row_bytes(std::size_t column, std::uint32_t r) const {
  const std::byte* const place = row(column, r);
  if (!schema_->is_variable(column)) return {place, schema_->row_bytes(column)};
  Cell cell;
  std::memcpy(&cell, place, sizeof(cell));
  return {storage_.data() + var_begin() + cell.offset, cell.size_bytes};
}

void Chunk::set_row(std::size_t column, std::uint32_t r, std::span<const std::byte> bytes) {
  auto* const place = const_cast<std::byte*>(row(column, r));
  if (!schema_->is_variable(column)) {
    if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
    return;
  }
  const Cell cell{var_used_, static_cast<std::uint32_t>(bytes.size())};
  if (!bytes.empty())
    std::memcpy(storage_.data() + var_begin() + var_used_, bytes.data(), bytes.size());
  std::memcpy(place, &cell, sizeof(cell));
  var_used_ += cell.size_bytes;
}

}  // namespace reverie
