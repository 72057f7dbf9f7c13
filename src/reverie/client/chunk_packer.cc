#include "reverie/client/chunk_packer.h"

#include <algorithm>
#include <new>
#include <utility>

namespace reverie {
namespace {

constexpr double kPays = 0.75;  // of the raw bytes

}  // namespace

ColumnTry ChunkPacker::plan(const ChunkSchema& schema, std::size_t column) const {
  if (std::ranges::find(raw_, column) != raw_.end()) return {};
  const DType dtype = schema.column(column).dtype;
  switch (choice_) {
    case CodecChoice::kRaw:
      return {};
    case CodecChoice::kLz4:
      return {.codec = CodecId::kLz4, .at_most = 1.0};
    case CodecChoice::kZstd:
      return {.codec = CodecId::kZstd, .at_most = 1.0};
    case CodecChoice::kAuto:
      break;
  }
  const bool is_integer = dtype >= DType::kBool && dtype <= DType::kUInt64;
  const bool is_large = schema.row_bytes(column) >= kRowBytesMin;
  if (!is_integer || !is_large) return {};
  if (column < columns_.size() && columns_[column].pause > 0) return {};
  return {.codec = CodecId::kLz4, .at_most = kPays};
}

bool ChunkPacker::wants(const ChunkSchema& schema) const {
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    if (plan(schema, i).codec != CodecId::kRaw) return true;
  }
  return false;
}

void ChunkPacker::note_unpacked() {
  for (Column& column : columns_) {
    if (column.pause > 0) --column.pause;
  }
}

void ChunkPacker::pack(Chunk& chunk, Allocator& allocator) {
  const ChunkSchema& schema = chunk.schema();
  try {
    columns_.resize(std::max(columns_.size(), schema.column_count()));
    tries_.reserve(schema.column_count());
  } catch (const std::bad_alloc&) {
    return;  // a writer is within a step, which must end
  }
  if (chunk.rows() == 0) return;
  tries_.clear();
  for (std::size_t i = 0; i < schema.column_count(); ++i) tries_.push_back(plan(schema, i));
  note_unpacked();
  auto encoded = encode_columns(chunk, tries_, allocator);
  if (!encoded.ok()) return;  // the rows stay raw, and nothing is lost
  for (std::size_t i = 0; i < tries_.size(); ++i) {
    if (tries_[i].codec != CodecId::kRaw) {
      note(columns_[i], encoded->columns[i].codec != CodecId::kRaw);
    }
  }
  const std::size_t packed =
      encoded->storage.size_bytes() + encoded->columns.size() * sizeof(Chunk::EncodedColumn);
  if (packed >= chunk.raw_bytes()) return;
  packed_row_bytes_ = static_cast<double>(packed) / chunk.rows();
  chunk.replace_rows(std::move(encoded).value());
}

void ChunkPacker::note(Column& column, bool is_worthwhile) {
  if (is_worthwhile) {
    column = {};
  } else if (++column.misses >= kMissesMax) {
    column.pause = column.next_pause;
    column.next_pause *= 2;
  }
}

}  // namespace reverie
