#include "reverie/codec/column_codec.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "reverie/codec/column_decoder.h"
#include "reverie/codec/compressed_column.h"
#include "reverie/codec/external_column.h"
#include "reverie/codec/reverb_column.h"

namespace reverie {
namespace {

using RowSize = std::uint32_t;

Status unknown_codec(CodecId codec, const TensorSpec& spec) {
  return data_loss("column '{}' is encoded with codec {}, which this version does not know",
                   spec.name, static_cast<int>(codec));
}

Result<ColumnRows> decode_fixed(const TensorSpec& spec, std::size_t element_count,
                                std::size_t row_count, std::span<const std::byte> bytes) {
  const std::size_t row_bytes = element_count * dtype_size_bytes(spec.dtype);
  // Divided, not multiplied: the product of two untrusted numbers may overflow.
  const bool fits = row_bytes == 0
                        ? bytes.empty()
                        : bytes.size() % row_bytes == 0 && bytes.size() / row_bytes == row_count;
  if (!fits) {
    return data_loss("column '{}' has {} bytes, but {} rows of {} bytes were announced", spec.name,
                     bytes.size(), row_count, row_bytes);
  }
  return ColumnRows(bytes.data(), row_bytes);
}

Result<ColumnRows> decode_varying(const TensorSpec& spec, std::size_t element_count,
                                  std::size_t row_count, std::span<const std::byte> bytes) {
  if (bytes.size() / sizeof(RowSize) < row_count) {
    return data_loss("column '{}' has {} bytes, too few for the sizes of the {} rows announced",
                     spec.name, bytes.size(), row_count);
  }
  const std::span<const std::byte> rows = bytes.subspan(row_count * sizeof(RowSize));
  std::vector<std::size_t> ends(row_count);
  std::size_t at = 0;
  for (std::size_t r = 0; r < row_count; ++r) {
    RowSize size = 0;
    std::memcpy(&size, bytes.data() + r * sizeof(RowSize), sizeof(size));
    if (size > rows.size() - at) {
      return data_loss("row {} of column '{}' has {} bytes, but only {} are left", r, spec.name,
                       size, rows.size() - at);
    }
    if (size > 0 && !are_sized_elements(rows.subspan(at, size), element_count)) {
      return data_loss("row {} of column '{}' is not {} elements that follow their lengths", r,
                       spec.name, element_count);
    }
    at += size;
    ends[r] = at;
  }
  if (at != rows.size()) {
    return data_loss("column '{}' has {} bytes after its {} rows", spec.name, rows.size() - at,
                     row_count);
  }
  return ColumnRows(rows.data(), std::move(ends));
}

Result<ColumnRows> decode_compressed(CodecId codec, const TensorSpec& spec,
                                     std::size_t element_count, std::size_t row_count,
                                     std::span<const std::byte> bytes) {
  if (has_variable_size(spec.dtype)) {
    REVERIE_ASSIGN_OR_RETURN(const CompressedColumn column, parse_compressed(codec, spec, bytes));
    if (column.filter != Filter::kNone) {
      return data_loss("column '{}' of rows of varying size went through a filter of fixed ones",
                       spec.name);
    }
    std::vector<std::byte> plain(column.plain_bytes);
    REVERIE_RETURN_IF_ERROR(decompress(codec, spec, column, plain));
    REVERIE_ASSIGN_OR_RETURN(ColumnRows rows,
                             decode_varying(spec, element_count, row_count, plain));
    rows.own(std::move(plain));
    return rows;
  }
  ColumnDecoder decoder;
  REVERIE_RETURN_IF_ERROR(decoder.open(codec, spec, row_count, bytes));
  const std::size_t row_bytes = decoder.row_bytes();
  std::vector<std::byte> all(row_bytes == 0 ? 0 : row_count * row_bytes);
  for (std::size_t r = 0; row_bytes > 0 && r < row_count; ++r) {
    REVERIE_ASSIGN_OR_RETURN(const RowSpan row, decoder.row(r));
    std::memcpy(all.data() + r * row_bytes, row.data(), row_bytes);
  }
  if (!decoder.is_at_end()) {
    return data_loss("column '{}' has bytes after its {} rows", spec.name, row_count);
  }
  ColumnRows rows(all.data(), row_bytes);
  rows.own(std::move(all));
  return rows;
}

Result<ColumnRows> decode_reverb(CodecId codec, const TensorSpec& spec, std::size_t element_count,
                                 std::size_t row_count, std::span<const std::byte> bytes) {
  if (has_variable_size(spec.dtype)) {
    return decode_reverb_varying(spec, element_count, row_count, bytes);
  }
  const std::size_t row_bytes = element_count * dtype_size_bytes(spec.dtype);
  std::vector<std::byte> all;
  REVERIE_RETURN_IF_ERROR(
      decode_reverb_fixed(codec, spec, row_count, row_bytes, bytes, [&](std::size_t size) {
        all.resize(size);
        return all.data();
      }));
  ColumnRows rows(all.data(), row_bytes);
  rows.own(std::move(all));
  return rows;
}

void append_rows(std::span<const RowSpan> rows, std::vector<std::byte>& out) {
  for (const RowSpan row : rows) out.insert(out.end(), row.begin(), row.end());
}

Status append_raw(const TensorSpec& spec, std::span<const RowSpan> rows,
                  std::vector<std::byte>& out) {
  const bool varying = has_variable_size(spec.dtype);
  std::size_t size = out.size() + (varying ? rows.size() * sizeof(RowSize) : 0);
  for (const RowSpan row : rows) {
    if (varying && row.size() > std::numeric_limits<RowSize>::max()) {
      return resource_exhausted("a row of column '{}' has {} bytes; the bound is 4 GiB", spec.name,
                                row.size());
    }
    size += row.size();
  }
  out.reserve(size);
  for (std::size_t r = 0; varying && r < rows.size(); ++r) {
    const auto row_size = static_cast<RowSize>(rows[r].size());
    const auto* const bytes = reinterpret_cast<const std::byte*>(&row_size);
    out.insert(out.end(), bytes, bytes + sizeof(row_size));
  }
  append_rows(rows, out);
  return {};
}

}  // namespace

bool are_together(std::span<const RowSpan> rows) {
  for (std::size_t r = 1; r < rows.size(); ++r) {
    if (rows[r].data() != rows[r - 1].data() + rows[r - 1].size()) return false;
  }
  return true;
}

Result<std::size_t> checked_elements(const TensorSpec& spec) {
  if (spec.dtype < DType::kBool || spec.dtype > DType::kString) {
    return data_loss("column '{}' has the dtype {}, which this version does not know", spec.name,
                     static_cast<int>(spec.dtype));
  }
  const std::optional<std::size_t> element_count = checked_element_count(spec.shape);
  if (!element_count) {
    return data_loss("column '{}' has the shape {}, which no memory can hold", spec.name,
                     shape_text(spec.shape));
  }
  return *element_count;
}

Status encode_column(CodecId codec, const TensorSpec& spec, std::span<const RowSpan> rows,
                     std::vector<std::byte>& out) {
  if (codec == CodecId::kRaw) return append_raw(spec, rows, out);
  if (is_reverb_codec(codec)) return encode_reverb(codec, spec, rows, out);
  if (codec != CodecId::kLz4 && codec != CodecId::kZstd) return unknown_codec(codec, spec);
  std::vector<std::byte> raw;
  if (has_variable_size(spec.dtype)) {
    REVERIE_RETURN_IF_ERROR(append_raw(spec, rows, raw));
    return compress_raw(codec, spec, raw, out);
  }
  const std::size_t row_bytes = rows.empty() ? 0 : rows.front().size();
  if (rows.empty() || are_together(rows)) {
    const std::byte* const begin = rows.empty() ? nullptr : rows.front().data();
    return compress_rows(codec, spec, rows.size(), row_bytes, {begin, rows.size() * row_bytes},
                         out);
  }
  append_rows(rows, raw);
  return compress_rows(codec, spec, rows.size(), row_bytes, raw, out);
}

Result<ColumnRows> decode_column(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                                 std::span<const std::byte> bytes) {
  REVERIE_ASSIGN_OR_RETURN(const std::size_t element_count, checked_elements(spec));
  switch (codec) {
    case CodecId::kRaw:
      return has_variable_size(spec.dtype) ? decode_varying(spec, element_count, row_count, bytes)
                                           : decode_fixed(spec, element_count, row_count, bytes);
    case CodecId::kLz4:
    case CodecId::kZstd:
      return decode_compressed(codec, spec, element_count, row_count, bytes);
    case CodecId::kExternal: {
      REVERIE_ASSIGN_OR_RETURN(const ExternalRange range, read_external(spec, bytes));
      return failed_precondition(
          "the rows of column '{}' are in the file '{}', which only a client of Reverie's that was "
          "given files= can read",
          spec.name, range.file);
    }
    case CodecId::kReverb:
    case CodecId::kReverbDelta:
      return decode_reverb(codec, spec, element_count, row_count, bytes);
  }
  return unknown_codec(codec, spec);
}

Status check_column(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                    std::span<const std::byte> bytes) {
  REVERIE_ASSIGN_OR_RETURN(const std::size_t elements, checked_elements(spec));
  const bool varies = has_variable_size(spec.dtype);
  switch (codec) {
    case CodecId::kRaw:
      return decode_column(codec, spec, row_count, bytes).status();  // copies nothing
    case CodecId::kLz4:
    case CodecId::kZstd: {
      REVERIE_ASSIGN_OR_RETURN(const CompressedColumn column, parse_compressed(codec, spec, bytes));
      const std::size_t row_bytes = elements * dtype_size_bytes(spec.dtype);
      std::size_t wanted = 0;
      const bool has_records = column.filter == Filter::kRowDiff;
      if (varies ? column.filter != Filter::kNone
                 : __builtin_mul_overflow(row_count, row_bytes, &wanted) ||
                       (!has_records && wanted != column.plain_bytes)) {
        return data_loss("column '{}' says that it unfolds to {} bytes; its {} rows of {} do not",
                         spec.name, column.plain_bytes, row_count, row_bytes);
      }
      return {};
    }
    case CodecId::kExternal:
      if (varies) {
        return data_loss("column '{}' of rows of varying size cannot be in a file", spec.name);
      }
      return read_external(spec, bytes).status();
    case CodecId::kReverb:
    case CodecId::kReverbDelta:
      return check_reverb(spec, elements, row_count, bytes);
  }
  return unknown_codec(codec, spec);
}

}  // namespace reverie
