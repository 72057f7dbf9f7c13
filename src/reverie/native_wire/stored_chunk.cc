#include "reverie/native_wire/stored_chunk.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/codec/column_codec.h"
#include "reverie/codec/external_column.h"
#include "reverie/native_wire/chunk_bounds.h"
#include "reverie/reverb_wire/fields.h"
#include "reverie/tensor/shape.h"

namespace reverie {
namespace {

using wire::Bytes;
using wire::bytes_field;
using wire::varint_field;

constexpr std::size_t kColumnsMax = std::numeric_limits<std::uint16_t>::max();
// The memory of a column apart from its shape, as for Reverb's chunks.
constexpr std::size_t kColumnBytes = 128;
constexpr std::size_t kColumnBytesFree = std::size_t{1} << 20;

// Smaller rows cost more to unpack than they save.
constexpr std::size_t kCompressedRowBytesMin = 256;
constexpr double kPays = 0.75;  // of the raw bytes

// --- Writing --------------------------------------------------------------------------------

struct SentColumn {
  SentColumn(CodecId of, Bytes sent) : codec(of), bytes(sent) {}

  CodecId codec;
  Bytes bytes;
};

// The rows of a raw column are contiguous.
Bytes raw_column(const Chunk& chunk, std::size_t column, std::uint32_t begin, std::uint32_t end) {
  return {chunk.row(column, begin), (end - begin) * chunk.schema().row_bytes(column)};
}

std::vector<RowSpan> rows_in(Bytes column, std::size_t row_bytes, std::uint32_t count) {
  std::vector<RowSpan> rows(count);
  for (std::uint32_t r = 0; r < count; ++r) rows[r] = column.subspan(r * row_bytes, row_bytes);
  return rows;
}

// Columns that were encoded for one message.
using Made = std::vector<std::vector<std::byte>>;

// The columns of raw rows: all raw, or some compressed in `made`.
Result<std::vector<SentColumn>> raw_columns(const Chunk& chunk, std::uint32_t begin,
                                            std::uint32_t end, Made& made) {
  const ChunkSchema& schema = chunk.schema();
  std::vector<SentColumn> columns;
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    SentColumn& column = columns.emplace_back(CodecId::kRaw, raw_column(chunk, c, begin, end));
    if (!chunk.is_compressible() || schema.row_bytes(c) < kCompressedRowBytesMin) continue;
    std::vector<std::byte>& bytes = made.emplace_back();
    REVERIE_RETURN_IF_ERROR(encode_column(CodecId::kLz4, schema.column(c),
                                          rows_in(column.bytes, schema.row_bytes(c), end - begin),
                                          bytes));
    if (static_cast<double>(bytes.size()) <= kPays * static_cast<double>(column.bytes.size())) {
      column = {CodecId::kLz4, bytes};
    } else {
      made.pop_back();
    }
  }
  return columns;
}

// The columns of an encoded chunk: unchanged, or for a part of the rows encoded again in `made`.
Result<std::vector<SentColumn>> encoded_columns(const Chunk& chunk, std::uint32_t begin,
                                                std::uint32_t end, Made& made) {
  const ChunkSchema& schema = chunk.schema();
  const bool is_whole = begin == 0 && end == chunk.rows();
  std::vector<SentColumn> columns;
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    SentColumn& column =
        columns.emplace_back(chunk.encoded_column(c).codec, chunk.encoded_bytes(c));
    if (is_whole) continue;
    if (column.codec == CodecId::kExternal) {
      REVERIE_ASSIGN_OR_RETURN(ExternalRange range, read_external(schema.column(c), column.bytes));
      range.first_row += begin;
      append_external(range, made.emplace_back());
      column.bytes = made.back();
      continue;
    }
    REVERIE_ASSIGN_OR_RETURN(const ColumnRows all, decode_column(column.codec, schema.column(c),
                                                                 chunk.rows(), column.bytes));
    std::vector<RowSpan> rows;
    for (std::uint32_t r = begin; r < end; ++r) rows.push_back(all[r]);
    REVERIE_RETURN_IF_ERROR(
        encode_column(column.codec, schema.column(c), rows, made.emplace_back()));
    column.bytes = made.back();
  }
  return columns;
}

std::string column_head(const TensorSpec& spec, const SentColumn& column, bool is_encoded) {
  std::string out;
  wire::put_uint(out, 1, static_cast<std::uint64_t>(spec.dtype));
  const std::vector<std::uint64_t> extents(spec.shape.begin(), spec.shape.end());
  wire::put_packed(out, 2, extents);
  if (!is_encoded) return out;
  wire::put_uint(out, 3, static_cast<std::uint64_t>(column.codec));
  wire::put_uint(out, 4, column.bytes.size());
  return out;
}

