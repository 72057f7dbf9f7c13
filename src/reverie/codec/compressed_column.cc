// Tested in column_codec_test.cc and column_decoder_test.cc.
#include "reverie/codec/compressed_column.h"

#include <algorithm>
#include <cstring>

#include "reverie/codec/block_codec.h"
#include "reverie/codec/row_diff.h"

namespace reverie {
namespace {

constexpr std::uint8_t kStored = 0x80;
constexpr std::size_t kHeaderBytes = 1 + sizeof(std::uint32_t);

void put_header(Filter filter, std::size_t plain_bytes, std::vector<std::byte>& out) {
  out.push_back(static_cast<std::byte>(filter));
  const auto size = static_cast<std::uint32_t>(plain_bytes);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&size);
  out.insert(out.end(), bytes, bytes + sizeof(size));
}

// Appends header and block. `decoded_bytes` are those of the rows.
void pack(CodecId codec, Filter filter, std::size_t decoded_bytes, std::span<const std::byte> plain,
          std::vector<std::byte>& out) {
  const std::size_t begin = out.size();
  put_header(filter, plain.size(), out);
  compress_block(codec, plain, out);
  const std::size_t size = out.size() - begin;
  const std::size_t most = std::max(decoded_bytes, plain.size());
  if (size < kHeaderBytes + plain.size() && most / kExpansionMax < size) return;
  out.resize(begin + kHeaderBytes);
  out[begin] |= static_cast<std::byte>(kStored);
  out.insert(out.end(), plain.begin(), plain.end());
}

std::vector<std::byte> row_diffs(std::size_t row_count, std::size_t row_bytes,
                                 const std::byte* rows) {
  const RowDiff diff(row_bytes);
  std::vector<std::byte> records;
  for (std::size_t r = 0; r < row_count; ++r) {
    const std::byte* const row = rows + r * row_bytes;
    diff.append(r == 0 ? nullptr : row - row_bytes, row, records);
  }
  return records;
}

Status too_large(const TensorSpec& spec, std::size_t size, std::size_t bound) {
  return resource_exhausted(
      "column '{}' has {} bytes; a compressed one may have {}; use a smaller chunk_length",
      spec.name, size, bound);
}

}  // namespace

PlaneShape plane_shape(DType dtype, std::size_t row_count, std::size_t row_bytes) {
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  const std::size_t size = dtype_size_bytes(dtype) / (is_complex ? 2 : 1);
  if (size < 2 || size > 8) return {};
  const bool is_float = dtype >= DType::kFloat16;  // integers come first
  return {row_count, row_bytes / size, size, is_float};
}

Status compress_rows(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                     std::size_t row_bytes, std::span<const std::byte> rows,
                     std::vector<std::byte>& out) {
  constexpr std::size_t kBound = kBlockBytesMax / 2;
  if (rows.size() > kBound) return too_large(spec, rows.size(), kBound);
  const std::size_t begin = out.size();
  const PlaneShape planes = plane_shape(spec.dtype, row_count, row_bytes);
  if (row_bytes >= RowDiff::kBlockBytes && !rows.empty()) {
    const std::vector<std::byte> records = row_diffs(row_count, row_bytes, rows.data());
    if (records.size() <= rows.size() / 2) {
      pack(codec, Filter::kRowDiff, rows.size(), records, out);
      // Numbers that all change a little are better off as planes.
      if (planes.element_bytes == 0 || records.size() <= rows.size() / 8) return {};
    }
  }
  const std::size_t diff_bytes = out.size() - begin;
  if (planes.element_bytes > 0 && !rows.empty()) {
    std::vector<std::byte> split(rows.size());
    to_planes(planes, rows.data(), split.data());
    pack(codec, Filter::kPlanes, rows.size(), split, out);
  } else {
    pack(codec, Filter::kNone, rows.size(), rows, out);
  }
  if (diff_bytes == 0) return {};
  const auto first = out.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto second = first + static_cast<std::ptrdiff_t>(diff_bytes);
  if (out.end() - second < second - first) {
    out.erase(first, second);
  } else {
    out.erase(second, out.end());
  }
  return {};
}

Status compress_raw(CodecId codec, const TensorSpec& spec, std::span<const std::byte> raw,
                    std::vector<std::byte>& out) {
  if (raw.size() > kBlockBytesMax) return too_large(spec, raw.size(), kBlockBytesMax);
  pack(codec, Filter::kNone, raw.size(), raw, out);
  return {};
}

Result<CompressedColumn> parse_compressed(CodecId codec, const TensorSpec& spec,
                                          std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) {
    return data_loss("column '{}' has {} bytes, too few for a compressed column", spec.name,
                     bytes.size());
  }
  const auto first = static_cast<std::uint8_t>(bytes[0]);
  const auto filter = static_cast<std::uint8_t>(first & ~kStored);
  if (filter > static_cast<std::uint8_t>(Filter::kPlanes)) {
    return data_loss("column '{}' went through filter {}, which this version does not know",
                     spec.name, filter);
  }
  std::uint32_t plain_bytes = 0;
  std::memcpy(&plain_bytes, bytes.data() + 1, sizeof(plain_bytes));
  const CompressedColumn column{static_cast<Filter>(filter), (first & kStored) != 0, plain_bytes,
                                bytes.subspan(kHeaderBytes)};
  const bool is_stored_whole = !column.is_stored || column.block.size() == plain_bytes;
  if (!is_stored_whole || plain_bytes > kBlockBytesMax ||
      plain_bytes / kExpansionMax > bytes.size()) {
    return data_loss("column '{}' says that its {} bytes (codec {}) become {}, which they cannot",
                     spec.name, bytes.size(), static_cast<int>(codec), plain_bytes);
  }
  return column;
}

Status decompress(CodecId codec, const TensorSpec& spec, const CompressedColumn& column,
                  std::span<std::byte> plain) {
  if (column.is_stored) {
    if (!plain.empty()) std::memcpy(plain.data(), column.block.data(), plain.size());
    return {};
  }
  if (decompress_block(codec, column.block, plain)) return {};
  return data_loss("the {} bytes of column '{}' are no {} bytes of codec {}; they are damaged",
                   column.block.size(), spec.name, plain.size(), static_cast<int>(codec));
}

}  // namespace reverie
