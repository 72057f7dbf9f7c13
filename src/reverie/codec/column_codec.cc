#include "reverie/codec/column_codec.h"

#include <cstdint>
#include <cstring>
#include <limits>

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
  // Divided, not multiplied: the product of two foreign numbers may overflow.
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
    return data_loss("column '{}' has {} bytes behind its {} rows", spec.name, rows.size() - at,
                     row_count);
  }
  return ColumnRows(rows.data(), std::move(ends));
}

}  // namespace

Result<std::size_t> encoded_size_bytes(CodecId codec, const TensorSpec& spec,
                                       std::span<const RowSpan> rows) {
  if (codec != CodecId::kRaw) return unknown_codec(codec, spec);
  const bool varying = has_variable_size(spec.dtype);
  std::size_t size = varying ? rows.size() * sizeof(RowSize) : 0;
  for (const RowSpan row : rows) {
    if (varying && row.size() > std::numeric_limits<RowSize>::max()) {
      return resource_exhausted("a row of column '{}' has {} bytes; the bound is 4 GiB", spec.name,
                                row.size());
    }
    size += row.size();
  }
  return size;
}

void encode_column(CodecId codec, const TensorSpec& spec, std::span<const RowSpan> rows,
                   std::span<std::byte> out) {
  REVERIE_CHECK(codec == CodecId::kRaw);
  std::byte* at = out.data();
  if (has_variable_size(spec.dtype)) {
    for (const RowSpan row : rows) {
      const auto size = static_cast<RowSize>(row.size());
      std::memcpy(at, &size, sizeof(size));
      at += sizeof(size);
    }
  }
  for (const RowSpan row : rows) {
    if (!row.empty()) std::memcpy(at, row.data(), row.size());
    at += row.size();
  }
  REVERIE_CHECK(at == out.data() + out.size());
}

Result<ColumnRows> decode_column(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                                 std::span<const std::byte> bytes) {
  if (codec != CodecId::kRaw) return unknown_codec(codec, spec);
  if (spec.dtype < DType::kBool || spec.dtype > DType::kString) {
    return data_loss("column '{}' has the dtype {}, which this version does not know", spec.name,
                     static_cast<int>(spec.dtype));
  }
  const std::optional<std::size_t> element_count = checked_element_count(spec.shape);
  if (!element_count) {
    return data_loss("column '{}' has the shape {}, which no memory can hold", spec.name,
                     shape_text(spec.shape));
  }
  return has_variable_size(spec.dtype) ? decode_varying(spec, *element_count, row_count, bytes)
                                       : decode_fixed(spec, *element_count, row_count, bytes);
}

}  // namespace reverie
