#include "reverie/codec/reverb_column.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include <snappy-c.h>

namespace reverie {
namespace {

using ElementSize = std::uint32_t;

// Three bytes of a Snappy block copy at most 64.
constexpr std::size_t kSnappyExpansionMax = 22;

const char* chars(const std::byte* bytes) {
  return reinterpret_cast<const char*>(bytes);
}
char* chars(std::byte* bytes) {
  return reinterpret_cast<char*>(bytes);
}

// Rows from their differences.
template <typename T>
void add_rows_up(std::span<std::byte> bytes, std::size_t row_bytes) {
  const std::size_t width = row_bytes / sizeof(T);
  auto* const at = bytes.data();
  for (std::size_t i = width; i < bytes.size() / sizeof(T); ++i) {
    T before;
    T value;
    std::memcpy(&before, at + (i - width) * sizeof(T), sizeof(T));
    std::memcpy(&value, at + i * sizeof(T), sizeof(T));
    value = static_cast<T>(value + before);
    std::memcpy(at + i * sizeof(T), &value, sizeof(T));
  }
}

// Differences of rows, computed from the end, so that the previous row is still unchanged.
template <typename T>
void take_rows_apart(std::span<std::byte> bytes, std::size_t row_bytes) {
  const std::size_t width = row_bytes / sizeof(T);
  auto* const at = bytes.data();
  for (std::size_t i = bytes.size() / sizeof(T); i-- > width;) {
    T before;
    T value;
    std::memcpy(&before, at + (i - width) * sizeof(T), sizeof(T));
    std::memcpy(&value, at + i * sizeof(T), sizeof(T));
    value = static_cast<T>(value - before);
    std::memcpy(at + i * sizeof(T), &value, sizeof(T));
  }
}

// Calls `f` with an unsigned integer as wide as an element.
template <typename F>
void with_element(DType dtype, F f) {
  switch (dtype_size_bytes(dtype)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

void append_varint(std::uint64_t value, std::vector<std::byte>& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

// Takes a varint off the front; false when it is malformed or has more than 32 bits.
bool take_varint(std::span<const std::byte>& bytes, std::uint32_t& value) {
  std::uint64_t read = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 5; ++i) {
    const auto byte = static_cast<std::uint64_t>(bytes[i]);
    read |= (byte & 0x7f) << (7 * i);
    if ((byte & 0x80) != 0) continue;
    if (read > std::numeric_limits<std::uint32_t>::max()) return false;
    value = static_cast<std::uint32_t>(read);
    bytes = bytes.subspan(i + 1);
    return true;
  }
  return false;
}

// A row in the form of TensorView holds each element behind its length.
template <typename Visit>
void for_each_element(RowSpan row, Visit visit) {
  for (std::size_t at = 0; at < row.size();) {
    ElementSize size = 0;
    std::memcpy(&size, row.data() + at, sizeof(size));
    at += sizeof(size);
    visit(row.subspan(at, size));
    at += size;
  }
}

Status encode_varying(const TensorSpec& spec, std::span<const RowSpan> rows,
                      std::vector<std::byte>& out) {
  const auto elements = static_cast<std::size_t>(element_count(spec.shape));
  for (const RowSpan row : rows) {
    // An unset cell has elements without bytes.
    if (row.empty()) out.insert(out.end(), elements, std::byte{0});
    for_each_element(row, [&](RowSpan element) { append_varint(element.size(), out); });
  }
  for (const RowSpan row : rows) {
    for_each_element(
        row, [&](RowSpan element) { out.insert(out.end(), element.begin(), element.end()); });
  }
  return {};
}

// Takes the lengths of all elements off the front: begin(count) first, then visit(length) for each.
// The rest is their bytes, as many as the lengths say.
template <typename Begin, typename Visit>
Status take_sizes(const TensorSpec& spec, std::size_t element_count, std::size_t row_count,
                  std::span<const std::byte>& bytes, Begin begin, Visit visit) {
  std::size_t count = 0;
  // Each element has a length of at least one byte.
  if (__builtin_mul_overflow(element_count, row_count, &count) || count > bytes.size()) {
    return data_loss("column '{}' has {} bytes, too few for {} rows of {} elements", spec.name,
                     bytes.size(), row_count, element_count);
  }
  begin(count);
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    ElementSize size = 0;
    if (!take_varint(bytes, size)) {
      return data_loss("column '{}' has lengths of elements that are damaged", spec.name);
    }
    total += size;
    visit(size);
  }
  if (total != bytes.size()) {
    return data_loss("the elements of column '{}' have {} bytes, but {} follow their lengths",
                     spec.name, total, bytes.size());
  }
  return {};
}

Status wrong_block(const TensorSpec& spec, std::size_t size, std::size_t row_count,
                   std::size_t row_bytes) {
  return data_loss(
      "column '{}' has a block of {} bytes, which does not hold the {} rows of {} bytes announced",
      spec.name, size, row_count, row_bytes);
}

}  // namespace

bool reverb_delta_applies(const TensorSpec& spec) {
  return spec.dtype >= DType::kInt8 && spec.dtype <= DType::kUInt64 && !spec.shape.empty();
}

Status encode_reverb(CodecId codec, const TensorSpec& spec, std::span<const RowSpan> rows,
                     std::vector<std::byte>& out) {
  if (has_variable_size(spec.dtype)) return encode_varying(spec, rows, out);
  const std::size_t row_bytes = rows.empty() ? 0 : rows.front().size();
  const std::size_t plain_bytes = rows.size() * row_bytes;
  if (plain_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return resource_exhausted(
        "column '{}' has {} bytes; the bound of a chunk is 4 GiB; use a smaller chunk_length",
        spec.name, plain_bytes);
  }
  const bool is_delta = codec == CodecId::kReverbDelta && reverb_delta_applies(spec);
  std::vector<std::byte> copy;
  const std::byte* plain = row_bytes == 0 ? nullptr : rows.front().data();
  if (is_delta || !are_together(rows)) {
    copy.reserve(plain_bytes);
    for (const RowSpan row : rows) copy.insert(copy.end(), row.begin(), row.end());
    plain = copy.data();
  }
  if (is_delta && row_bytes > 0) {
    with_element(spec.dtype, [&](auto one) { take_rows_apart<decltype(one)>(copy, row_bytes); });
  }
  const std::size_t begin = out.size();
  std::size_t size = snappy_max_compressed_length(plain_bytes);
  out.resize(begin + size);
  REVERIE_CHECK(snappy_compress(chars(plain), plain_bytes, chars(out.data() + begin), &size) ==
                SNAPPY_OK);
  out.resize(begin + size);
  return {};
}

Result<std::size_t> checked_reverb_bytes(const TensorSpec& spec, std::size_t row_count,
                                         std::size_t row_bytes, std::span<const std::byte> bytes) {
  std::size_t announced = 0;
  if (snappy_uncompressed_length(chars(bytes.data()), bytes.size(), &announced) != SNAPPY_OK) {
    return wrong_block(spec, bytes.size(), row_count, row_bytes);
  }
  std::size_t wanted = 0;
  if (__builtin_mul_overflow(row_count, row_bytes, &wanted) || wanted != announced ||
      announced / kSnappyExpansionMax > bytes.size()) {
    return wrong_block(spec, bytes.size(), row_count, row_bytes);
  }
  return announced;
}

Status decompress_reverb(CodecId codec, const TensorSpec& spec, std::size_t row_bytes,
                         std::span<const std::byte> bytes, std::span<std::byte> out) {
  std::size_t size = out.size();
  char none = 0;  // an empty span may have no address
  char* const to = out.empty() ? &none : chars(out.data());
  if (snappy_uncompress(chars(bytes.data()), bytes.size(), to, &size) != SNAPPY_OK ||
      size != out.size()) {
    return data_loss("column '{}' has a block of {} bytes that is damaged", spec.name,
                     bytes.size());
  }
  if (codec == CodecId::kReverbDelta && reverb_delta_applies(spec) && row_bytes > 0) {
    with_element(spec.dtype, [&](auto one) { add_rows_up<decltype(one)>(out, row_bytes); });
  }
  return {};
}

Status check_reverb(const TensorSpec& spec, std::size_t element_count, std::size_t row_count,
                    std::span<const std::byte> bytes) {
  if (has_variable_size(spec.dtype)) {
    return take_sizes(
        spec, element_count, row_count, bytes, [](std::size_t) {}, [](ElementSize) {});
  }
  const std::size_t row_bytes = element_count * dtype_size_bytes(spec.dtype);
  REVERIE_RETURN_IF_ERROR(checked_reverb_bytes(spec, row_count, row_bytes, bytes).status());
  if (snappy_validate_compressed_buffer(chars(bytes.data()), bytes.size()) == SNAPPY_OK) return {};
  return data_loss("column '{}' has a block of {} bytes that is damaged", spec.name, bytes.size());
}

Result<ColumnRows> decode_reverb_varying(const TensorSpec& spec, std::size_t element_count,
                                         std::size_t row_count, std::span<const std::byte> bytes) {
  std::span<const std::byte> left = bytes;
  std::vector<ElementSize> sizes;
  REVERIE_RETURN_IF_ERROR(take_sizes(
      spec, element_count, row_count, left, [&](std::size_t found) { sizes.reserve(found); },
      [&](ElementSize size) { sizes.push_back(size); }));
  const std::size_t count = sizes.size();
  const std::size_t total = left.size();
  if (count == 0) return ColumnRows(bytes.data(), 0);
  std::vector<std::byte> plain(total + count * sizeof(ElementSize));
  std::vector<std::size_t> ends(row_count);
  std::byte* to = plain.data();
  for (std::size_t r = 0; r < row_count; ++r) {
    for (std::size_t e = 0; e < element_count; ++e) {
      const ElementSize size = sizes[r * element_count + e];
      std::memcpy(to, &size, sizeof(size));
      to += sizeof(size);
      if (size > 0) std::memcpy(to, left.data(), size);
      to += size;
      left = left.subspan(size);
    }
    ends[r] = static_cast<std::size_t>(to - plain.data());
  }
  ColumnRows rows(plain.data(), std::move(ends));
  rows.own(std::move(plain));
  return rows;
}

}  // namespace reverie