// --- Reading --------------------------------------------------------------------------------

struct Parts {
  ChunkOrigin origin;
  std::uint64_t first_step = 0;
  std::uint64_t rows = 0;
  std::vector<TensorSpec> specs;
  std::vector<Chunk::EncodedColumn> columns;
  // One of them.
  std::optional<Bytes> raw;
  std::optional<Bytes> encoded;
};

Status read_column(Bytes message, Parts& parts) {
  std::uint64_t dtype = 0;
  std::uint64_t codec = 0;
  std::uint64_t size_bytes = 0;
  std::vector<std::uint64_t> extents;
  REVERIE_RETURN_IF_ERROR(
      wire::for_each_field(message, [&](wire::Reader& reader, std::uint32_t tag) {
        if (tag == varint_field(1)) {
          dtype = reader.get_uint64();
        } else if (tag == varint_field(3)) {
          codec = reader.get_uint64();
        } else if (tag == varint_field(4)) {
          size_bytes = reader.get_uint64();
        } else if (!wire::take_numbers(reader, tag, 2, extents)) {
          reader.skip();
        }
        return Status();
      }));
  // Strings go in Reverb's form.
  if (dtype < static_cast<std::uint64_t>(DType::kBool) ||
      dtype >= static_cast<std::uint64_t>(DType::kBytes) || extents.size() > kAxesMax) {
    return invalid_argument("a column of a stored chunk has dtype {} and {} axes", dtype,
                            extents.size());
  }
  if (codec > std::numeric_limits<std::uint8_t>::max()) {
    return invalid_argument("a column of a stored chunk has codec {}; it is one byte", codec);
  }
  TensorSpec spec{"", static_cast<DType>(dtype), {}};
  for (const std::uint64_t extent : extents)
    spec.shape.push_back(static_cast<std::int64_t>(extent));
  const std::optional<std::size_t> elements = checked_element_count(spec.shape);
  if (!elements || *elements > kRowBytesMax) {
    return invalid_argument(
        "a column of a stored chunk has rows of shape {}; a row has at most {} bytes",
        shape_text(spec.shape), kRowBytesMax);
  }
  const std::size_t offset =
      parts.columns.empty() ? 0 : parts.columns.back().offset + parts.columns.back().size_bytes;
  // Against the bytes that are there: check().
  if (size_bytes > std::numeric_limits<std::size_t>::max() - offset) {
    return invalid_argument("a column of a stored chunk has {} bytes", size_bytes);
  }
  parts.columns.push_back({static_cast<CodecId>(codec), offset, size_bytes});
  parts.specs.push_back(std::move(spec));
  return {};
}

Status read_parts(Bytes bytes, Parts& parts) {
  return wire::for_each_field(bytes, [&](wire::Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        parts.origin.key = reader.get_uint64();
        return Status();
      case varint_field(2):
        parts.origin.episode = reader.get_uint64();
        return Status();
      case varint_field(3):
        parts.first_step = reader.get_uint64();
        return Status();
      case varint_field(4):
        parts.rows = reader.get_uint64();
        return Status();
      case bytes_field(5):
        if (parts.columns.size() == kColumnsMax) {
          return invalid_argument("a stored chunk has more than {} columns", kColumnsMax);
        }
        if ((parts.columns.size() + 1) * kColumnBytes > kColumnBytesFree + 2 * bytes.size()) {
          return invalid_argument(
              "a stored chunk of {} bytes has more than {} columns, which hold next to nothing; "
              "give "
              "it fewer columns",
              bytes.size(), parts.columns.size());
        }
        return read_column(wire::get_bytes(reader), parts);
      case bytes_field(6):
        parts.raw = wire::get_bytes(reader);
        return Status();
      case bytes_field(7):
        parts.encoded = wire::get_bytes(reader);
        return Status();
      default:
        reader.skip();
        return Status();
    }
  });
}

