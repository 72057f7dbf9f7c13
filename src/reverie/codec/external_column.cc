#include "reverie/codec/external_column.h"

#include <limits>

#include "reverie/codec/byte_stream.h"

namespace reverie {

Status check_external(const ExternalRange& range) {
  constexpr std::uint64_t kEndMax = std::numeric_limits<std::int64_t>::max();
  if (range.file.empty()) {
    return invalid_argument("the file of an external column is empty; name one");
  }
  if (range.file.size() > ExternalRange::kFileBytesMax) {
    return invalid_argument(
        "the file of an external column has a name of {} bytes; the bound is {}", range.file.size(),
        ExternalRange::kFileBytesMax);
  }
  if (range.file.find('\0') != std::string::npos) {
    return invalid_argument("file '{}' of an external column holds a NUL; give a name without",
                            range.file.c_str());
  }
  if (range.offset > kEndMax || range.size_bytes > kEndMax - range.offset) {
    return invalid_argument(
        "an external column is at offset {} of '{}' and has {} bytes; it must end below 2^63",
        range.offset, range.file, range.size_bytes);
  }
  return {};
}

void append_external(const ExternalRange& range, std::vector<std::byte>& out) {
  ByteWriter(out).text(range.file).u64(range.offset).u64(range.size_bytes).u32(range.first_row);
}

Result<ExternalRange> read_external(const TensorSpec& spec, std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  ExternalRange range;
  range.file = in.text();
  range.offset = in.u64();
  range.size_bytes = in.u64();
  range.first_row = in.u32();
  if (!in.is_done()) {
    return data_loss("column '{}' has {} bytes, which name no part of a file", spec.name,
                     bytes.size());
  }
  const Status status = check_external(range);
  if (!status.ok()) return data_loss("column '{}': {}", spec.name, status.message());
  return range;
}

}  // namespace reverie