Status check(const Parts& parts) {
  const ChunkKey key = parts.origin.key;
  if (parts.specs.empty()) {
    return invalid_argument("stored chunk {} has no columns; it needs at least one", key);
  }
  if (parts.rows < 1 || parts.rows > kRowsMax) {
    return invalid_argument("stored chunk {} has {} rows; it must have between 1 and {}", key,
                            parts.rows, kRowsMax);
  }
  if (parts.first_step > std::numeric_limits<std::uint32_t>::max()) {
    return invalid_argument("stored chunk {} begins with step {}; the bound is {}", key,
                            parts.first_step, std::numeric_limits<std::uint32_t>::max());
  }
  if (parts.raw.has_value() == parts.encoded.has_value()) {
    return invalid_argument("stored chunk {} must have either rows or encoded columns", key);
  }
  std::uint64_t row_bytes = 0;
  for (const TensorSpec& spec : parts.specs) {
    row_bytes +=
        static_cast<std::uint64_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
    if (row_bytes > kRowBytesMax) {
      return invalid_argument("a row of stored chunk {} has {} bytes and more; the bound is {}",
                              key, row_bytes, kRowBytesMax);
    }
  }
  const Chunk::EncodedColumn& last = parts.columns.back();
  const std::uint64_t wanted = parts.raw ? parts.rows * row_bytes : last.offset + last.size_bytes;
  const std::uint64_t found = parts.raw ? parts.raw->size() : parts.encoded->size();
  if (found != wanted) {
    return invalid_argument("stored chunk {} has {} bytes; its columns have {}", key, found,
                            wanted);
  }
  const std::uint64_t plain_bytes = parts.rows * row_bytes;
  if (parts.raw || may_unfold_to(plain_bytes, found)) return {};
  return invalid_argument(
      "stored chunk {} unfolds from {} bytes to {}; the bound is {}, or {} times its own; use a "
      "smaller chunk_length",
      key, found, plain_bytes, kUnfoldedBytesMax, kUnfoldedRatioMax);
}

}  // namespace

bool has_external_columns(const Chunk& chunk) {
  if (chunk.is_raw()) return false;
  for (std::size_t c = 0; c < chunk.schema().column_count(); ++c) {
    if (chunk.encoded_column(c).codec == CodecId::kExternal) return true;
  }
  return false;
}

Status put_stored_chunk(PayloadBuilder& message, const Chunk& chunk, std::uint32_t begin,
                        std::uint32_t end, ChunkKey key) {
  REVERIE_CHECK(has_stored_form(chunk) && begin < end);
  REVERIE_RETURN_IF_ERROR(chunk.check_published(end));
  const ChunkSchema& schema = chunk.schema();
  RawRows raw(chunk);
  auto made = std::make_shared<Made>();
  REVERIE_ASSIGN_OR_RETURN(
      const std::vector<SentColumn> columns,
      raw ? raw_columns(chunk, begin, end, *made) : encoded_columns(chunk, begin, end, *made));
  const bool is_encoded = !raw || !made->empty();
  std::size_t size_bytes = 0;
  std::string head;
  wire::put_uint(head, 1, key);
  wire::put_uint(head, 2, chunk.episode());
  wire::put_uint(head, 3, std::uint64_t{chunk.first_step()} + begin);
  wire::put_uint(head, 4, end - begin);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    wire::put_message(head, 5, column_head(schema.column(c), columns[c], is_encoded));
    size_bytes += columns[c].bytes.size();
  }
  wire::put_head(head, is_encoded ? 7 : 6, size_bytes);
  wire::put_head(message.own(), wire::kStoredChunksField, head.size() + size_bytes);
  message.own() += head;
  // Raw ones in the order in which a raw chunk has them in memory. Stable: a column without bytes
  // begins where the next one does.
  std::vector<std::size_t> order(columns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!is_encoded) {
    std::ranges::stable_sort(order, {}, [&](std::size_t c) { return schema.bytes_before(c); });
  }
  for (const std::size_t c : order) message.put(columns[c].bytes, chunk);
  if (raw && !chunk.is_raw_for_good()) message.keep_rows(chunk, std::move(raw));
  if (!made->empty()) message.keep(std::move(made));
  return {};
}

Result<Ref<Chunk>> read_stored_chunk(Bytes bytes, wire::SchemaCache& schemas,
                                     const KeepPart& keep) {
  Parts parts;
  REVERIE_RETURN_IF_ERROR(
      wire::read_message("stored chunk", [&] { return read_parts(bytes, parts); }));
  REVERIE_RETURN_IF_ERROR(check(parts));
  parts.origin.first_step = static_cast<std::uint32_t>(parts.first_step);
  const auto rows = static_cast<std::uint32_t>(parts.rows);
  Ref<const ChunkSchema> schema = schemas.find(std::move(parts.specs));
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, keep(parts.raw ? *parts.raw : *parts.encoded));
  if (parts.raw) return Chunk::of_rows(std::move(schema), parts.origin, rows, std::move(storage));
  return Chunk::encoded(std::move(schema), parts.origin, rows, std::move(storage),
                        std::move(parts.columns));
}

}  // namespace reverie
